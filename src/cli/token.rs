//! `stratum token`: what machines join with.

use std::fmt::Write;

use anyhow::Context;
use jiff::{SignedDuration, SpanRound, Timestamp, Unit};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::controller::{Controller, NotAController};
use super::exit::Exit;
use super::printer::{self, Output};
use crate::controllers::concern::chain;
use crate::controllers::joining::material::read_material;
use crate::controllers::joining::ordering::{self, Joiner, Order, OrderError, Ordered};
use crate::controllers::joining::publishing::PublishError;
use crate::controllers::joining::tokens;
use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::host::clock;
use crate::host::node_state::{self, CLUSTER_DOMAIN, NodeState, Profile};
use crate::pki::pin;
use crate::reconcilers::bootstrap_token::{BootstrapToken, Expiration, TokenId};
use crate::reconcilers::joining::command::Join;
use crate::reconcilers::joining::token::{Found, Kind, Life};

/// The flags of `stratum token`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a token and print the command that joins with it, which is shown this once
    Create {
        /// Let a controller join: its command opens the keys of the whole cluster, so hand it on by a safe way only
        #[arg(long)]
        control_plane: bool,
        /// How long it lives, such as 30m or 7d; 0 for one that never ends by itself [default: 24h, 2h with --control-plane]
        #[arg(long, value_name = "TIME")]
        ttl: Option<Life>,
        /// What it is for, shown by 'token list'
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Show the tokens there are, without their secret halves
    List(Common),
    /// Delete tokens: nobody joins with them any more, and what they opened stays shut
    Delete {
        /// Their ids, the part before the dot
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    controller: Controller,
    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Create {
            control_plane,
            ttl,
            description,
            common,
        } => {
            let kind = if control_plane { Kind::Controller } else { Kind::Worker };
            let created = create(kind, ttl, description.as_deref(), &common).await;
            created.or_else(refused)
        }
        Command::List(common) => list(&common).await,
        Command::Delete { ids, common } => delete(&ids, &common).await,
    }
}

/// What was refused before any change has an exit code of its own.
fn refused(error: anyhow::Error) -> anyhow::Result<Exit> {
    let before_any_change = match error.downcast_ref::<OrderError>() {
        Some(OrderError::Guard(_) | OrderError::Malformed(_) | OrderError::OtherAuthority) => true,
        Some(OrderError::Publish(PublishError::Missing)) => true,
        Some(OrderError::Publish(_) | OrderError::Token(_) | OrderError::Mint(_)) => false,
        None => error.is::<NotAController>() || error.is::<node_state::Error>(),
    };
    if before_any_change {
        printer::error(error);
        Ok(Exit::Refused)
    } else {
        Err(error)
    }
}

async fn create(kind: Kind, life: Option<Life>, description: Option<&str>, common: &Common) -> anyhow::Result<Exit> {
    let files = common.controller.files();
    let state = files.controller_state()?;
    let pins = pin::pins(&files.trusted()?);
    let now = clock::now();
    let material = match kind {
        Kind::Worker => None,
        Kind::Controller => Some(read_material(&files.layout(), &state, now)?),
    };
    let order = Order {
        joiner: material.as_ref().map_or(Joiner::Worker, Joiner::Controller),
        life,
        description,
        pins: &pins,
    };
    let client = common.controller.client("token").await?;
    let ordered = ordering::order(&client, SYSTEM_NAMESPACE, &order, now).await?;
    let Ordered {
        token,
        end,
        certificate_key,
    } = &ordered;
    let join = Join {
        endpoint: &state.endpoint.to_string(),
        token,
        pins: &pins,
        certificate_key: certificate_key.as_ref(),
        service_ranges: &state.networks.services,
        worker_flags: &worker_flags(&state),
    };
    match common.output {
        Output::Json => printer::stdout(&Zeroizing::new(format!("{:#}\n", described(&join, *end))))?,
        Output::Table => {
            printer::stdout(&Zeroizing::new(format!("{}\n", *join.line())))?;
            printer::stderr(&note(kind, *end));
        }
    }
    Ok(Exit::Done)
}

/// What a worker of this cluster would take for the usual, and is not.
fn worker_flags(state: &NodeState) -> Vec<String> {
    let mut flags = Vec::new();
    if state.networks.domain != CLUSTER_DOMAIN {
        flags.extend(["--cluster-domain".to_owned(), state.networks.domain.clone()]);
    }
    match state.profile {
        Profile::Default => {}
        Profile::Cis => flags.push("--cis".to_owned()),
    }
    flags
}

/// Beside the command, for people only.
fn note(kind: Kind, end: Option<Timestamp>) -> String {
    let until = end.map_or_else(|| "until it is deleted".to_owned(), |end| format!("until {end}"));
    format!("Run this on the machine that becomes a {kind}. It works {until} and is not shown again.\n")
}

/// Everything a program needs to join a machine.
fn described(join: &Join<'_>, end: Option<Timestamp>) -> Value {
    json!({
        "id": join.token.id().as_str(),
        "token": *join.token.expose(),
        "kind": join.kind(),
        "expires": end,
        "endpoint": join.endpoint,
        "caCertHashes": join.pins.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "certificateKey": join.certificate_key.map(|key| key.expose().to_string()),
        "serviceCIDRs": join.service_ranges,
        "command": join.arguments(),
        "commandLine": *join.line(),
    })
}

/// Without the secret halves: whoever sees the list (over a shoulder, in a log) could join, and nobody needs them, since
/// another token is made in a moment. kubeadm shows them. Who has to have one reads its Secret.
async fn list(common: &Common) -> anyhow::Result<Exit> {
    let client = common.controller.client("token").await?;
    let found = tokens::list(&client, SYSTEM_NAMESPACE).await;
    let found = found.context("cannot list the bootstrap tokens")?;
    let now = clock::now();
    let text = match common.output {
        Output::Json => {
            let all: Vec<Value> = found.iter().map(|token| shown(token, now)).collect();
            format!("{}\n", serde_json::to_string_pretty(&all)?)
        }
        Output::Table => table(&found, now),
    };
    printer::stdout(&text)?;
    Ok(Exit::Done)
}

fn shown(token: &Found, now: Timestamp) -> Value {
    let expires = match token.expiration {
        Expiration::At(end) => Some(end),
        Expiration::Never | Expiration::Unreadable => None,
    };
    json!({
        "id": token.id.as_str(),
        "kind": Kind::of_groups(&token.groups),
        "expires": expires,
        "expired": token.expiration.has_passed(now),
        "authentication": token.authenticates,
        "signing": token.signs,
        "groups": token.groups,
        "description": token.description,
    })
}

fn table(found: &[Found], now: Timestamp) -> String {
    let mut rows = vec![["ID", "FOR", "LEFT", "EXPIRES", "DESCRIPTION"].map(str::to_owned)];
    rows.extend(found.iter().map(|token| {
        let kind = Kind::of_groups(&token.groups).filter(|_| token.authenticates);
        let (left, expires) = match token.expiration {
            Expiration::Never => ("forever".to_owned(), "never".to_owned()),
            Expiration::At(end) if token.expiration.has_passed(now) => ("expired".to_owned(), end.to_string()),
            Expiration::At(end) => (left(end.duration_since(now)), end.to_string()),
            Expiration::Unreadable => ("expired".to_owned(), "(no time)".to_owned()),
        };
        [
            token.id.to_string(),
            kind.map_or_else(|| "-".to_owned(), |kind| kind.to_string()),
            left,
            expires,
            // One line each, whatever somebody wrote there.
            token.description.as_deref().unwrap_or("-").escape_debug().to_string(),
        ]
    }));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut out = String::new();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out
}

/// In hours and minutes, or in seconds when it is nearly over.
fn left(time: SignedDuration) -> String {
    let smallest = if time >= SignedDuration::from_mins(1) {
        Unit::Minute
    } else {
        Unit::Second
    };
    let round = SpanRound::new().smallest(smallest).largest(Unit::Hour);
    let span = jiff::Span::try_from(time).and_then(|span| span.round(round.mode(jiff::RoundMode::Trunc)));
    span.map_or_else(|_| format!("{}s", time.as_secs()), |span| format!("{span:#}"))
}

async fn delete(ids: &[String], common: &Common) -> anyhow::Result<Exit> {
    let parsed: Result<Vec<TokenId>, _> = ids.iter().map(|text| id(text)).collect();
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            printer::stderr(&format!("error: {error}\n"));
            return Ok(Exit::Usage);
        }
    };
    let client = common.controller.client("token").await?;
    let mut exit = Exit::Done;
    let mut answers = Vec::new();
    for id in &parsed {
        let answer = match tokens::delete(&client, SYSTEM_NAMESPACE, id).await {
            Ok(true) => "deleted",
            Ok(false) => {
                printer::stderr(&format!(
                    "error: there is no token {id}; 'stratum token list' shows those there are\n"
                ));
                exit = Exit::Failed;
                "missing"
            }
            // The others are deleted all the same.
            Err(error) => {
                printer::stderr(&format!("error: {}\n", chain(&error)));
                exit = Exit::Failed;
                "failed"
            }
        };
        answers.push(json!({"id": id.as_str(), "result": answer}));
        if common.output == Output::Table && answer == "deleted" {
            printer::stdout(&format!("token {id} is deleted\n"))?;
        }
    }
    if common.output == Output::Json {
        printer::stdout(&format!("{}\n", serde_json::to_string_pretty(&answers)?))?;
    }
    Ok(exit)
}

/// The id, also of somebody who gave the whole token.
fn id(text: &str) -> Result<TokenId, crate::reconcilers::bootstrap_token::NotATokenId> {
    text.parse::<BootstrapToken>()
        .map(|token| token.id().clone())
        .or_else(|_| text.parse())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    fn found(id: &str, fields: &[(&str, &str)]) -> Found {
        let name = format!("bootstrap-token-{id}");
        let usual = [
            ("token-id", id),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", Kind::Worker.group()),
        ];
        let data: BTreeMap<String, ByteString> = usual
            .iter()
            .chain(fields)
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())))
            .collect();
        Found::read(&name, &data).unwrap()
    }

    #[test]
    fn the_list_shows_everything_but_the_secret_halves() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let all = [
            found(
                "aaaaaa",
                &[("expiration", "2026-01-03T03:04:04Z"), ("description", "rack\n3")],
            ),
            found(
                "bbbbbb",
                &[
                    ("auth-extra-groups", Kind::Controller.group()),
                    ("expiration", "2026-01-02T03:04:25Z"),
                ],
            ),
            found("cccccc", &[("auth-extra-groups", "system:bootstrappers:mine")]),
            found(
                "dddddd",
                &[
                    ("usage-bootstrap-authentication", ""),
                    ("expiration", "2026-01-02T03:04:05Z"),
                ],
            ),
            found("eeeeee", &[("expiration", "soon")]),
        ];
        assert_eq!(
            table(&all, now),
            "ID      FOR         LEFT     EXPIRES               DESCRIPTION\n\
             aaaaaa  worker      23h 59m  2026-01-03T03:04:04Z  rack\\n3\n\
             bbbbbb  controller  20s      2026-01-02T03:04:25Z  -\n\
             cccccc  -           forever  never                 -\n\
             dddddd  -           expired  2026-01-02T03:04:05Z  -\n\
             eeeeee  worker      expired  (no time)             -\n"
        );
        let shown = shown(&all[1], now);
        assert!(!shown.to_string().contains("0123"), "{shown}");
        assert_eq!(shown["kind"], "controller");
        assert_eq!(shown["expires"], "2026-01-02T03:04:25Z");
    }

    #[test]
    fn a_whole_token_is_as_good_as_its_id() {
        assert_eq!(id("abc123").unwrap().as_str(), "abc123");
        assert_eq!(id("abc123.0123456789abcdef").unwrap().as_str(), "abc123");
        let error = id("abc123.0123").unwrap_err().to_string();
        assert!(!error.contains("0123"), "{error}");
    }
}
