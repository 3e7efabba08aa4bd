//! Who signed a certificate, and whether the key beside it is its own.

use jiff::Timestamp;
use x509_parser::error::X509Error;

use super::{Authorities, Bundle, Held, KeySeen, Kind, Part, Problem, Seen};
use crate::pki::certificate::{self, Certificate};

/// Looks for the authority that should have signed it, by key and signature. Nothing is said of one that is not here.
pub(super) fn signer(seen: &Seen, held: &Held, known: &Authorities<'_>, now: Timestamp, found: &mut Vec<Problem>) {
    let Some(name) = seen.signer.as_deref() else {
        return;
    };
    let mut signers: Vec<&Certificate> = known.get(name).cloned().unwrap_or_default();
    // In a migration of its authority a kubelet may be ahead of this machine.
    if let (Part::KubeletClient, Some(Bundle { content: Ok(more), .. })) = (seen.part, &seen.bundle) {
        signers.extend(more);
    }
    if signers.is_empty() {
        return;
    }
    match issuer(&held.certificate, &held.more, &signers) {
        Ok(Some(signer)) if now > signer.details().not_after => {
            let ended = signer.details().not_after;
            found.push(Problem::new(Kind::SignerExpired, format!("{name} expired on {ended}")));
        }
        Ok(Some(_)) => {}
        Ok(None) => {
            let reason = held.certificate.check_issued_by(signers[0]).err();
            let reason = reason.map(|error| error.to_string()).unwrap_or_default();
            found.push(Problem::new(Kind::WrongSigner, format!("not {name}: {reason}")));
        }
        Err(()) => found.push(Problem::new(
            Kind::Unsupported,
            format!("the signature of {name} is of a kind this program cannot verify"),
        )),
    }
}

/// Which of the signers issued it, itself or by way of the authorities that come after it in its file; an error when that
/// cannot be told.
fn issuer<'a>(
    leaf: &Certificate,
    more: &[Certificate],
    signers: &[&'a Certificate],
) -> Result<Option<&'a Certificate>, ()> {
    let mut current = leaf;
    let mut rest: Vec<&Certificate> = more.iter().collect();
    let mut unsupported = false;
    loop {
        for signer in signers {
            match current.check_issued_by(signer) {
                Ok(()) => return Ok(Some(signer)),
                Err(error) => unsupported |= is_unsupported(&error),
            }
        }
        let between = rest
            .iter()
            .position(|one| one.details().may_sign && current.check_issued_by(one).is_ok());
        match between {
            Some(index) => current = rest.remove(index),
            None if unsupported => return Err(()),
            None => return Ok(None),
        }
    }
}

fn is_unsupported(error: &certificate::Error) -> bool {
    let certificate::Error::Signature(source) = error else {
        return false;
    };
    matches!(
        source.downcast_ref::<X509Error>(),
        Some(X509Error::SignatureUnsupportedAlgorithm)
    )
}

/// An authority whose key is not here is managed elsewhere. A leaf without its key is of no use.
pub(super) fn key(part: Part, held: &Held, found: &mut Vec<Problem>) {
    match &held.key {
        KeySeen::Own => {}
        KeySeen::Absent if matches!(part, Part::Authority | Part::Trust) => {}
        KeySeen::Absent => found.push(Problem::new(Kind::KeyMissing, "")),
        KeySeen::Other => found.push(Problem::new(
            Kind::KeyMismatch,
            "the key beside it is another certificate's",
        )),
        KeySeen::Denied => found.push(Problem::new(Kind::KeyDenied, "")),
        KeySeen::Encrypted => found.push(Problem::new(
            Kind::KeyEncrypted,
            "nothing here can ask for its password",
        )),
        KeySeen::Unusable(reason) => {
            let kind = match is_known_kind(&held.certificate) {
                true => Kind::KeyUnreadable,
                false => Kind::Unsupported,
            };
            found.push(Problem::new(kind, reason));
        }
    }
}

/// Whether keys of the certificate's kind can be read here: RSA, and ECDSA on P-256 and P-384.
fn is_known_kind(certificate: &Certificate) -> bool {
    // Object identifiers as they stand in SubjectPublicKeyInfo: rsaEncryption, prime256v1, secp384r1.
    const KNOWN: [&[u8]; 3] = [
        &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1],
        &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7],
        &[6, 5, 0x2b, 0x81, 4, 0, 0x22],
    ];
    let head = &certificate.public_key_der()[..certificate.public_key_der().len().min(40)];
    KNOWN
        .iter()
        .any(|known| head.windows(known.len()).any(|window| window == *known))
}
