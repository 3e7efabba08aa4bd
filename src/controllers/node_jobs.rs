//! Runs something on nodes of the cluster, each by a Job of its own, with an administrator's credential.
//!
//! What the Jobs are and what their pods say is decided in [`crate::reconcilers::node_jobs`]; here they are made, asked after and
//! removed. A Job of the same name that does the same is taken over: a run that resumes finds what it began. Whoever asks waits:
//! when that one is cut off, [`NodeJobs::sweep`] removes what is left, and without it the Jobs end and go by themselves.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Client;
use serde::Deserialize;

use super::cluster::{self, CallError, CallErrorKind, pages};
use super::concern::chain;
use super::hands;
use crate::host::clock;
use crate::reconcilers::node_jobs::{Ended, Progress, Step, judge, of_run};
use crate::reconcilers::object::{GroupResource, ObjectId, Uid};

const JSON: &str = "application/json";
/// How often a Job is asked after. A pod takes longer than that to start.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a step has no end that its program told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Job could not be made, found or asked after.
    #[error("the Job {job} cannot be made or asked after")]
    Call {
        /// Its name.
        job: String,
        /// What the API server said.
        #[source]
        source: CallError,
    },
    /// There is one of the name, and it does something else.
    #[error("a Job {job} is there and does something else")]
    Foreign {
        /// Its name.
        job: String,
    },
    /// The program did not run to its end.
    #[error("{reason}")]
    Failed {
        /// Why.
        reason: String,
    },
    /// It took too long.
    #[error("no answer within {} s: {waiting}", limit.as_secs())]
    Overdue {
        /// How long it was given.
        limit: Duration,
        /// What it waited for at the end.
        waiting: String,
    },
}

/// The Jobs of one namespace.
#[derive(Clone)]
pub struct NodeJobs {
    client: Client,
    namespace: String,
}

/// As much of an object as its removal needs.
#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    uid: Uid,
}

impl NodeJobs {
    /// Jobs in `namespace`, whose Pod Security admission has to let privileged pods in.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        Self { client, namespace }
    }

    /// Every Node of the cluster.
    ///
    /// # Errors
    /// When the API server refuses or does not answer.
    pub async fn nodes(&self) -> Result<Vec<Node>, CallError> {
        let collection = cluster::collection_path("", "v1", "nodes", None);
        pages::all(&self.client, &collection, "", JSON).await
    }

    /// Runs a step to its end, and removes its Job however it ended. Dropped half-way, it leaves the Job.
    ///
    /// # Errors
    /// When there is no end that the program told, at the step's deadline at the latest. The exit code of a program that failed
    /// is no error here.
    pub async fn run(&self, step: &Step) -> Result<Ended, Error> {
        let name = step.name();
        let failed = |source| Error::Call {
            job: name.clone(),
            source,
        };
        let uid = self.submit(step, &name).await?;
        let ended = self.follow(step, &name).await;
        match self.remove(&name, &uid).await {
            Ok(()) => ended,
            // The answer is there, and the Job goes by itself.
            Err(error) if ended.is_ok() => {
                tracing::warn!("Job {name} cannot be removed now: {}", chain(&error));
                ended
            }
            Err(error) => ended.and(Err(failed(error))),
        }
    }

    /// Makes the Job, or takes over the one that does the same.
    async fn submit(&self, step: &Step, name: &str) -> Result<Uid, Error> {
        let failed = |source| Error::Call {
            job: name.to_owned(),
            source,
        };
        let collection = cluster::collection_path("batch", "v1", "jobs", Some(&self.namespace));
        let made = hands::store(&self.client, &collection, name, false, &step.job()).await;
        match made {
            Ok(live) => Ok(live.uid.unwrap_or_else(|| Uid(String::new()))),
            Err(error) if error.kind() == CallErrorKind::Conflict => {
                let job = self.look(name).await.map_err(failed)?;
                match job.filter(|job| step.is_done_by(job)) {
                    Some(job) => Ok(Uid(job.metadata.uid.unwrap_or_default())),
                    None => Err(Error::Foreign { job: name.to_owned() }),
                }
            }
            Err(error) => Err(failed(error)),
        }
    }

    async fn follow(&self, step: &Step, name: &str) -> Result<Ended, Error> {
        let began = clock::monotonic();
        let mut waiting = "nothing is known of its Job yet".to_owned();
        loop {
            let asked = tokio::time::timeout(step.deadline.saturating_sub(began.elapsed()), self.progress(name)).await;
            match asked {
                Err(_) => {}
                Ok(Ok(Progress::Ended(ended))) => return Ok(ended),
                Ok(Ok(Progress::Failed(reason))) => return Err(Error::Failed { reason }),
                Ok(Ok(Progress::Waiting(for_what))) => waiting = for_what,
                // An API server that is restarted is back in a moment.
                Ok(Err(error)) if error.kind() == CallErrorKind::Unanswered => waiting = error.reason(),
                Ok(Err(source)) => {
                    return Err(Error::Call {
                        job: name.to_owned(),
                        source,
                    });
                }
            }
            if began.elapsed() >= step.deadline {
                let limit = step.deadline;
                return Err(Error::Overdue { limit, waiting });
            }
            clock::sleep(PAUSE.min(step.deadline.saturating_sub(began.elapsed()))).await;
        }
    }

    /// How far a Job is.
    async fn progress(&self, name: &str) -> Result<Progress, CallError> {
        let job = self.look(name).await?;
        let pods = cluster::collection_path("", "v1", "pods", Some(&self.namespace));
        let own = pages::selector("labelSelector", &format!("batch.kubernetes.io/job-name={name}"));
        let pods: Vec<Pod> = pages::all(&self.client, &pods, &own, JSON).await?;
        let progress = judge(job.as_ref(), &pods, &[]);
        // Events say why it waits; a Job that goes well needs none.
        let Progress::Waiting(_) = progress else {
            return Ok(progress);
        };
        let about = match (pods.first(), &job) {
            (Some(pod), _) => pod.metadata.uid.as_deref(),
            (None, Some(job)) => job.metadata.uid.as_deref(),
            (None, None) => None,
        };
        let collection = cluster::collection_path("", "v1", "events", Some(&self.namespace));
        let selected = pages::selector(
            "fieldSelector",
            &format!("involvedObject.uid={}", about.unwrap_or_default()),
        );
        let events: Vec<Event> = pages::all(&self.client, &collection, &selected, JSON).await?;
        Ok(judge(job.as_ref(), &pods, &events))
    }

    async fn look(&self, name: &str) -> Result<Option<Job>, CallError> {
        let path = cluster::object_path(&self.id(name), "v1");
        match cluster::fetch(&self.client, &path, JSON).await {
            Ok(job) => Ok(Some(job)),
            Err(error) if error.kind() == CallErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes every Job of a run that is still there, and says how many.
    ///
    /// # Errors
    /// When one cannot be removed; the others may be gone.
    pub async fn sweep(&self, run: &str) -> Result<usize, CallError> {
        let jobs = cluster::collection_path("batch", "v1", "jobs", Some(&self.namespace));
        let own = pages::selector("labelSelector", &of_run(run));
        let left: Vec<Named> = pages::all(&self.client, &jobs, &own, JSON).await?;
        for Named { metadata } in &left {
            self.remove(&metadata.name, &metadata.uid).await?;
        }
        Ok(left.len())
    }

    /// With its pods. One that is gone, or that is another by now, is not missed.
    async fn remove(&self, name: &str, uid: &Uid) -> Result<(), CallError> {
        match hands::discard(&self.client, &self.id(name), "v1", uid).await {
            Err(error) if !matches!(error.kind(), CallErrorKind::NotFound | CallErrorKind::Conflict) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn id(&self, name: &str) -> ObjectId {
        ObjectId {
            resource: GroupResource::new("batch", "jobs"),
            namespace: Some(self.namespace.clone()),
            name: name.to_owned(),
        }
    }
}
