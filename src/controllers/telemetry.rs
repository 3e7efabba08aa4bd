//! Logs: text or JSON, to stderr, with a filter that can be changed while the process runs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, strum::Display, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Which events are logged: a level (`info`), or levels by module (`info,stratum=debug`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl Default for LogFilter {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl FromStr for LogFilter {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, TelemetryError> {
        let text = text.trim();
        let invalid = || TelemetryError::Filter { text: text.to_owned() };
        // The library takes any single word for a module's name.
        let named_level = |part: &str| part.contains(['=', '[']) || LEVELS.contains(&part.to_lowercase().as_str());
        if !text.split(',').all(|part| named_level(part.trim())) {
            return Err(invalid());
        }
        EnvFilter::try_new(text).map_err(|_| invalid())?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What can go wrong with logs.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Not a filter.
    #[error(
        "{text:?} is no log level: use one of off, error, warn, info, debug, trace, or MODULE=LEVEL, separated by commas"
    )]
    Filter {
        /// What was given.
        text: String,
    },
    /// There is a subscriber already.
    #[error("logging is set up already")]
    Installed(#[source] tracing_subscriber::util::TryInitError),
    /// The filter cannot be reached any more.
    #[error("changing the log filter")]
    Reload(#[source] reload::Error),
}

/// Changes the filter of the running process.
#[derive(Clone)]
pub struct LogControl {
    handle: Arc<dyn Control>,
}

impl fmt::Debug for LogControl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LogControl")
    }
}

trait Control: Send + Sync {
    fn replace(&self, filter: EnvFilter) -> Result<(), reload::Error>;
    fn current(&self) -> Result<String, reload::Error>;
}

impl Control for reload::Handle<EnvFilter, Registry> {
    fn replace(&self, filter: EnvFilter) -> Result<(), reload::Error> {
        self.reload(filter)
    }

    fn current(&self) -> Result<String, reload::Error> {
        self.with_current(ToString::to_string)
    }
}

impl LogControl {
    /// Changes the filter at once.
    ///
    /// # Errors
    /// When the subscriber is gone.
    pub fn set(&self, filter: &LogFilter) -> Result<(), TelemetryError> {
        self.handle
            .replace(EnvFilter::new(&filter.0))
            .map_err(TelemetryError::Reload)
    }

    /// The filter in force.
    ///
    /// # Errors
    /// When the subscriber is gone.
    pub fn current(&self) -> Result<String, TelemetryError> {
        self.handle.current().map_err(TelemetryError::Reload)
    }
}

/// Sets logging up for the whole process.
///
/// # Errors
/// When it is set up already.
pub fn install(format: LogFormat, filter: &LogFilter) -> Result<LogControl, TelemetryError> {
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&filter.0));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(TelemetryError::Installed)?;
    Ok(LogControl {
        handle: Arc::new(handle),
    })
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_levels_only() {
        for good in [
            "info",
            "WARN",
            "info,stratum=debug",
            "off",
            "info,kube_client::client=trace",
        ] {
            assert!(good.parse::<LogFilter>().is_ok(), "{good}");
        }
        for bad in ["", "loud", "info,", "stratum=loud", "verbose,info"] {
            let error = bad.parse::<LogFilter>().unwrap_err().to_string();
            assert!(error.contains("off, error, warn"), "{bad}: {error}");
        }
    }
}
