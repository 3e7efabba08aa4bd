//! What can be wrong with a certificate, in words, and how bad that is.

use std::fmt;

use serde::Serialize;

use super::Verdict;

/// Something that is wrong with one certificate, or that could not be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What.
    pub kind: Kind,
    /// In which way.
    pub detail: String,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::EnumIter, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its life is over.
    Expired,
    /// Its life has not begun.
    NotYetValid,
    /// The authority that signed it has expired, so nobody accepts it either.
    SignerExpired,
    /// It is there and cannot be read, or is no certificate.
    Unreadable,
    /// More certificates than the one that belongs there.
    Several,
    /// An authority that may not sign.
    MayNotSign,
    /// The key beside it is another's.
    KeyMismatch,
    /// There is no key.
    KeyMissing,
    /// The key cannot be used.
    KeyUnreadable,
    /// The key is protected by a password.
    KeyEncrypted,
    /// Another authority signed it than should have.
    WrongSigner,
    /// It is not for a name or address it is reached by.
    MissingName,
    /// It may not be used for what it is used for.
    MissingUsage,
    /// It is for somebody else than this release makes it for.
    SubjectDrift,
    /// A listener shows another certificate.
    ServedDiffers,
    /// A listener shows none.
    NotServed,
    /// Its kubeconfig leads elsewhere.
    KubeconfigElsewhere,
    /// Its kubeconfig cannot be used.
    KubeconfigUnreadable,
    /// Its kubeconfig does not trust the cluster's authority.
    KubeconfigTrust,
    /// The bundle beside it does not hold it.
    NotInBundle,
    /// The bundle beside it cannot be used.
    BundleUnreadable,
    /// Whether it is its key cannot be told: this user may not read it.
    KeyDenied,
    /// What its kubeconfig says cannot be told: this user may not read it.
    KubeconfigDenied,
    /// It is of a kind that this program does not know; others may.
    Unsupported,
}

impl Kind {
    /// How bad it is. What could not be told is nothing bad.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Expired | Self::NotYetValid | Self::SignerExpired => Verdict::Expired,
            Self::KeyDenied | Self::KubeconfigDenied | Self::Unsupported => Verdict::Fine,
            Self::Unreadable
            | Self::Several
            | Self::MayNotSign
            | Self::KeyMismatch
            | Self::KeyMissing
            | Self::KeyUnreadable
            | Self::KeyEncrypted
            | Self::WrongSigner
            | Self::MissingName
            | Self::MissingUsage
            | Self::SubjectDrift
            | Self::ServedDiffers
            | Self::NotServed
            | Self::KubeconfigElsewhere
            | Self::KubeconfigUnreadable
            | Self::KubeconfigTrust
            | Self::NotInBundle
            | Self::BundleUnreadable => Verdict::Broken,
        }
    }

    /// In a few words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::NotYetValid => "not yet valid",
            Self::SignerExpired => "signer expired",
            Self::Unreadable => "unreadable",
            Self::Several => "several certificates",
            Self::MayNotSign => "may not sign",
            Self::KeyMismatch => "key mismatch",
            Self::KeyMissing => "key missing",
            Self::KeyUnreadable => "key unreadable",
            Self::KeyEncrypted => "key encrypted",
            Self::WrongSigner => "wrong signer",
            Self::MissingName => "missing SAN",
            Self::MissingUsage => "missing usage",
            Self::SubjectDrift => "subject drift",
            Self::ServedDiffers => "served certificate differs",
            Self::NotServed => "not served",
            Self::KubeconfigElsewhere => "kubeconfig leads elsewhere",
            Self::KubeconfigUnreadable => "kubeconfig unreadable",
            Self::KubeconfigTrust => "kubeconfig lacks the CA",
            Self::NotInBundle => "not in its bundle",
            Self::BundleUnreadable => "bundle unreadable",
            Self::KeyDenied => "key not readable by this user",
            Self::KubeconfigDenied => "kubeconfig not readable by this user",
            Self::Unsupported => "unsupported",
        }
    }
}

impl Problem {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.words())?;
        if !self.detail.is_empty() {
            write!(formatter, ": {}", self.detail)?;
        }
        Ok(())
    }
}
