//! Join tokens: what a new one's Secret says, and what is read of those there are.

use std::collections::BTreeMap;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::reconcilers::bootstrap_token::{BootstrapToken, Expiration, SECRET_TYPE, TokenId};

/// The group of tokens that workers join with, as kubeadm has it.
pub const WORKERS: &str = "system:bootstrappers:kubeadm:default-node-token";
/// The group of tokens that controllers join with. It may ask for no node's certificate: a controller signs its own.
pub const CONTROLLERS: &str = "system:bootstrappers:controllers";

const AUTHENTICATION: &str = "usage-bootstrap-authentication";
const SIGNING: &str = "usage-bootstrap-signing";

/// What a token admits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, strum::Display, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// A worker.
    Worker,
    /// A controller, which is handed the keys of the cluster.
    Controller,
}

impl Kind {
    /// The group that its tokens are in.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::Worker => WORKERS,
            Self::Controller => CONTROLLERS,
        }
    }

    /// What a token in these groups admits; none when neither.
    #[must_use]
    pub fn of_groups<T: AsRef<str>>(groups: &[T]) -> Option<Self> {
        let is_in = |kind: &Self| groups.iter().any(|group| group.as_ref() == kind.group());
        [Self::Controller, Self::Worker].into_iter().find(is_in)
    }

    /// How long a token lives for which nothing is said. One that opens the keys of the cluster is used at once or never.
    #[must_use]
    pub fn usual_life(self) -> Life {
        Life::For(SignedDuration::from_hours(match self {
            Self::Worker => 24,
            Self::Controller => 2,
        }))
    }
}

/// How long a token lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Until somebody deletes it.
    Unlimited,
    /// So long.
    For(SignedDuration),
}

/// A text that is no life of a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time: say 30m, 24h or 7d, or, for a token, 0 for one that never ends by itself")]
pub struct NotALife(String);

impl FromStr for Life {
    type Err = NotALife;

    fn from_str(text: &str) -> Result<Self, NotALife> {
        let refused = || NotALife(text.to_owned());
        if text == "0" {
            return Ok(Self::Unlimited);
        }
        // A day has 24 hours here, as in a certificate's life.
        let span: jiff::Span = text.parse().map_err(|_| refused())?;
        let relative = jiff::SpanRelativeTo::days_are_24_hours();
        let duration = span.to_duration(relative).map_err(|_| refused())?;
        match duration.as_secs() {
            1.. => Ok(Self::For(duration)),
            // Zero seconds may be a slip; unlimited is said as 0 alone.
            ..=0 => Err(refused()),
        }
    }
}

impl Life {
    /// When a token that begins now ends, in whole seconds; none: never.
    #[must_use]
    pub fn end(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Unlimited => None,
            Self::For(life) => {
                let end = now.saturating_add(life).unwrap_or(Timestamp::MAX);
                // A token says whole seconds.
                Some(Timestamp::from_second(end.as_second()).unwrap_or(end))
            }
        }
    }
}

/// The Secret of a new token, in JSON: it authenticates and signs cluster-info.
#[must_use]
pub fn secret(
    namespace: &str,
    token: &BootstrapToken,
    kind: Kind,
    end: Option<Timestamp>,
    description: Option<&str>,
) -> Value {
    let mut data: Map<String, Value> = [
        ("token-id", token.id().as_str()),
        ("token-secret", token.expose_secret()),
        (AUTHENTICATION, "true"),
        (SIGNING, "true"),
        ("auth-extra-groups", kind.group()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.into()))
    .collect();
    data.extend(end.map(|end| ("expiration".to_owned(), end.to_string().into())));
    data.extend(description.map(|text| ("description".to_owned(), text.into())));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": token.id().secret_name(), "namespace": namespace},
        "stringData": data,
    })
}

/// A token as it was found. Its secret half shows nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Found {
    /// Its public half.
    pub id: TokenId,
    /// When it ends.
    pub expiration: Expiration,
    /// What it is for, in somebody's words.
    pub description: Option<String>,
    /// The groups it is in besides the one of all tokens.
    pub groups: Vec<String>,
    /// Whoever has it is let in.
    pub authenticates: bool,
    /// cluster-info is signed under it.
    pub signs: bool,
    secret: Zeroizing<Vec<u8>>,
}

impl Found {
    /// Reads the data of Secret `name`; none when the cluster does not take it for a token: another name, another id in it,
    /// or no secret half.
    #[must_use]
    pub fn read(name: &str, data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let id = TokenId::of_secret(name)?;
        let field = |key: &str| data.get(key).map(|ByteString(value)| value.as_slice());
        let text = |key: &str| field(key).and_then(|value| std::str::from_utf8(value).ok());
        let secret = field("token-secret").filter(|secret| !secret.is_empty())?;
        let groups = text("auth-extra-groups").unwrap_or_default();
        let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
        (text("token-id") == Some(id.as_str())).then(|| Self {
            expiration: Expiration::parse(field("expiration")),
            description: text("description").filter(|text| !text.is_empty()).map(str::to_owned),
            groups: groups.map(str::to_owned).collect(),
            authenticates: text(AUTHENTICATION) == Some("true"),
            signs: text(SIGNING) == Some("true"),
            secret: Zeroizing::new(secret.to_vec()),
            id,
        })
    }

    /// What cluster-info is signed with, while it is.
    #[must_use]
    pub fn signing_secret(&self, now: Timestamp) -> Option<&[u8]> {
        (self.signs && !self.expiration.has_passed(now)).then_some(self.secret.as_slice())
    }
}

impl std::fmt::Debug for Found {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Found({}, redacted)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn stored(secret: &Value) -> BTreeMap<String, ByteString> {
        let data = secret["stringData"].as_object().unwrap();
        let bytes = |value: &Value| ByteString(value.as_str().unwrap().as_bytes().to_vec());
        data.iter().map(|(key, value)| (key.clone(), bytes(value))).collect()
    }

    #[test]
    fn the_secret_is_kubeadms() {
        let token = "abc123.0123456789abcdef".parse().unwrap();
        let end = Life::For(SignedDuration::from_hours(2)).end(at("2026-01-02T03:04:05.678Z"));
        let made = secret("kube-system", &token, Kind::Controller, end, Some("for rack 3"));
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": "bootstrap-token-abc123", "namespace": "kube-system"},
            "stringData": {
                "token-id": "abc123", "token-secret": "0123456789abcdef", "description": "for rack 3",
                "expiration": "2026-01-02T05:04:05Z", "auth-extra-groups": "system:bootstrappers:controllers",
                "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            },
        });
        assert_eq!(made, expected);
        let found = Found::read("bootstrap-token-abc123", &stored(&made)).unwrap();
        assert_eq!(found.expiration, Expiration::At(at("2026-01-02T05:04:05Z")));
        assert_eq!(Kind::of_groups(&found.groups), Some(Kind::Controller));
        assert_eq!(found.description.as_deref(), Some("for rack 3"));
        assert!(!format!("{found:?}").contains("0123"));
        let bare = secret("kube-system", &token, Kind::Worker, None, None);
        assert!(bare["stringData"].get("expiration").is_none() && bare["stringData"].get("description").is_none());
        assert_eq!(bare["stringData"]["auth-extra-groups"], WORKERS);
    }

    #[test]
    fn a_life_is_said_in_words_and_unlimited_only_as_zero() {
        let hours = |hours| Life::For(SignedDuration::from_hours(hours));
        for (text, life) in [
            ("0", Life::Unlimited),
            ("2h", hours(2)),
            ("24h", hours(24)),
            ("24h0m0s", hours(24)),
            ("7d", hours(168)),
            ("1h 30m", Life::For(SignedDuration::from_mins(90))),
            ("PT2H", hours(2)),
        ] {
            assert_eq!(text.parse::<Life>().unwrap(), life, "{text}");
        }
        for text in [
            "",
            "0s",
            "0h",
            "-1h",
            "24",
            "one day",
            "1ns",
            "1y",
            "1mo",
            "99999999999h",
        ] {
            assert_eq!(text.parse::<Life>(), Err(NotALife(text.to_owned())), "{text}");
        }
        assert_eq!(Kind::Worker.usual_life(), hours(24));
        assert_eq!(Kind::Controller.usual_life(), hours(2));
        assert_eq!(Life::Unlimited.end(Timestamp::UNIX_EPOCH), None);
        assert!(hours(1).end(Timestamp::MAX).unwrap() <= Timestamp::MAX);
    }

    #[test]
    fn only_what_the_cluster_takes_for_a_token_is_one() {
        let name = "bootstrap-token-abc123";
        let token = "abc123.0123456789abcdef".parse().unwrap();
        let good = stored(&secret("kube-system", &token, Kind::Worker, None, None));
        assert!(Found::read(name, &good).is_some());
        let with = |key: &str, value: Option<&str>| {
            let mut data = good.clone();
            match value {
                Some(value) => data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec())),
                None => data.remove(key),
            };
            Found::read(name, &data)
        };
        assert!(Found::read("bootstrap-token-abc124", &good).is_none());
        assert!(Found::read("bootstrap-token-abc12", &good).is_none());
        assert!(with("token-id", Some("abc124")).is_none());
        assert!(with("token-id", None).is_none());
        assert!(with("token-secret", None).is_none());
        assert!(with("token-secret", Some("")).is_none());
        let now = at("2026-01-02T03:04:05Z");
        let secret = |found: Option<Found>| found.unwrap().signing_secret(now).map(<[u8]>::to_vec);
        assert!(secret(with("x", Some("y"))).is_some());
        assert_eq!(secret(with(SIGNING, Some("True"))), None);
        assert_eq!(secret(with(SIGNING, None)), None);
        assert_eq!(secret(with("expiration", Some("2026-01-02T03:04:05Z"))), None);
        assert_eq!(secret(with("expiration", Some("tomorrow"))), None);
        assert!(secret(with("expiration", Some("2026-01-02T03:04:06Z"))).is_some());
        // The signer of kube-controller-manager takes any secret half.
        assert_eq!(secret(with("token-secret", Some("x"))), Some(b"x".to_vec()));
        let groups = with(
            "auth-extra-groups",
            Some("system:bootstrappers:a, system:bootstrappers:b,"),
        );
        assert_eq!(
            groups.unwrap().groups,
            ["system:bootstrappers:a", "system:bootstrappers:b"]
        );
    }
}
