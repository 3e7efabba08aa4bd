//! The arguments of a component, in the order they are rendered in.

use serde::{Deserialize, Serialize};

/// One argument, as it is passed through from `config.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// The flag's name, without dashes.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Arguments that take part in a merge by their flag's name.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments(Vec<Argument>);

impl Arguments {
    /// Adds one.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.push(Argument {
            name: name.to_owned(),
            value: value.into(),
        });
    }

    /// Puts the user's in place of those of the same name. One that is given several times is kept as often: some flags
    /// are lists.
    pub(super) fn merge(&mut self, extra: &[Argument]) {
        let extra: Vec<Argument> = extra.iter().map(Argument::plain).collect();
        self.0
            .retain(|argument| extra.iter().all(|other| other.name != argument.name));
        self.0.extend(extra);
    }

    /// `--name=value` for each.
    pub(super) fn into_flags(self) -> Vec<String> {
        self.0.into_iter().map(|argument| argument.flag()).collect()
    }
}

impl Argument {
    /// With the dashes gone that a user may have written.
    pub(super) fn plain(&self) -> Self {
        Self {
            name: self.name.trim_start_matches('-').to_owned(),
            value: self.value.clone(),
        }
    }

    fn flag(&self) -> String {
        format!("--{}={}", self.name, self.value)
    }
}
