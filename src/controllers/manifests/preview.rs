//! What the next pass would do, without doing it: `stratum manifests diff` and `prune --confirm`.

use futures::StreamExt;
use serde::Serialize;
use serde_json::Value;

use super::{Error, IN_FLIGHT, Manifests};
use crate::controllers::cluster;
use crate::controllers::hands;
use crate::reconcilers::manifests::prune::{self, PlanDigest};
use crate::reconcilers::manifests::report::{Refusal, Suspension};
use crate::reconcilers::object::{ObjectId, StackName};

/// What would become of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// It would be created.
    Create,
    /// It would be changed.
    Change,
    /// It would be deleted.
    Prune,
}

/// One line of a preview.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Line {
    /// What would happen.
    pub change: Change,
    /// To which object.
    pub object: String,
    /// The stack; none for a loose file.
    pub stack: Option<String>,
    /// `file:line` of what declares it; none for what nothing declares.
    pub declared: Option<String>,
}

/// What the next pass would do.
#[derive(Clone, Debug, Serialize)]
pub struct Preview {
    /// The node whose folder was read.
    pub node: String,
    /// The folder.
    pub folder: String,
    /// Creates, changes and prunes, in this order.
    pub lines: Vec<Line>,
    /// What would be refused.
    pub refusals: Vec<Refusal>,
    /// Why nothing would be pruned, if something might be.
    pub suspended: Option<Suspension>,
    /// The prune plan of each stack, as a confirmation names it.
    #[serde(skip)]
    pub plans: Vec<(StackName, PlanDigest, usize)>,
}

impl Manifests {
    /// Looks at what the next pass would do, with a dry run of every apply by the API server itself.
    ///
    /// # Errors
    /// When the folder, the cluster or the inventory cannot be read.
    pub async fn preview(&self) -> Result<Preview, Error> {
        let mut observed = self.observe_folder().await?;
        let mut preview = Preview {
            node: self.settings.node.clone(),
            folder: self.settings.folder.display().to_string(),
            lines: Vec::new(),
            refusals: observed
                .refusals
                .iter()
                .chain(&observed.resolution.refusals)
                .cloned()
                .collect(),
            suspended: None,
            plans: Vec::new(),
        };
        let tried: Vec<_> = futures::stream::iter(observed.resolution.wanted.clone())
            .map(|object| {
                let client = self.client.clone();
                async move {
                    let path = cluster::object_path(&object.id, &object.version);
                    let live = cluster::fetch::<Value>(&client, &path, "application/json").await.ok();
                    let tried = hands::try_apply(&client, &object.id, &object.version, &object.body).await;
                    (object, live, tried)
                }
            })
            .buffered(IN_FLIGHT)
            .collect()
            .await;
        for (object, live, tried) in tried {
            let change = match (live, tried) {
                (_, Err(error)) => {
                    preview
                        .refusals
                        .push(super::stages::refusal_of(&object, &error, &observed.listing));
                    continue;
                }
                (Some(live), Ok((_, after))) if settled(&live) == settled(&after) => continue,
                (Some(_), Ok(_)) => Change::Change,
                (None, Ok(_)) => Change::Create,
            };
            preview.lines.push(Line {
                change,
                object: object.id.to_string(),
                stack: object.stack.as_ref().map(ToString::to_string),
                declared: Some(format!("{}:{}", object.file, object.line)),
            });
        }
        let complete = preview.refusals.is_empty();
        match self.prune_record(&observed).await? {
            Err(suspension) => preview.suspended = Some(suspension),
            Ok(record) => {
                let candidates = prune::candidates(&record, &observed.resolution.keep);
                // A person looks now and again: the second, equal read is the pass's own business.
                let gate = self.gate(&observed, true, complete);
                preview.suspended = prune::gate(&candidates, &record, &gate).err();
                for (stack, ids) in prune::by_stack(&candidates) {
                    preview.plans.push((stack.clone(), prune::plan_digest(&ids), ids.len()));
                    preview.lines.extend(ids.into_iter().map(|id| pruned(id, &stack)));
                }
            }
        }
        preview.lines.sort();
        preview.lines.dedup();
        observed.state.settled = None;
        Ok(preview)
    }
}

fn pruned(id: &ObjectId, stack: &StackName) -> Line {
    Line {
        change: Change::Prune,
        object: id.to_string(),
        stack: Some(stack.to_string()),
        declared: None,
    }
}

/// An object without what every write moves, so that two of them can be compared.
fn settled(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    object
}
