//! What the staging of bundled stacks records in cluster state: the desired generation and the cluster inputs.

use super::store::{Store, StoreError};
use crate::reconcilers::inventory::desired::{self, ClusterInputs, Next, Provenance};
use crate::reconcilers::inventory::records::Documents;
use crate::reconcilers::object::StackName;

/// Records a staged set, with the inputs it is filled in with, in one write; what became of the record.
///
/// Inputs of a binary that is refused as older are not written either.
///
/// # Errors
/// See [`StoreError`].
pub async fn record_desired(
    store: &Store,
    stacks: &[StackName],
    digest: &str,
    provenance: &Provenance,
    inputs: Option<&ClusterInputs>,
) -> Result<Next, StoreError> {
    let mut next = Next::Unchanged;
    let change = |documents: &mut Documents| {
        next = desired::next(
            documents.desired.as_ref(),
            stacks.to_vec(),
            digest.to_owned(),
            provenance.clone(),
        );
        match &next {
            Next::RefusedOlder { .. } => return Ok(()),
            Next::Unchanged => {}
            Next::Write(desired) => documents.desired = Some(desired.clone()),
        }
        if let Some(inputs) = inputs {
            documents.cluster_inputs = Some(inputs.clone());
        }
        Ok(())
    };
    store.commit(None, None, change).await?;
    Ok(next)
}

/// Records the cluster inputs alone.
///
/// # Errors
/// See [`StoreError`].
pub async fn record_cluster_inputs(store: &Store, inputs: &ClusterInputs) -> Result<(), StoreError> {
    let change = |documents: &mut Documents| {
        documents.cluster_inputs = Some(inputs.clone());
        Ok(())
    };
    store.commit(None, None, change).await.map(|_| ())
}
