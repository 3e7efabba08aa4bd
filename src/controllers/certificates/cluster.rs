//! Asks every node of the cluster how its certificates are, by a Job on each that runs `stratum certs check` there.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;

use super::super::cluster::CallError;
use super::super::concern::chain;
use super::super::node_jobs::NodeJobs;
use crate::host::images::Image;
use crate::host::layout::Layout;
use crate::reconcilers::certificates::cluster::{ClusterReport, Summary};
use crate::reconcilers::node_jobs::{Step, is_able, sandbox_image};

/// Nodes that are asked at the same time.
const AT_ONCE: usize = 10;
/// What the Jobs are for.
const PURPOSE: &str = "certs-check";

/// The form of the answer that a node gives a Job, as a word of `stratum certs check -o`.
pub const SUMMARY: &str = "summary";

/// How the nodes are asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// What the Jobs are found by: lower-case letters and digits, at most 16, of nobody else's.
    pub run: String,
    /// How long one node may take.
    pub limit: Duration,
    /// The image of the Jobs, where it is not to be a sandbox image of each node.
    pub image: Option<String>,
    /// Warn of what ends within so many days.
    pub warn_days: Option<u32>,
}

/// The nodes of a cluster, about to be asked.
#[derive(Clone)]
pub struct ClusterCheck {
    jobs: NodeJobs,
    question: Question,
}

impl ClusterCheck {
    /// By Jobs in `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, question: Question) -> Self {
        let jobs = NodeJobs::new(client, namespace);
        Self { jobs, question }
    }

    /// Asks all of them. A node that cannot be asked is a row of the report. Dropped half-way, it leaves Jobs behind:
    /// [`ClusterCheck::sweep`].
    ///
    /// # Errors
    /// When the API server does not even say which nodes there are.
    pub async fn ask(&self, now: Timestamp) -> Result<ClusterReport, CallError> {
        let nodes = self.jobs.nodes().await?;
        let answers = stream::iter(nodes)
            .map(|node| async move {
                let name = node.metadata.name.clone().unwrap_or_default();
                let answer = self.ask_one(&node, &name).await;
                (name, answer)
            })
            .buffer_unordered(AT_ONCE);
        let answers: Vec<_> = answers.collect().await;
        Ok(ClusterReport::of(now, answers))
    }

    async fn ask_one(&self, node: &Node, name: &str) -> Result<Summary, String> {
        is_able(node)?;
        let ended = self.jobs.run(&self.step(node, name)).await;
        let ended = ended.map_err(|error| chain(&error))?;
        Summary::read(ended.code, &ended.message)
    }

    fn step(&self, node: &Node, name: &str) -> Step {
        let Question {
            run,
            limit,
            image,
            warn_days,
        } = &self.question;
        let program = Layout::system().program().display().to_string();
        let words = [&program, "certs", "check", "--output", SUMMARY].map(str::to_owned);
        let warn = warn_days.map(|days| ["--warn-days".to_owned(), days.to_string()]);
        let image = image.clone();
        Step {
            purpose: PURPOSE,
            run: run.clone(),
            node: name.to_owned(),
            image: image.unwrap_or_else(|| sandbox_image(node, Image::Pause.reference())),
            command: words.into_iter().chain(warn.into_iter().flatten()).collect(),
            program,
            deadline: *limit,
        }
    }

    /// Removes what is left of this run, and says how many Jobs that were.
    ///
    /// # Errors
    /// When the API server refuses or does not answer.
    pub async fn sweep(&self) -> Result<usize, CallError> {
        self.jobs.sweep(&self.question.run).await
    }
}
