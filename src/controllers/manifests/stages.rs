//! Sends the stages of a pass to the API server and remembers the answers.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use super::{Error, IN_FLIGHT, Manifests, Observed};
use crate::controllers::cluster::{self, CallError, CallErrorKind, definitions};
use crate::controllers::hands;
use crate::host::clock;
use crate::host::folder::Listing;
use crate::reconcilers::manifests::apply::Plan;
use crate::reconcilers::manifests::memory::Applied;
use crate::reconcilers::manifests::rank::Stage;
use crate::reconcilers::manifests::report::{Outcome, Refusal, RefusalReason, Report};
use crate::reconcilers::manifests::resolve::Resolved;
use crate::reconcilers::manifests::source::line::line_of;

/// How long a CustomResourceDefinition may take to be served before its objects are tried anyway.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);
/// How often that is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Manifests {
    /// Sends the objects of each stage in parallel, one stage after the other.
    pub(super) async fn apply_stages(
        &self,
        observed: &mut Observed,
        plan: &Plan,
        report: &mut Report,
    ) -> Result<(), Error> {
        for (stage, objects) in &plan.stages {
            let results: Vec<_> = futures::stream::iter(objects.clone())
                .map(|object| {
                    let client = self.client.clone();
                    async move {
                        let result = hands::apply(&client, &object.id, &object.version, &object.body).await;
                        (object, result)
                    }
                })
                .buffer_unordered(IN_FLIGHT)
                .collect()
                .await;
            let mut defined = Vec::new();
            for (object, result) in results {
                let outcome = self.remember(observed, &object, result, report);
                if *stage == Stage::Definitions && matches!(outcome, Outcome::Created | Outcome::Configured) {
                    defined.push(object);
                }
            }
            self.wait_for_definitions(observed, &defined).await?;
        }
        Ok(())
    }

    fn remember(
        &self,
        observed: &mut Observed,
        object: &Resolved,
        result: Result<hands::Applied, CallError>,
        report: &mut Report,
    ) -> Outcome {
        let outcome = match result {
            Ok(hands::Applied {
                created,
                live,
                warnings,
            }) => {
                report.notes.extend(
                    warnings
                        .into_iter()
                        .map(|warning| format!("{}:{}: {}: {warning}", object.file, object.line, object.id)),
                );
                let before = observed
                    .live
                    .get(&object.id)
                    .map(|before| before.resource_version.as_str());
                let outcome = match (created, before) {
                    (true, _) => Outcome::Created,
                    (false, Some(before)) if before == live.resource_version => Outcome::Unchanged,
                    (false, Some(_) | None) => Outcome::Configured,
                };
                if live.terminating {
                    let message = "it is being deleted; it is applied again once it is gone";
                    self.fail(
                        observed,
                        object,
                        object.refusal(RefusalReason::Terminating, message),
                        report,
                    );
                    return Outcome::Refused;
                }
                if let Some(uid) = live.uid {
                    let applied = Applied {
                        digest: object.digest,
                        uid,
                        resource_version: live.resource_version,
                        generation: live.generation,
                    };
                    observed.state.memory.succeed(object.id.clone(), applied);
                }
                outcome
            }
            Err(error) => {
                let refusal = refusal_of(object, &error, &observed.listing);
                self.fail(observed, object, refusal, report);
                return Outcome::Refused;
            }
        };
        report.count(object.stack.as_ref(), outcome);
        outcome
    }

    fn fail(&self, observed: &mut Observed, object: &Resolved, refusal: Refusal, report: &mut Report) {
        observed
            .state
            .memory
            .fail(object.id.clone(), object.digest, refusal.clone(), clock::now());
        report.refuse(refusal);
    }

    /// Waits until the definitions of this pass are served, so that their objects find them. A deadline that passes is no
    /// error: the objects are then refused one by one, with the API server's words, and tried again.
    async fn wait_for_definitions(&self, observed: &mut Observed, applied: &[Arc<Resolved>]) -> Result<(), Error> {
        let defining: Vec<_> = applied
            .iter()
            .filter(|object| object.kind == "CustomResourceDefinition")
            .collect();
        if defining.is_empty() {
            return Ok(());
        }
        let deadline = clock::monotonic() + ESTABLISHED_WITHIN;
        for object in defining {
            let path = cluster::object_path(&object.id, &object.version);
            definitions::until_established(&self.client, &path, deadline).await;
        }
        loop {
            let served = self.discover(&mut observed.state).await?;
            let all = observed
                .resolution
                .defined
                .iter()
                .all(|(version, kind)| served.resolve(version, kind).is_ok());
            if all || clock::monotonic() >= deadline {
                return Ok(());
            }
            clock::sleep(LOOK_AGAIN).await;
        }
    }
}

/// What the API server said of an object, with the line of the field it names.
pub(super) fn refusal_of(object: &Resolved, error: &CallError, listing: &Listing) -> Refusal {
    let reason = match error.kind() {
        CallErrorKind::Unanswered => RefusalReason::Unanswered,
        CallErrorKind::NotFound
        | CallErrorKind::Conflict
        | CallErrorKind::Forbidden
        | CallErrorKind::Invalid
        | CallErrorKind::Refused => RefusalReason::Rejected,
    };
    let message = error.reason();
    let mut refusal = object.refusal(reason, message.clone());
    if let Some(path) = field_of(&message) {
        let text = listing
            .files
            .iter()
            .find(|file| file.path == object.file)
            .and_then(|file| std::str::from_utf8(&file.bytes).ok());
        let document: Option<String> =
            text.map(|text| text.split_inclusive('\n').skip(object.line.saturating_sub(1)).collect());
        refusal.line = document
            .and_then(|document| line_of(&document, object.line, path))
            .or(refusal.line);
    }
    refusal
}

/// The field a refusal is about, in the two forms the API server has: strict validation, and server-side apply.
fn field_of(message: &str) -> Option<&str> {
    if let Some((_, rest)) = message.split_once("unknown field \"") {
        return rest.split('"').next();
    }
    let (_, rest) = message.split_once("): .")?;
    rest.split(": ").next()
}
