//! Whose certificates a command is about: the flags that all commands for one machine have.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use strum::VariantNames;

use crate::host::layout::{DetectError, Form, Layout};

/// Where the files of a machine are.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Place {
    /// Whose files this machine has [default: as the files say]
    #[arg(long, value_name = "FORM", value_parser = PossibleValuesParser::new(Form::VARIANTS).try_map(|word| word.parse::<Form>()))]
    pub(super) layout: Option<Form>,
    /// The folder that everything hangs under; another one than `/` only in tests
    #[arg(long, hide = true, value_name = "FOLDER", env = "STRATUM_ROOT", default_value = "/")]
    root: PathBuf,
}

impl Place {
    /// The layout of this machine: as told, or as its files say.
    ///
    /// # Errors
    /// When the files do not say.
    pub(super) fn layout(&self) -> Result<Layout, DetectError> {
        match self.layout {
            Some(form) => Ok(Layout::under(&self.root).with_form(form)),
            None => Layout::detect(&self.root),
        }
    }
}
