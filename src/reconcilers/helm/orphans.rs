//! Releases whose HelmChart is gone: which of them are uninstalled.
//!
//! Absence has to be sure before objects are deleted for it. A definition of the kind that is younger than a release was
//! deleted and made again, and took all HelmCharts with it: nobody asked for that release to go.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{ChartId, ReleaseId};

/// A release that was made for a HelmChart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The release.
    pub release: ReleaseId,
    /// For which HelmChart.
    pub owner: ChartId,
    /// When the oldest revision that is kept was made.
    pub since: Option<Timestamp>,
}

/// What becomes of a release.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Fate {
    /// Its HelmChart is there.
    Owned,
    /// Another HelmChart wants it, and takes it over.
    Adopted {
        /// Which.
        by: ChartId,
    },
    /// It is uninstalled.
    Uninstalled,
    /// It stays: the definition of the kind HelmChart is younger than it.
    DefinitionIsYounger,
    /// It stays: more releases would go at once than the brake lets.
    Braked {
        /// How many would go.
        going: usize,
        /// Of how many.
        of: usize,
    },
}

/// A HelmChart, as far as releases are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanting {
    /// The release it wants.
    pub release: ReleaseId,
    /// Whether it is accepted: one that is not takes nothing over, and loses nothing either.
    pub is_accepted: bool,
}

/// What becomes of each release. `charts` are all HelmCharts, `defined` is when the definition of
/// the kind was made, and `max_share` the largest share of the releases, from 0 to 1, that may go at once; a single one always
/// may.
#[must_use]
pub fn fates(
    made: &[Made],
    charts: &BTreeMap<ChartId, Wanting>,
    defined: Timestamp,
    max_share: Option<f64>,
) -> Vec<(ReleaseId, Fate)> {
    let mut fates: Vec<(ReleaseId, Fate)> = made
        .iter()
        .map(|one| (one.release.clone(), fate(one, charts, defined)))
        .collect();
    let going = fates.iter().filter(|(_, fate)| *fate == Fate::Uninstalled).count();
    let of = made.len();
    #[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52 releases")]
    let share = if of == 0 { 0.0 } else { going as f64 / of as f64 };
    if going > 1 && max_share.is_some_and(|limit| share > limit) {
        for (_, fate) in fates.iter_mut().filter(|(_, fate)| *fate == Fate::Uninstalled) {
            *fate = Fate::Braked { going, of };
        }
    }
    fates
}

fn fate(made: &Made, charts: &BTreeMap<ChartId, Wanting>, defined: Timestamp) -> Fate {
    if charts
        .get(&made.owner)
        .is_some_and(|chart| chart.release == made.release)
    {
        return Fate::Owned;
    }
    let mut others = charts.iter().filter(|(_, chart)| chart.is_accepted);
    if let Some((by, _)) = others.find(|(_, chart)| chart.release == made.release) {
        return Fate::Adopted { by: by.clone() };
    }
    if made.since.is_none_or(|since| since < defined) {
        return Fate::DefinitionIsYounger;
    }
    Fate::Uninstalled
}
