//! What every kubelet's request has to look like, whoever sends it and whatever for.

use std::collections::BTreeSet;

use super::{NODES, Reason, Request};
use crate::pki::signing_request::SigningRequest;

/// What a certificate may be used for, as a request spells it.
pub(super) struct Usages {
    /// All of them must be asked for.
    needed: [&'static str; 2],
    /// Both forms, for people.
    words: &'static str,
}

/// RSA keys may encipher keys too, others cannot; kubelets ask for it or not by the kind of their key.
const OPTIONAL: &str = "key encipherment";

pub(super) const SERVING: Usages = Usages {
    needed: ["digital signature", "server auth"],
    words: "\"digital signature\" and \"server auth\", and may be \"key encipherment\"",
};
pub(super) const CLIENT: Usages = Usages {
    needed: ["digital signature", "client auth"],
    words: "\"digital signature\" and \"client auth\", and may be \"key encipherment\"",
};

impl Usages {
    fn check(&self, found: &[String]) -> Result<(), Reason> {
        let distinct: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        let fits = distinct.len() == found.len()
            && self.needed.iter().all(|usage| distinct.contains(usage))
            && distinct
                .iter()
                .all(|usage| self.needed.contains(usage) || *usage == OPTIONAL);
        if fits {
            Ok(())
        } else {
            Err(Reason::Usages {
                found: found.to_vec(),
                wanted: self.words,
            })
        }
    }
}

/// Reads the PKCS#10 and checks all that does not depend on the cluster.
pub(super) fn check(request: &Request, usages: &Usages) -> Result<SigningRequest, Reason> {
    usages.check(&request.usages)?;
    let signing = SigningRequest::from_pem(&request.pem).map_err(|error| Reason::Unreadable(error.to_string()))?;
    if signing.organizations != [NODES] {
        return Err(Reason::Organizations(signing.organizations));
    }
    let asks = &signing.asks;
    let server = usages.needed.contains(&"server auth");
    let foreign = [
        (asks.authority, "to be an authority"),
        (asks.client_auth && server, "the purpose of a client"),
        (asks.server_auth && !server, "the purpose of a server"),
    ];
    if let Some((_, what)) = foreign.iter().find(|(asked, _)| *asked) {
        return Err(Reason::Extension((*what).to_owned()));
    }
    if let Some(other) = asks.other.first() {
        return Err(Reason::Extension(other.clone()));
    }
    Ok(signing)
}

/// The subject's only CN.
pub(super) fn common_name(signing: &SigningRequest) -> Result<&str, Reason> {
    match signing.common_names.as_slice() {
        [only] => Ok(only),
        [] => Err(Reason::NodeName(String::new())),
        several => Err(Reason::NodeName(several.join(", "))),
    }
}
