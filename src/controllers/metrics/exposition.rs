//! The two text forms in which metrics are served.
//!
//! The library writes OpenMetrics. Tools that only read the older Prometheus text format would take its counters for
//! untyped ones, because there the suffix `_total` belongs to a family's name; so that form is made from the first.

use std::fmt::Write;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

use super::Metrics;

/// The content type of OpenMetrics 1.0.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of the Prometheus text format.
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A body and its content type.
#[derive(Clone, Debug)]
pub struct Exposition {
    /// [`OPEN_METRICS`] or [`PLAIN`].
    pub content_type: &'static str,
    /// The text.
    pub text: String,
}

impl Metrics {
    /// All metrics now, in the form that `accept`, a request's header, asks for.
    ///
    /// # Errors
    /// When a metric cannot be written as text, which would be a bug.
    pub fn expose(&self, accept: &str) -> Result<Exposition, std::fmt::Error> {
        let registries: Vec<&Registry> = std::iter::once(&self.registry)
            .chain(&self.machine)
            .map(AsRef::as_ref)
            .collect();
        expose(&registries, accept)
    }
}

/// The metrics of several registries, which have no name in common.
///
/// # Errors
/// As [`Metrics::expose`].
pub fn expose(registries: &[&Registry], accept: &str) -> Result<Exposition, std::fmt::Error> {
    let mut text = String::new();
    for registry in registries {
        encode_registry(&mut text, registry)?;
    }
    encode_eof(&mut text)?;
    if accept.contains("application/openmetrics-text") {
        return Ok(Exposition {
            content_type: OPEN_METRICS,
            text,
        });
    }
    Ok(Exposition {
        content_type: PLAIN,
        text: plain(&text)?,
    })
}

fn plain(open_metrics: &str) -> Result<String, std::fmt::Error> {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Written with the type, which decides the name.
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some(help) = help.take() {
                writeln!(text, "# HELP {name}{suffix} {help}")?;
            }
            writeln!(text, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            writeln!(text, "{line}")?;
        }
    }
    Ok(text)
}
