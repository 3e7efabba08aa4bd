//! Leaves that an earlier release issued to somebody this release issues to nobody.

use super::super::layout::Layout;
use super::super::node_state::NodeState;
use super::super::pki_folder;
use super::{Error, Place, kubelet_client, leaves};
use crate::pki::certificate::Certificate;

/// The names of the leaves on disk whose subject is not the one this release gives them, in the order of [`leaves`]: one
/// that is still in `system:masters`, for example. A leaf that is not there has not drifted.
///
/// # Errors
/// When one that is there cannot be read.
pub fn subject_drift(layout: &Layout, state: &NodeState) -> Result<Vec<String>, Error> {
    let mut drifted = Vec::new();
    for leaf in leaves(state) {
        let path = leaf.certificate_file(layout);
        let Some(pem) = pki_folder::read(&path)? else {
            continue;
        };
        let parsed = match leaf.place {
            Place::Pair => Certificate::from_pem(&pem),
            Place::KubeletStore => kubelet_client::certificate(&pem),
        };
        let certificate = parsed.map_err(|source| Error::Certificate { path, source })?;
        let (details, subject) = (certificate.details(), &leaf.request.subject);
        let same = details.common_name.as_ref() == Some(&subject.common_name)
            && details.organizations == subject.organizations;
        if !same {
            drifted.push(leaf.name.to_owned());
        }
    }
    Ok(drifted)
}
