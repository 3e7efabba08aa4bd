//! What has become of a Job, by what the cluster says of it.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, Event, Pod, PodStatus};

/// How a step ended on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// What it printed; when that is nothing and it failed, the end of what it wrote to standard error.
    pub message: String,
}

/// How far a Job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Neither; on what it waits.
    Waiting(String),
    /// The program ran to its end.
    Ended(Ended),
    /// It will not run to its end; why.
    Failed(String),
}

/// What the kubelet calls the start of a program that was not there, or not to be run.
const NOT_STARTED: [&str; 2] = ["StartError", "ContainerCannotRun"];
/// Ends that are not the program's own.
const CUT_OFF: [&str; 3] = ["OOMKilled", "ContainerStatusUnknown", "DeadlineExceeded"];
/// What no waiting mends.
const HOPELESS: [&str; 2] = ["ErrImageNeverPull", "InvalidImageName"];

/// How far a Job is, by itself (none when it is gone), its pods, and the Events of both.
#[must_use]
pub fn judge(job: Option<&Job>, pods: &[Pod], events: &[Event]) -> Progress {
    let Some(job) = job else {
        return Progress::Failed("the Job was deleted by somebody else".to_owned());
    };
    let refusal = refusal(job);
    if let Some(("DeadlineExceeded", message)) = refusal {
        return Progress::Failed(format!("it took too long: {message}"));
    }
    // Of several, which a Job without retries does not make, one that has ended says more.
    let told = pods.iter().map(|pod| by_pod(pod, events));
    let told = told.reduce(|one, other| {
        if matches!(one, Progress::Waiting(_)) {
            other
        } else {
            one
        }
    });
    match (told, refusal) {
        (Some(Progress::Waiting(_)) | None, Some((reason, message))) => {
            Progress::Failed(format!("the Job failed: {message} ({reason})"))
        }
        (Some(told), _) => told,
        (None, None) => Progress::Waiting(match last(events, "FailedCreate") {
            Some(why) => format!("its pod cannot be made: {why}"),
            None => "no pod was made for it: does kube-controller-manager run?".to_owned(),
        }),
    }
}

/// Why the Job controller gave it up.
fn refusal(job: &Job) -> Option<(&str, &str)> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let failed = conditions
        .iter()
        .find(|condition| condition.type_ == "Failed" && condition.status == "True")?;
    Some((
        failed.reason.as_deref().unwrap_or_default(),
        failed.message.as_deref().unwrap_or_default(),
    ))
}

fn by_pod(pod: &Pod, events: &[Event]) -> Progress {
    let nothing = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&nothing);
    let containers = status.container_statuses.iter().flatten();
    let state = containers.filter_map(|container| container.state.as_ref()).next();
    match state {
        Some(ContainerState {
            terminated: Some(ended),
            ..
        }) => {
            let reason = ended.reason.as_deref().unwrap_or_default();
            let message = ended.message.clone().unwrap_or_default();
            if NOT_STARTED.contains(&reason) {
                Progress::Failed(format!("the program was not started: {}", line(&message)))
            } else if CUT_OFF.contains(&reason) {
                Progress::Failed(format!("the program was cut off ({reason}): {}", line(&message)))
            } else {
                let code = ended.exit_code;
                Progress::Ended(Ended { code, message })
            }
        }
        _ if status.phase.as_deref() == Some("Failed") => {
            let reason = status.reason.as_deref().unwrap_or("no reason is told");
            let message = line(status.message.as_deref().unwrap_or_default());
            Progress::Failed(format!("the node did not run the pod ({reason}): {message}"))
        }
        Some(ContainerState {
            waiting: Some(waiting), ..
        }) => {
            let reason = waiting.reason.as_deref().unwrap_or_default();
            let message = line(waiting.message.as_deref().unwrap_or_default());
            if HOPELESS.contains(&reason) {
                return Progress::Failed(format!("its container cannot be made ({reason}): {message}"));
            }
            match last(events, "FailedMount") {
                Some(why) if why.contains("hostPath type check failed") => {
                    Progress::Failed(format!("{}: {why}", lacking(&why)))
                }
                Some(why) => Progress::Waiting(format!("the program cannot be mounted: {why}")),
                None if message.is_empty() => Progress::Waiting(format!("its container is not there yet ({reason})")),
                None => Progress::Waiting(format!("its container is not there yet ({reason}): {message}")),
            }
        }
        Some(ContainerState { running: Some(_), .. }) => Progress::Waiting("it runs".to_owned()),
        Some(_) | None => Progress::Waiting("the kubelet of the node has not taken its pod".to_owned()),
    }
}

/// `hostPath type check failed: PATH is not a file`.
fn lacking(why: &str) -> String {
    let path = why.split_whitespace().find(|word| word.starts_with('/'));
    let path = path.unwrap_or("the program");
    format!("{path} is not on this node: `stratum up` puts it there, and on a node of kubeadm's you do")
}

/// What the latest Event of a reason says.
fn last(events: &[Event], reason: &str) -> Option<String> {
    let told = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
    let mut told = told.filter_map(|event| event.message.as_deref());
    told.next_back().map(line)
}

/// In one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
