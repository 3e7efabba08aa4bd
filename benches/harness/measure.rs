//! The method: who does the work in which order, which rounds count, and what is made of the numbers.

use anyhow::Result;

use super::audit::Requests;
use super::table::{Entry, Figure, progress, seconds};

/// How far the floors before and after a round may be apart.
const QUIET: f64 = 1.25;

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The bare client.
    Floor,
    /// Stratum.
    Stratum,
    /// One of the peers, by its place in [`Work::peers`].
    Peer(usize),
}

/// One run of the work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// What is compared; seconds on the clock unless the benchmark says otherwise.
    pub(crate) seconds: f64,
    /// CPU seconds of whoever did it.
    pub(crate) tool_cpu: f64,
    /// CPU seconds of the API server meanwhile.
    pub(crate) server_cpu: f64,
    /// Requests answered meanwhile.
    pub(crate) requests: Requests,
}

/// Work that several can do.
pub(crate) trait Work {
    /// The peers' names.
    fn peers(&self) -> &'static [&'static str];

    /// Does it once; none when this contestant cannot do it.
    async fn run(&mut self, who: Who, round: usize) -> Result<Option<Sample>>;
}

/// What came out.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) floor: f64,
    pub(crate) stratum: Option<f64>,
    peers: Vec<(&'static str, Option<f64>)>,
    /// Stratum over the floor.
    pub(crate) over_floor: Option<f64>,
    /// Each peer over stratum.
    over_stratum: Vec<Option<f64>>,
    /// All of stratum's samples, for counts.
    pub(crate) samples: Vec<Sample>,
    /// Too few rounds counted.
    pub(crate) noisy: bool,
}

struct Round {
    floor: f64,
    quiet: bool,
    stratum: Option<Sample>,
    peers: Vec<Option<Sample>>,
}

/// How much is done for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Rounds that have to count.
    pub(crate) rounds: usize,
    /// Rounds after which a row that has not got them is noisy.
    pub(crate) attempts: usize,
}

/// From here on one round has to do, and of the peers only the fastest takes part, once: see [`NOTE_LARGE`].
pub(crate) const LARGE: usize = 10_000;
/// What the table says about that.
pub(crate) const NOTE_LARGE: &str =
    "10000: one round that counts; of the peers only kubectl apply, once, since the others take minutes each.";

impl Effort {
    /// What one scale is worth.
    pub(crate) fn at(scale: usize, rounds: usize) -> Self {
        match scale {
            LARGE.. => Self { rounds: 1, attempts: 3 },
            // A short round is easily disturbed and cheap to repeat.
            0..=100 => Self {
                rounds,
                attempts: rounds * 4,
            },
            _ => Self {
                rounds,
                attempts: rounds * 2,
            },
        }
    }
}

/// Runs floor, stratum, peers, floor, stratum, peers, ..., floor until enough rounds counted, or were tried.
pub(crate) async fn contest(work: &mut impl Work, effort: Effort) -> Result<Outcome> {
    let Effort { rounds, attempts } = effort;
    let mut before = floor(work, 0).await?;
    let mut all = Vec::new();
    for round in 0..attempts {
        let stratum = work.run(Who::Stratum, round).await?;
        let mut peers = Vec::new();
        for peer in 0..work.peers().len() {
            peers.push(work.run(Who::Peer(peer), round).await?);
        }
        let after = floor(work, round + 1).await?;
        let quiet = is_quiet(before, after);
        report(work.peers(), round, (before, after), stratum.as_ref(), &peers, quiet);
        all.push(Round {
            floor: f64::midpoint(before, after),
            quiet,
            stratum,
            peers,
        });
        before = after;
        if all.iter().filter(|round| round.quiet).count() >= rounds {
            break;
        }
    }
    let noisy = all.iter().filter(|round| round.quiet).count() < rounds;
    Ok(outcome(work.peers(), &all, noisy))
}

/// Attempts at what is measured between two floors.
const ATTEMPTS: usize = 3;

/// What was measured between two floors, the floor, and how the figure is to be taken.
pub(crate) struct Between<T> {
    pub(crate) result: T,
    pub(crate) floor: f64,
    pub(crate) figure: Figure,
}

/// For what takes no part in a contest: measures it between two floors, and again while these disagree, up to a limit.
pub(crate) async fn between_floors<T>(
    mut floor: impl AsyncFnMut() -> Result<f64>,
    mut work: impl AsyncFnMut() -> Result<T>,
) -> Result<Between<T>> {
    let mut before = floor().await?;
    let mut attempt = 1;
    loop {
        let result = work().await?;
        let after = floor().await?;
        let noisy = !is_quiet(before, after);
        if !noisy || attempt >= ATTEMPTS {
            return Ok(Between {
                result,
                floor: f64::midpoint(before, after),
                figure: Figure::Time { noisy },
            });
        }
        progress(&format!(
            "  floors {} and {}: measured again",
            seconds(before),
            seconds(after)
        ));
        (before, attempt) = (after, attempt + 1);
    }
}

fn is_quiet(before: f64, after: f64) -> bool {
    before.max(after) / before.min(after) <= QUIET
}

async fn floor(work: &mut impl Work, round: usize) -> Result<f64> {
    let sample = work.run(Who::Floor, round).await?;
    Ok(sample.unwrap_or_default().seconds)
}

fn report(
    names: &[&str],
    round: usize,
    (before, after): (f64, f64),
    stratum: Option<&Sample>,
    peers: &[Option<Sample>],
    quiet: bool,
) {
    let show = |sample: Option<&Sample>| {
        sample.map_or_else(
            || "-".to_owned(),
            |sample| {
                format!(
                    "{} (cpu {:.2} s, server {:.2} s, {} requests)",
                    seconds(sample.seconds),
                    sample.tool_cpu,
                    sample.server_cpu,
                    sample.requests.total()
                )
            },
        )
    };
    let mut line = format!(
        "  round {round}: floors {} and {}{}; stratum {}",
        seconds(before),
        seconds(after),
        if quiet { "" } else { " (does not count)" },
        show(stratum)
    );
    for (name, sample) in names.iter().zip(peers) {
        line.push_str(&format!("; {name} {}", show(sample.as_ref())));
    }
    progress(&line);
    if let Some(sample) = stratum {
        progress(&format!("    stratum's requests: {}", sample.requests));
    }
}

fn outcome(names: &'static [&'static str], all: &[Round], noisy: bool) -> Outcome {
    let rounds: Vec<&Round> = all.iter().filter(|round| noisy || round.quiet).collect();
    let own = |round: &Round| Some(round.stratum.as_ref()?.seconds);
    let peer = |round: &Round, peer: usize| Some(round.peers.get(peer)?.as_ref()?.seconds);
    // A peer that takes part only once may have done so in a round that does not count, and is compared in that.
    let figure = |figure: &dyn Fn(&Round) -> Option<f64>| {
        let counted = median(rounds.iter().filter_map(|round| figure(round)).collect());
        counted.or_else(|| median(all.iter().filter_map(figure).collect()))
    };
    let over_stratum = |index: usize| figure(&|round: &Round| Some(peer(round, index)? / own(round)?));
    let times = |index: usize| figure(&|round: &Round| peer(round, index));
    Outcome {
        floor: median(rounds.iter().map(|round| round.floor).collect()).unwrap_or_default(),
        stratum: median(rounds.iter().filter_map(|round| own(round)).collect()),
        peers: names
            .iter()
            .enumerate()
            .map(|(index, name)| (*name, times(index)))
            .collect(),
        over_floor: median(
            rounds
                .iter()
                .filter_map(|round| Some(own(round)? / round.floor))
                .collect(),
        ),
        over_stratum: (0..names.len()).map(over_stratum).collect(),
        // Counts are exact in a round that does not count, too.
        samples: all.iter().filter_map(|round| round.stratum.clone()).collect(),
        noisy,
    }
}

impl Outcome {
    /// An entry with the three columns of times filled in.
    pub(crate) fn entry(&self, benchmark: &'static str, scale: impl ToString) -> Entry {
        let mut entry = Entry::new(benchmark, scale);
        let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), seconds);
        entry.floor = seconds(self.floor);
        entry.stratum = show(self.stratum);
        let measured = self.peers.iter().filter_map(|(name, time)| Some((name, (*time)?)));
        let peers = measured.map(|(name, time)| format!("{name} {}", seconds(time)));
        entry.peers = peers.collect::<Vec<_>>().join(", ");
        entry
    }

    /// How a figure of this run that depends on time is to be taken.
    pub(crate) fn timed(&self) -> Figure {
        Figure::Time { noisy: self.noisy }
    }

    /// How many times as long a peer took as stratum.
    pub(crate) fn over_stratum(&self, peer: usize) -> Option<f64> {
        self.over_stratum.get(peer).copied().flatten()
    }

    /// The largest of a count over stratum's samples: noise cannot move it, so there is no excuse for any of them.
    pub(crate) fn most(&self, count: impl Fn(&Sample) -> u64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
        let most = self.samples.iter().map(count).max().map(|count| count as f64);
        most
    }
}

/// The middle value; of an even number of values the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// The value that 99 of 100 do not pass.
pub(crate) fn percentile_99(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = values.len().saturating_sub(1) * 99 / 100;
    values.get(rank).copied()
}

/// The slope of log time over log scale: 1 when the time is linear in the scale. None for fewer than two scales.
pub(crate) fn growth(points: &[(usize, f64)]) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "scales here are far below 2^52")]
    let logs: Vec<(f64, f64)> = points.iter().map(|(n, time)| ((*n as f64).ln(), time.ln())).collect();
    #[expect(clippy::cast_precision_loss, reason = "a handful of scales")]
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let shared: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (logs.len() > 1 && spread > 0.0).then_some(shared / spread)
}
