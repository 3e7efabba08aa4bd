//! From what was seen to what it means.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use super::signed::{key, signer};
use super::{
    Authorities, Bundle, CertStatus, Held, KeySeen, Kind, KubeconfigSays, KubeconfigSeen, Observed, Part, Problem,
    Report, Seen, Served, StagedKey, Verdict,
};
use crate::pki::certificate::{Certificate, Details};
use crate::pki::hexadecimal;
use crate::pki::leaf::{Request, Usage};
use crate::pki::name::AlternativeName;

/// The cluster's authority, which every kubeconfig has to trust.
const ROOT: &str = "ca";

/// The latest moment at which a kubelet renews a certificate of its own, as a share of its life: client-go draws one
/// between 0.7 and 0.9 (`util/certificate/certificate_manager.go`, `nextRotationDeadline` and `jitteryDuration`: the life
/// with a jitter of 0.2, less 0.3 of it).
const KUBELET_RENEWS_BY: (i32, i32) = (9, 10);

const SECONDS_OF_A_DAY: i64 = 24 * 60 * 60;

/// Judges everything at the moment `now`. A certificate is expiring when less is left than `warn`, or without it than the
/// window in which it is renewed.
#[must_use]
pub fn judge(observed: &Observed, now: Timestamp, warn: Option<SignedDuration>) -> Report {
    let Observed {
        node,
        layout,
        certificates,
        renewal,
        rotation,
        staged_key,
    } = observed;
    let known = authorities(certificates);
    let rows: Vec<CertStatus> = certificates
        .iter()
        .map(|seen| row(seen, certificates, &known, now, warn))
        .collect();
    let drifted = |row: &&CertStatus| row.problems.iter().any(|problem| problem.kind == Kind::SubjectDrift);
    let open = rotation.phase != "idle" || rotation.incomplete || *staged_key == StagedKey::Present;
    let worst = rows.iter().map(CertStatus::verdict).max().unwrap_or_default();
    Report {
        node: node.clone(),
        layout: layout.clone(),
        // Certificates know whole seconds only.
        at: Timestamp::from_second(now.as_second()).unwrap_or(now),
        verdict: worst.max(if open { Verdict::RotationOpen } else { Verdict::Fine }),
        subject_drift: rows.iter().filter(drifted).map(|row| row.name.clone()).collect(),
        certificates: rows,
        renewal: renewal.clone(),
        rotation: rotation.clone(),
        staged_key: staged_key.clone(),
    }
}

fn authorities(certificates: &[Seen]) -> Authorities<'_> {
    let mut known = Authorities::new();
    for seen in certificates {
        let (Part::Authority | Part::Trust, Ok(held)) = (seen.part, &seen.content) else {
            continue;
        };
        let all = std::iter::once(&held.certificate).chain(&held.more);
        known.entry(&seen.name).or_default().extend(all);
    }
    known
}

fn row(seen: &Seen, all: &[Seen], known: &Authorities<'_>, now: Timestamp, warn: Option<SignedDuration>) -> CertStatus {
    let (is_ca, rotatable, kubelet) = match seen.part {
        Part::Authority | Part::Trust => (true, false, false),
        Part::Leaf => (false, true, false),
        Part::KubeletClient | Part::KubeletServer => (false, false, true),
    };
    let mut row = CertStatus {
        name: seen.name.clone(),
        not_after: None,
        days_left: None,
        is_ca,
        expiring: false,
        rotatable,
        kubelet,
        renewal_overdue: false,
        not_before: None,
        subject: None,
        signer: seen.signer.clone(),
        externally_managed: false,
        issuer_key_id: None,
        serial: None,
        path: seen.path.clone(),
        served_at: Vec::new(),
        problems: Vec::new(),
    };
    let held = match &seen.content {
        Ok(held) => held,
        Err(reason) => {
            row.problems.push(Problem::new(Kind::Unreadable, reason));
            return row;
        }
    };
    let details = held.certificate.details();
    let left = details.not_after.duration_since(now);
    row.not_before = Some(details.not_before);
    row.not_after = Some(details.not_after);
    row.days_left = Some(left.as_secs().div_euclid(SECONDS_OF_A_DAY));
    row.expiring = warn.map_or_else(|| held.certificate.is_due(now), |warn| left <= warn);
    row.renewal_overdue = kubelet && is_overdue(seen, details, now);
    row.subject = Some(subject(details));
    row.issuer_key_id = details.authority_key_id.as_deref().map(hexadecimal);
    row.serial = Some(hexadecimal(&details.serial));
    let managing = seen.signer.as_deref().unwrap_or(if is_ca { &seen.name } else { "" });
    row.externally_managed = all.iter().any(|other| other.name == managing && lacks_key(other));
    let shows = |served: &&Served| {
        served
            .shown
            .as_ref()
            .is_ok_and(|shown| shown.der() == held.certificate.der())
    };
    row.served_at = seen
        .served
        .iter()
        .filter(shows)
        .map(|served| served.at.to_string())
        .collect();
    row.problems = problems(seen, held, known, now);
    row
}

/// One that the kubelet made for itself it never renews.
fn is_overdue(seen: &Seen, details: &Details, now: Timestamp) -> bool {
    let life = details.not_after.duration_since(details.not_before);
    let (part, whole) = KUBELET_RENEWS_BY;
    seen.signer.is_some() && now > details.not_before + life * part / whole
}

fn lacks_key(authority: &Seen) -> bool {
    match (authority.part, &authority.content) {
        (Part::Trust, _) => true,
        (_, Ok(held)) => held.key == KeySeen::Absent,
        (_, Err(_)) => false,
    }
}

fn subject(details: &Details) -> String {
    let organizations = details
        .organizations
        .iter()
        .map(|organization| format!("O={organization}"));
    let name = details.common_name.iter().map(|name| format!("CN={name}"));
    organizations.chain(name).collect::<Vec<_>>().join(", ")
}

fn problems(seen: &Seen, held: &Held, known: &Authorities<'_>, now: Timestamp) -> Vec<Problem> {
    let mut found = Vec::new();
    let details = held.certificate.details();
    if now > details.not_after {
        found.push(Problem::new(Kind::Expired, format!("on {}", details.not_after)));
    }
    if now < details.not_before {
        found.push(Problem::new(Kind::NotYetValid, format!("until {}", details.not_before)));
    }
    match seen.part {
        Part::Authority => authority(held, &mut found),
        Part::Trust => {}
        Part::Leaf | Part::KubeletClient | Part::KubeletServer => signer(seen, held, known, now, &mut found),
    }
    key(seen.part, held, &mut found);
    match &seen.expected {
        Some(request) => expected(details, request, &mut found),
        None => {
            usages(details, &seen.usages, &mut found);
            let names = seen.addresses.iter().map(|address| AlternativeName::ip(*address));
            missing(details, names, &mut found);
        }
    }
    found.extend(
        seen.served
            .iter()
            .filter_map(|served| differs(served, &held.certificate)),
    );
    if let Some(kubeconfig) = &seen.kubeconfig {
        judge_kubeconfig(kubeconfig, known, &mut found);
    }
    if let (Part::Authority, Some(bundle)) = (seen.part, &seen.bundle) {
        judge_bundle(bundle, &held.certificate, &seen.name, &mut found);
    }
    found
}

/// A signer's file holds one certificate, or kube-controller-manager ends at once.
fn authority(held: &Held, found: &mut Vec<Problem>) {
    if !held.more.is_empty() {
        let count = held.more.len() + 1;
        found.push(Problem::new(
            Kind::Several,
            format!("{count} in a signer's file, which may hold one"),
        ));
    }
    if !held.certificate.details().may_sign {
        found.push(Problem::new(
            Kind::MayNotSign,
            "basic constraints or key usage forbid it",
        ));
    }
}

fn expected(details: &Details, request: &Request, found: &mut Vec<Problem>) {
    let Request {
        subject: wanted,
        alternative_names,
        usages: needed,
        lifetime: _,
    } = request;
    let same =
        details.common_name.as_ref() == Some(&wanted.common_name) && details.organizations == wanted.organizations;
    if !same {
        let text = format!("it is for {}, this release makes it for {wanted}", subject(details));
        found.push(Problem::new(Kind::SubjectDrift, text));
    }
    usages(details, needed, found);
    missing(details, alternative_names.iter().cloned(), found);
}

fn usages(details: &Details, needed: &[Usage], found: &mut Vec<Problem>) {
    for usage in needed {
        let (has, what) = match usage {
            Usage::Server => (details.server_auth, "a server"),
            Usage::Client => (details.client_auth, "a client"),
        };
        if !has {
            found.push(Problem::new(Kind::MissingUsage, format!("it may not stand for {what}")));
        }
    }
}

/// Names are compared as clients do: addresses by their bytes, where one that is mapped into IPv6 is none of IPv4, and host
/// names in any case.
fn missing(details: &Details, names: impl Iterator<Item = AlternativeName>, found: &mut Vec<Problem>) {
    let has = |wanted: &AlternativeName| {
        let mut present = details.alternative_names.iter();
        match wanted {
            AlternativeName::Dns(name) => {
                present.any(|one| matches!(one, AlternativeName::Dns(one) if one.eq_ignore_ascii_case(name)))
            }
            AlternativeName::Ip(address) => {
                present.any(|one| matches!(one, AlternativeName::Ip(one) if one == address))
            }
            AlternativeName::Other(_) => true,
        }
    };
    let lacking: Vec<String> = names.filter(|name| !has(name)).map(|name| name.to_string()).collect();
    if lacking.is_empty() {
        return;
    }
    let mapped = details
        .alternative_names
        .iter()
        .any(|one| matches!(one, AlternativeName::Ip(IpAddr::V6(six)) if six.to_ipv4_mapped().is_some()));
    let hint = if mapped {
        " (an IPv4 address mapped into IPv6 counts for none)"
    } else {
        ""
    };
    found.push(Problem::new(Kind::MissingName, format!("{}{hint}", lacking.join(", "))));
}

fn differs(served: &Served, file: &Certificate) -> Option<Problem> {
    match &served.shown {
        Ok(shown) if shown.der() == file.der() => None,
        Ok(shown) => Some(Problem::new(
            Kind::ServedDiffers,
            format!("{} serves serial {}", served.at, hexadecimal(&shown.details().serial)),
        )),
        Err(reason) => Some(Problem::new(Kind::NotServed, reason)),
    }
}

fn judge_kubeconfig(kubeconfig: &KubeconfigSeen, known: &Authorities<'_>, found: &mut Vec<Problem>) {
    let path = &kubeconfig.path;
    let (elsewhere, trusts) = match &kubeconfig.says {
        KubeconfigSays::Denied => {
            found.push(Problem::new(Kind::KubeconfigDenied, path));
            return;
        }
        KubeconfigSays::Unusable(reason) => {
            found.push(Problem::new(Kind::KubeconfigUnreadable, reason));
            return;
        }
        KubeconfigSays::Client { elsewhere, trusts } => (elsewhere, trusts),
    };
    if let Some(elsewhere) = elsewhere {
        found.push(Problem::new(Kind::KubeconfigElsewhere, format!("{path} {elsewhere}")));
    }
    let root = known.get(ROOT).and_then(|certificates| certificates.first());
    match (trusts, root) {
        (Some(Err(reason)), _) => found.push(Problem::new(Kind::KubeconfigTrust, format!("{path}: {reason}"))),
        (Some(Ok(trusted)), Some(root)) if !trusted.iter().any(|one| one.der() == root.der()) => {
            let renewed = trusted.iter().any(|one| one.public_key_der() == root.public_key_der());
            // The same key in another certificate is a renewal, which verifies all the same.
            if !renewed {
                found.push(Problem::new(
                    Kind::KubeconfigTrust,
                    format!("{path} does not trust {ROOT}"),
                ));
            }
        }
        (Some(Ok(_)) | None, _) => {}
    }
}

fn judge_bundle(bundle: &Bundle, authority: &Certificate, name: &str, found: &mut Vec<Problem>) {
    match &bundle.content {
        Err(reason) => found.push(Problem::new(Kind::BundleUnreadable, reason)),
        Ok(trusted) if trusted.iter().any(|one| one.der() == authority.der()) => {}
        Ok(_) => found.push(Problem::new(
            Kind::NotInBundle,
            format!("{} does not hold {name}", bundle.path),
        )),
    }
}
