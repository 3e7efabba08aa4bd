//! What an API server was asked, from its own audit log: exact, by user, and without what it asks of itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A user whose requests are not logged: who fills a cluster.
pub(crate) const LOADER: &str = "loader";

/// Everything that is not the API server's own business and not the loader's. A watch when it
/// begins, too.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:apiserver, system:anonymous, loader]
- level: Metadata
  verbs: [watch]
- level: Metadata
  omitStages: [ResponseStarted]
";

/// One line of the log.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    stage: String,
    pub(crate) verb: String,
    #[serde(rename = "requestURI")]
    pub(crate) uri: String,
    user: User,
    #[serde(default)]
    pub(crate) object_ref: ObjectReference,
    response_status: Option<Status>,
    /// What was sent, where the policy keeps it.
    #[serde(default)]
    pub(crate) request_object: Value,
    /// When the request came.
    #[serde(rename = "requestReceivedTimestamp")]
    pub(crate) received: Timestamp,
    /// When the answer was given.
    #[serde(rename = "stageTimestamp")]
    pub(crate) answered: Timestamp,
}

/// What the request was about; nothing for what is no resource.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectReference {
    pub(crate) resource: String,
    subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl Event {
    /// Who asked.
    pub(crate) fn user(&self) -> &str {
        &self.user.username
    }

    /// Whether the answer was a success.
    pub(crate) fn succeeded(&self) -> bool {
        let code = self.response_status.as_ref().map(|status| status.code);
        code.is_some_and(|code| (200..300).contains(&code))
    }

    /// Each request is counted once: a watch when it begins, everything else when it ends.
    fn counts(&self) -> bool {
        self.stage
            == if self.verb == "watch" {
                "ResponseStarted"
            } else {
                "ResponseComplete"
            }
    }
}

/// Reads the log as it grows.
pub(crate) struct Log {
    path: PathBuf,
    offset: u64,
    requests: Requests,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            requests: Requests::default(),
        }
    }

    /// How long it is now.
    pub(crate) fn length(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    /// What has come since the last time.
    pub(crate) fn follow(&mut self) -> Result<Vec<Event>> {
        // It is made with the first request.
        let Ok(mut file) = File::open(&self.path) else {
            return Ok(Vec::new());
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::new(file);
        let mut events = Vec::new();
        let mut line = String::new();
        loop {
            line.clear();
            let read = reader.read_line(&mut line)?;
            // A line without its end is still being written.
            if read == 0 || !line.ends_with('\n') {
                return Ok(events);
            }
            self.offset += u64::try_from(read)?;
            let event: Event = serde_json::from_str(&line).context("a line of the audit log")?;
            if event.counts() {
                self.requests.add(&event);
                events.push(event);
            }
        }
    }

    /// All requests so far.
    pub(crate) fn requests(&mut self) -> Result<Requests> {
        self.follow()?;
        Ok(self.requests.clone())
    }
}

/// Answered requests by verb and resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(BTreeMap<(String, String), u64>);

impl Requests {
    fn add(&mut self, event: &Event) {
        let about = &event.object_ref;
        let what = match (about.resource.is_empty(), about.subresource.is_empty()) {
            (true, _) => event.uri.split('?').next().unwrap_or_default().to_owned(),
            (false, true) => about.resource.clone(),
            (false, false) => format!("{}/{}", about.resource, about.subresource),
        };
        *self.0.entry((event.verb.clone(), what)).or_default() += 1;
    }

    /// What came after `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let since = self.0.iter().filter_map(|(key, count)| {
            let more = count.saturating_sub(before.0.get(key).copied().unwrap_or_default());
            (more > 0).then(|| (key.clone(), more))
        });
        Self(since.collect())
    }

    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// GETs of single objects.
    pub(crate) fn object_gets(&self) -> u64 {
        self.count(|verb, what| verb == "get" && !what.starts_with('/'))
    }

    /// GETs of what is no object: discovery, and the documents an API server serves.
    pub(crate) fn discovery(&self) -> u64 {
        self.count(|_, what| what.starts_with('/'))
    }

    /// Those of a verb as the log spells it: `patch` (an apply too), `create`, `update`, `delete`, `list`, `watch`.
    pub(crate) fn verb(&self, wanted: &str) -> u64 {
        self.count(|verb, _| verb == wanted)
    }

    /// Those of a verb about one resource, such as `update` and `certificatesigningrequests/approval`.
    pub(crate) fn of(&self, wanted: &str, about: &str) -> u64 {
        self.count(|verb, what| verb == wanted && what == about)
    }

    fn count(&self, wanted: impl Fn(&str, &str) -> bool) -> u64 {
        self.0
            .iter()
            .filter(|((verb, what), _)| wanted(verb, what))
            .map(|(_, count)| count)
            .sum()
    }
}

impl std::fmt::Display for Requests {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, ((verb, what), count)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(formatter, "{separator}{count} {verb} {what}")?;
        }
        Ok(())
    }
}
