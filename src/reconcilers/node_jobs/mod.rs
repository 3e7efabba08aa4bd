//! Something is run on another node of the cluster, by a Job that is pinned to it: the Job as a value, and what its pod says.
//!
//! Which program with which arguments is the caller's; what its exit code and its message mean is the caller's too. The pod is
//! privileged and has the sandbox image, which every node has and which holds no shell: its one file of use is this program,
//! mounted from the node, which enters the namespaces of the node's process 1 and becomes the wanted program there. What that
//! program prints is the pod's termination message; when it prints nothing and fails, its last words on standard error are.

mod progress;
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerImage, Node};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::pki::hexadecimal;

pub use progress::{Ended, Progress, judge};

/// The label with which Jobs of one run are found.
pub const RUN_LABEL: &str = "stratum.ciq.com/run";
/// The label that says what a Job is for.
pub const PURPOSE_LABEL: &str = "stratum.ciq.com/node-job";
/// The annotation with the whole name of the node.
pub const NODE_ANNOTATION: &str = "stratum.ciq.com/node";

/// The longest message a container may leave (Kubernetes, "Determine the Reason for Pod Failure"): of a longer one the kubelet
/// keeps the end.
pub const LONGEST_MESSAGE: usize = 4096;

/// Where the node's program is in the container.
const MOUNTED: &str = "/stratum";
const MESSAGE_FILE: &str = "/dev/termination-log";
/// How long a Job that nobody looks after any more may go on after its step's own deadline.
const GRACE: Duration = Duration::from_secs(15);
/// How long a finished Job stays when whoever made it was killed.
const KEPT: Duration = Duration::from_secs(300);

/// What is to be run on a node, and under which name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What for, in a word of at most 12 characters that fits a name: `certs-check`.
    pub purpose: &'static str,
    /// Which run it belongs to, in at most 16 characters that fit a name. The same step of the same run has the same name,
    /// so that one that resumes finds it.
    pub run: String,
    /// The node.
    pub node: String,
    /// The image of the container, which the node has: [`sandbox_image`].
    pub image: String,
    /// Where this program is on the node.
    pub program: String,
    /// The program of the node that is run, and its arguments.
    pub command: Vec<String>,
    /// How long it may take, the start of the pod included.
    pub deadline: Duration,
}

impl Step {
    /// The name of its Job: purpose, run, what of the node's name is legible in a short one, and a digest of the whole.
    #[must_use]
    pub fn name(&self) -> String {
        let legible = self.node.chars().map(|character| match character {
            'a'..='z' | '0'..='9' => character,
            _ => '-',
        });
        let legible: String = legible.take(14).collect();
        let digest = hexadecimal(&Sha256::digest(&self.node));
        // The digest keeps two nodes apart that read the same here. With 63 characters at most, it is a label as well.
        format!("stratum-{}-{}-{legible}-{}", self.purpose, self.run, &digest[..8])
    }

    /// The Job.
    #[must_use]
    pub fn job(&self) -> Value {
        let labels = json!({
            "app.kubernetes.io/managed-by": "stratum",
            PURPOSE_LABEL: self.purpose,
            RUN_LABEL: self.run,
        });
        let annotations = json!({NODE_ANNOTATION: self.node});
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": self.name(), "labels": labels, "annotations": annotations},
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": (self.deadline + GRACE).as_secs(),
                "ttlSecondsAfterFinished": KEPT.as_secs(),
                "template": {
                    "metadata": {"labels": labels, "annotations": annotations},
                    "spec": self.pod(),
                },
            },
        })
    }

    fn pod(&self) -> Value {
        json!({
            // Not by way of the scheduler: a node that is cordoned or tainted has certificates too.
            "nodeName": self.node,
            "tolerations": [{"operator": "Exists"}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "hostPID": true,
            "hostNetwork": true,
            "dnsPolicy": "Default",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "containers": [{
                "name": "step",
                "image": self.image,
                "imagePullPolicy": "Never",
                "command": self.words(),
                // The image's own user is nobody.
                "securityContext": {"privileged": true, "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": false},
                "terminationMessagePath": MESSAGE_FILE,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [{"name": "program", "mountPath": MOUNTED, "readOnly": true}],
            }],
            // `File`: of a node without it the kubelet says so, and makes no folder in its place.
            "volumes": [{"name": "program", "hostPath": {"path": self.program, "type": "File"}}],
        })
    }

    fn words(&self) -> Vec<&str> {
        let own = [MOUNTED, "on-host", "--message", MESSAGE_FILE, "--"];
        own.into_iter().chain(self.command.iter().map(String::as_str)).collect()
    }

    /// Whether a Job of this name does this and nothing else: an earlier try of the same run made it.
    #[must_use]
    pub fn is_done_by(&self, job: &Job) -> bool {
        let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        pod.is_some_and(|pod| {
            let command = pod.containers.first().and_then(|container| container.command.as_ref());
            let same = |command: &Vec<String>| command.iter().map(String::as_str).eq(self.words());
            pod.node_name.as_deref() == Some(&self.node) && command.is_some_and(same)
        })
    }
}

/// The label selector of all Jobs of a run, and of their pods.
#[must_use]
pub fn of_run(run: &str) -> String {
    format!("{RUN_LABEL}={run}")
}

/// The image to take on a node: a sandbox image that its kubelet says it has, which on a node that this program did not make may
/// be of another version or registry; otherwise `usual`. A kubelet tells the 50 largest images only.
#[must_use]
pub fn sandbox_image(node: &Node, usual: &str) -> String {
    let images = node.status.as_ref().and_then(|status| status.images.as_ref());
    let images: &[ContainerImage] = images.map_or(&[], Vec::as_slice);
    let names = || images.iter().flat_map(|image| image.names.iter().flatten());
    let is_sandbox = |name: &&String| {
        let tagged = name.rsplit('/').next().unwrap_or_default();
        tagged.starts_with("pause:")
    };
    match names().find(|name| *name == usual) {
        Some(_) => usual.to_owned(),
        None => names().find(is_sandbox).cloned().unwrap_or_else(|| usual.to_owned()),
    }
}

/// Whether anything can be run on a node now.
///
/// # Errors
/// Why not.
pub fn is_able(node: &Node) -> Result<(), String> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|condition| condition.type_ == "Ready"));
    match ready {
        None => Err("the node is not Ready: its kubelet has never reported".to_owned()),
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => {
            let since = ready.last_transition_time.as_ref();
            let since = since.map(|at| format!(" since {}", at.0)).unwrap_or_default();
            let why = ready.message.as_deref().unwrap_or_default();
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            Err(format!("the node is not Ready{since}{why}"))
        }
    }
}
