//! Whether a machine that trusts nothing yet may believe what it was told.
//!
//! 1. The signature under its token shows that whoever published `cluster-info` knows the token.
//! 2. A pin shows that an authority in it is the one it was told to find: a token may be known to others, for instance to
//!    every machine that joined with it.
//! 3. The server shows, by its certificate, that it belongs to a *pinned* authority. The others in the bundle count only
//!    once a server that proved itself so repeats them: whoever knows the token can sign a bundle that holds the right
//!    authority and one of his own beside it. kubeadm trusts the whole bundle as soon as one pin fits, which makes the pin
//!    worth nothing against just those it is for.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::cluster_info::{self, KUBECONFIG, Malformed, Published};
use crate::pki::BACKDATE;
use crate::pki::certificate::Certificate;
use crate::pki::jws;
use crate::pki::pin::{self, Pin};
use crate::reconcilers::bootstrap_token::{BootstrapToken, TokenId};

/// Why `cluster-info` is not believed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It holds nothing to believe.
    #[error(
        "cluster-info has no kubeconfig: it is being written, or somebody emptied it; 'stratum up' on a controller publishes it again"
    )]
    Empty,
    /// It is not signed under the token.
    #[error(
        "cluster-info is not signed for token {id}: the token expired, was deleted or is mistyped; make another one with 'stratum token create' on a controller ('stratum token list' shows those there are)"
    )]
    NotSigned {
        /// The token.
        id: TokenId,
    },
    /// The signature is not that of the token.
    #[error(
        "the signature of cluster-info for token {id} was not made with this token{}: its secret half is mistyped, or somebody between here and the API server changed what it says; make another token if the first is ruled out",
        by.as_ref().map(|by| format!(" but with {by}")).unwrap_or_default()
    )]
    OtherSignature {
        /// The token.
        id: TokenId,
        /// The key that the signature names, when that is another one.
        by: Option<String>,
    },
    /// Properly signed, but not usable.
    #[error("what cluster-info says cannot be used; 'stratum up' on a controller publishes it again")]
    Malformed(#[source] Malformed),
    /// Another authority than the one it shall find.
    #[error(
        "the CA of this cluster is {}, and none of the given hashes is its: it is another cluster, its CA was replaced since the command was printed, or somebody stands between; compare with 'stratum token create' on a controller",
        Listed(found)
    )]
    NotPinned {
        /// The authorities there are.
        found: Vec<Pin>,
    },
    /// The pinned authorities are of another time.
    #[error(
        "the cluster's CA is valid from {not_before} to {not_after}, and this machine's clock says {now}: set this clock if it is wrong, otherwise the CA has to be replaced first"
    )]
    AuthorityOutOfDate {
        /// First second of its life.
        not_before: Timestamp,
        /// Last second of its life.
        not_after: Timestamp,
        /// This machine's clock.
        now: Timestamp,
    },
}

/// Believed, as far as token and pins go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Believed {
    /// What it says.
    pub published: Published,
    /// The authorities in it that are pinned and in date: who may speak for the cluster.
    pub pinned: Vec<Certificate>,
}

/// Judges the data of the ConfigMap. The signature comes first: nothing else of it is looked into before.
///
/// # Errors
/// Says what is wrong and what to do.
pub fn verify(
    data: &BTreeMap<String, String>,
    token: &BootstrapToken,
    pins: &[Pin],
    now: Timestamp,
) -> Result<Believed, Refusal> {
    let content = data.get(KUBECONFIG).filter(|text| !text.trim().is_empty());
    let content = content.ok_or(Refusal::Empty)?;
    let id = token.id();
    let signature = data.get(&cluster_info::signature_key(id));
    let signature = signature.ok_or_else(|| Refusal::NotSigned { id: id.clone() })?;
    let secret = token.expose_secret().as_bytes();
    if !jws::is_valid(signature, secret, id.as_str(), content.as_bytes()) {
        // Somebody else's text: only another token's id is repeated.
        let by = jws::key_id(signature).and_then(|by| by.parse::<TokenId>().ok());
        let by = by.filter(|by| by != id).map(|by| format!("that of token {by}"));
        return Err(Refusal::OtherSignature { id: id.clone(), by });
    }
    let published = cluster_info::parse(content).map_err(Refusal::Malformed)?;
    let mut pinned = pin::pinned(&published.bundle, pins);
    let Some(first) = pinned.first() else {
        return Err(Refusal::NotPinned {
            found: pin::pins(&published.bundle),
        });
    };
    let out_of_date = Refusal::AuthorityOutOfDate {
        not_before: first.details().not_before,
        not_after: first.details().not_after,
        now,
    };
    pinned.retain(|authority| authority.is_in_date(now));
    if pinned.is_empty() {
        return Err(out_of_date);
    }
    Ok(Believed { published, pinned })
}

/// Why a server is not taken for one of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerRefusal {
    /// Its certificate is of another time.
    #[error(
        "the certificate of {endpoint} is valid from {not_before} to {not_after}, this machine's clock says {now}{}: set the clock that is wrong, or renew the certificate on that controller ('stratum certs renew')",
        Theirs(*theirs)
    )]
    OutOfDate {
        /// The server.
        endpoint: String,
        /// First second of its life.
        not_before: Timestamp,
        /// Last second of its life.
        not_after: Timestamp,
        /// This machine's clock.
        now: Timestamp,
        /// The server's clock.
        theirs: Option<Timestamp>,
    },
    /// Its certificate is for other names.
    #[error(
        "the certificate of {endpoint} is not for that name but for {}: join by one of these, or add the name with 'stratum server --san' there",
        names.join(", ")
    )]
    OtherName {
        /// The server.
        endpoint: String,
        /// What it is for.
        names: Vec<String>,
    },
    /// It belongs to an authority of the bundle that is not pinned.
    #[error(
        "{endpoint} belongs to CA {pin}, which cluster-info names but --ca-cert-hash does not: the CA is being replaced, or whoever knows the token put it there; if a controller shows the same hash ('stratum token create', or openssl on its ca-bundle.crt), give it as well"
    )]
    NotPinned {
        /// The server.
        endpoint: String,
        /// Its authority.
        pin: Pin,
    },
    /// It belongs to nobody that is known.
    #[error(
        "the certificate of {endpoint} was not signed by the CA that cluster-info names: something between here and the API servers answers in their place (a proxy, or an attacker), or the endpoint is of another cluster"
    )]
    Foreign {
        /// The server.
        endpoint: String,
    },
}

/// What is known of a server whose certificate did not verify.
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    /// `HOST:PORT`
    pub endpoint: &'a str,
    /// What it showed.
    pub certificate: &'a Certificate,
    /// Its clock, as far as it told.
    pub clock: Option<Timestamp>,
}

/// Says why a server that did not verify at `now` against the pinned authorities of `bundle` did not, from what it showed.
/// What belongs to none of them is foreign, whatever else is wrong with it.
#[must_use]
pub fn explain(server: Server<'_>, bundle: &[Certificate], pins: &[Pin], now: Timestamp) -> ServerRefusal {
    let endpoint = server.endpoint.to_owned();
    let details = server.certificate.details();
    let signers = bundle
        .iter()
        .filter(|authority| server.certificate.check_issued_by(authority).is_ok());
    let signers: Vec<Pin> = signers.map(Pin::of).collect();
    let Some(signer) = signers.first() else {
        return ServerRefusal::Foreign { endpoint };
    };
    if !signers.iter().any(|signer| pins.contains(signer)) {
        return ServerRefusal::NotPinned { endpoint, pin: *signer };
    }
    if !server.certificate.is_in_date(now) {
        return ServerRefusal::OutOfDate {
            endpoint,
            not_before: details.not_before,
            not_after: details.not_after,
            now,
            theirs: server.clock,
        };
    }
    ServerRefusal::OtherName {
        endpoint,
        names: details.alternative_names.iter().map(ToString::to_string).collect(),
    }
}

/// The clocks of two machines that cannot work together: each would take the other's fresh certificates and tokens for
/// ones of another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this machine's clock says {ours}, and that of the API server {theirs}: tokens and certificates made there are of another time here; set the clock that is wrong (NTP on both), then join again"
)]
pub struct ClocksDiffer {
    /// This machine's clock.
    pub ours: Timestamp,
    /// The server's.
    pub theirs: Timestamp,
}

/// How far the server's clock is ahead of ours. Certificates begin [`BACKDATE`] before they are made, so that much is
/// borne.
///
/// # Errors
/// When it is more, in either direction.
pub fn check_clocks(ours: Timestamp, theirs: Timestamp) -> Result<SignedDuration, ClocksDiffer> {
    let difference = theirs.duration_since(ours);
    if difference.abs() > BACKDATE {
        return Err(ClocksDiffer { ours, theirs });
    }
    Ok(difference)
}

struct Listed<'a>(&'a [Pin]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, pin) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(formatter, "{separator}{pin}")?;
        }
        Ok(())
    }
}

struct Theirs(Option<Timestamp>);

impl fmt::Display for Theirs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(theirs) => write!(formatter, " and that of the server {theirs}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
