//! What `stratum server` and `stratum join` both take.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use strum::IntoEnumIterator;

use super::super::printer::{self, Output};
use super::made;
use crate::controllers::machine::node::Node;
use crate::host::addresses;
use crate::host::clock;
use crate::host::host_name::host_name;
use crate::host::layout::Layout;
use crate::host::node_state::{NodeState, Taint};
use crate::host::preflight::{self, Check};

/// What kind of node this machine becomes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct NodeArguments {
    /// The name of the Node [default: the host name in lower case]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// The addresses others reach this machine at, the first being the usual one [default: the one of the default route]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    node_ip: Vec<IpAddr>,
    /// A label of the Node; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    node_label: Vec<(String, String)>,
    /// A taint of the Node, or `none`; may be given more than once [default: on controllers the usual one]
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT", value_parser = taint)]
    node_taint: Vec<TaintOrNone>,
    /// The folder with programs and images; nothing is downloaded [default: /var/lib/stratum/payload]
    #[arg(long, value_name = "FOLDER")]
    payload: Option<PathBuf>,
    /// Checks of the machine that may fail, by name, such as swap,port
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = check)]
    ignore_preflight: Vec<Check>,
    /// Say nothing while all goes well; with `-o json`, nothing but the document
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// The form of the answer; what is done meanwhile is then told on standard error
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub(super) output: Output,
}

/// The parts of a node that both commands find out in the same way.
#[derive(Clone, Debug)]
pub(super) struct Basics {
    pub(super) node_name: String,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) labels: BTreeMap<String, String>,
    /// None when nothing was said.
    pub(super) taints: Option<Vec<Taint>>,
}

impl NodeArguments {
    /// What was said, or else what this machine says of itself.
    pub(super) fn basics(&self) -> anyhow::Result<Basics> {
        let node_name = match &self.node_name {
            Some(name) => name.clone(),
            None => host_name()
                .context("cannot read the host name; choose a name with --node-name")?
                .trim()
                .to_lowercase(),
        };
        let addresses = if self.node_ip.is_empty() {
            addresses::outgoing().into_iter().collect()
        } else {
            self.node_ip.clone()
        };
        Ok(Basics {
            node_name,
            addresses,
            labels: self.node_label.iter().cloned().collect(),
            taints: self.taints(),
        })
    }

    fn taints(&self) -> Option<Vec<Taint>> {
        let said = self.node_taint.iter().filter_map(|taint| taint.0.clone());
        (!self.node_taint.is_empty()).then(|| said.collect())
    }

    /// Where the command tells what it does while it does it.
    pub(super) fn progress(&self) -> Box<dyn Write + Send> {
        if self.quiet {
            return Box::new(std::io::sink());
        }
        self.output.progress()
    }

    /// Tells what was made.
    pub(super) fn tell(&self, node: &Node) -> anyhow::Result<()> {
        if self.output == Output::Table && self.quiet {
            return Ok(());
        }
        printer::stdout(&made::told(node, self.output)?)?;
        Ok(())
    }

    /// Where programs and images are.
    pub(super) fn payload(&self, layout: &Layout) -> PathBuf {
        self.payload.clone().unwrap_or_else(|| layout.payload())
    }

    /// Whether this machine can be that node; prints everything that is in the way.
    pub(super) fn fits(&self, layout: &Layout, state: &NodeState, tolerates_swap: bool) -> anyhow::Result<bool> {
        let program = std::env::current_exe().ok();
        let facts = preflight::observe(layout, program.as_deref()).context("cannot look at this machine")?;
        let problems = preflight::judge(&facts, state, tolerates_swap, clock::now());
        let (borne, refused): (Vec<_>, Vec<_>) = problems
            .into_iter()
            .partition(|problem| self.ignore_preflight.contains(&Check::from(problem)));
        for problem in borne {
            printer::stderr(&format!("ignored: {problem}\n"));
        }
        for problem in &refused {
            let check: &'static str = Check::from(problem).into();
            printer::stderr(&format!("error: [{check}] {problem}\n"));
        }
        Ok(refused.is_empty())
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if key.is_empty() {
        return Err("a label is KEY=VALUE".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// A taint, or the word that there is to be none.
#[derive(Clone, Debug)]
struct TaintOrNone(Option<Taint>);

fn taint(text: &str) -> Result<TaintOrNone, String> {
    if text == "none" {
        return Ok(TaintOrNone(None));
    }
    let wrong =
        || "a taint is KEY=VALUE:EFFECT or KEY:EFFECT with NoSchedule, PreferNoSchedule or NoExecute".to_owned();
    let (key, effect) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (key, value) = match key.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (key, None),
    };
    if key.is_empty() {
        return Err(wrong());
    }
    Ok(TaintOrNone(Some(Taint {
        key: key.to_owned(),
        value,
        effect: effect.parse().map_err(|_| wrong())?,
    })))
}

fn check(text: &str) -> Result<Check, String> {
    text.parse().map_err(|_| {
        let known: Vec<&'static str> = Check::iter().map(Into::into).collect();
        format!("no check of that name; there are {}", known.join(", "))
    })
}
