//! `stratum uninstall`: takes this machine off its cluster, and everything of the node off the machine.

use std::fmt::Write;

use serde::Serialize;

use super::super::exit::Exit;
use super::super::printer::{self, Output};
use crate::controllers::cluster_fence::unless_interrupted;
use crate::controllers::machine::uninstall::departure::Departure;
use crate::controllers::machine::uninstall::{self, Plan, Settings, fencing};
use crate::host::layout::Layout;
use crate::host::teardown::{Left, Report, Teardown, Tools};

/// The flags of `stratum uninstall`.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Show what would be done, and do nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// Leave /etc/stratum as it is
    #[arg(long)]
    keep_config: bool,
    /// Go on when the cluster cannot be told; somebody has to tell it later
    #[arg(long)]
    offline: bool,
    /// The form of the answer
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: Output,
}

/// What was done, for programs.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    report: &'a Report,
    error: Option<String>,
}

/// Runs the command.
pub(in crate::cli) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let settings = Settings {
        teardown: Teardown {
            layout: Layout::system(),
            tools: Tools::find(std::env::var_os("PATH").as_deref()),
            keep_configuration: arguments.keep_config,
        },
        offline: arguments.offline,
    };
    if arguments.yes {
        return act(&settings, arguments.output).await;
    }
    let plan = match uninstall::plan(&settings).await {
        Ok(plan) => plan,
        Err(error) => return Ok(super::refused(error)),
    };
    printer::stdout(&match arguments.output {
        Output::Table => table(&plan),
        Output::Json => json(&plan)?,
    })?;
    if arguments.dry_run || plan.is_empty() {
        return Ok(Exit::Done);
    }
    printer::stderr("nothing was done; --yes does all of the above, and it cannot be undone\n");
    Ok(Exit::Refused)
}

async fn act(settings: &Settings, output: Output) -> anyhow::Result<Exit> {
    let plan = match uninstall::plan(settings).await {
        Ok(plan) => plan,
        Err(error) => return Ok(super::refused(error)),
    };
    if plan.is_empty() {
        // Not even the folder of the lock is made for nothing.
        printer::stdout(&match output {
            Output::Table => NOTHING.to_owned(),
            Output::Json => json(&Answer {
                report: &Report::default(),
                error: None,
            })?,
        })?;
        return Ok(Exit::Done);
    }
    let mut progress = output.progress();
    let mut fence = match fencing::fence(settings, &plan.cluster, &mut progress).await {
        Ok(fence) => fence,
        Err(error) => return Ok(super::refused(error)),
    };
    let lock = match super::lock(&settings.teardown.layout, "stratum uninstall") {
        Ok(Some(lock)) => lock,
        held_or_failed => {
            fence.release().await;
            return held_or_failed.map(|_| Exit::Refused);
        }
    };
    let is_held = fence.is_held();
    let run = uninstall::run(settings, &mut fence, lock, &mut progress);
    let ended = if is_held {
        unless_interrupted(run).await
    } else {
        Ok(run.await)
    };
    fence.release().await;
    let (report, done) = ended?;
    let refused = done.as_ref().is_err_and(uninstall::Error::is_refusal);
    let lost = done.as_ref().is_err_and(uninstall::Error::is_lost_fence);
    let error = done.err().map(|error| format!("{:#}", anyhow::Error::from(error)));
    printer::stdout(&match output {
        Output::Table => told(&report),
        Output::Json => json(&Answer {
            report: &report,
            error: error.clone(),
        })?,
    })?;
    let Some(error) = error else {
        return Ok(Exit::Done);
    };
    printer::stderr(&format!("error: {error}\n"));
    Ok(match (refused, lost) {
        (true, _) => Exit::Refused,
        (false, true) => Exit::LeadershipLost,
        (false, false) => Exit::Failed,
    })
}

const NOTHING: &str = "nothing of a node is on this machine\n";

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// A plan, for people.
fn table(plan: &Plan) -> String {
    if plan.is_empty() {
        return NOTHING.to_owned();
    }
    let machine = &plan.machine;
    let mut out = String::new();
    let mut line = |what: &str, which: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{what:<18} {which}");
    };
    line("cluster", &cluster(&plan.cluster));
    if let Some(unit) = &machine.unit {
        line("stop and disable", &unit.display().to_string());
    }
    if let Some(running) = &machine.running {
        line("stop", &format!("stratum up, {running}"));
    }
    if !machine.processes.is_empty() {
        line("end", &format!("{} processes of pods", machine.processes.len()));
    }
    let paths = [
        ("unmount", &machine.mounts),
        ("remove cgroup", &machine.control_groups),
        ("delete", &machine.files),
    ];
    for (what, paths) in paths {
        for path in paths {
            line(what, &path.display().to_string());
        }
    }
    for (what, names) in [
        ("remove namespace", &machine.network_namespaces),
        ("remove link", &machine.links),
    ] {
        for name in names {
            line(what, name);
        }
    }
    out.push_str(&left(&machine.stays));
    out
}

fn cluster(departure: &Departure) -> String {
    match departure {
        Departure::NoNode => "nobody is told: which node this was is not known any more".to_owned(),
        Departure::Left { node, words } => format!("{node} has left it before: {words}"),
        Departure::Worker { node, mark: true } => format!("Node {node} is marked, and the operator deletes it"),
        Departure::Worker { node, mark: false } => format!("no Node {node} is this machine's: nobody is told"),
        Departure::Controller {
            node,
            delete,
            member,
            undone,
        } => {
            let node = match (delete, undone) {
                (true, _) => format!("Node {node} is deleted"),
                (false, None) => format!("no Node {node} is this machine's"),
                (false, Some(reason)) => format!("Node {node} cannot be looked at ({reason})"),
            };
            let member = match member {
                Some(member) => format!("its member {member} of etcd is removed"),
                None => "it has no member of etcd".to_owned(),
            };
            format!("{node}, and {member}")
        }
        Departure::Last { node } => {
            format!(
                "THE WHOLE CLUSTER GOES: {node} is its last controller, and everything stored in it is deleted for good"
            )
        }
        Departure::Offline { node, reason, .. } => format!("it is not told that {node} leaves: {reason}"),
        Departure::Refused { obstacle } => format!("REFUSED: {obstacle}"),
    }
}

/// What was done, for people.
fn told(report: &Report) -> String {
    let removed: String = report
        .removed
        .iter()
        .map(|what| format!("{:<18} {what}\n", "removed"))
        .collect();
    removed + &left(&report.left)
}

fn left(all: &[Left]) -> String {
    all.iter()
        .map(|Left { what, why }| format!("{:<18} {what}: {why}\n", "stays"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::machine::uninstall::departure::Obstacle;
    use crate::host::teardown;

    fn plan(cluster: Departure) -> Plan {
        Plan {
            cluster,
            machine: teardown::Plan {
                running: Some("process 7 (stratum up)".to_owned()),
                processes: [1, 2].into(),
                files: vec!["/var/lib/stratum".into()],
                stays: vec![Left {
                    what: "/opt/cni".to_owned(),
                    why: "yours".to_owned(),
                }],
                ..teardown::Plan::default()
            },
        }
    }

    #[test]
    fn a_plan_reads_like_this() {
        let last = plan(Departure::Last { node: "n".to_owned() });
        assert_eq!(
            table(&last),
            "cluster            THE WHOLE CLUSTER GOES: n is its last controller, and everything stored in it is deleted for good\n\
             stop               stratum up, process 7 (stratum up)\n\
             end                2 processes of pods\n\
             delete             /var/lib/stratum\n\
             stays              /opt/cni: yours\n"
        );
        let empty = Plan {
            cluster: Departure::NoNode,
            machine: teardown::Plan::default(),
        };
        assert_eq!(table(&empty), NOTHING);
    }

    #[test]
    fn a_plan_for_programs() {
        let refused = plan(Departure::Refused {
            obstacle: Obstacle::NoQuorum { healthy: 1, needed: 2 },
        });
        let value: serde_json::Value = serde_json::from_str(&json(&refused).unwrap()).unwrap();
        assert_eq!(value["cluster"]["kind"], "refused");
        assert_eq!(value["cluster"]["obstacle"]["needed"], 2);
        assert_eq!(value["machine"]["files"][0], "/var/lib/stratum");
    }
}
