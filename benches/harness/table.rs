//! The table: what was measured, what it had to be, and whether it is.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this file is the benchmark's only printer"
)]

use std::process::ExitCode;

/// What a row says in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The target is met.
    Pass,
    /// The target is not met.
    Miss,
    /// The machine was too busy to tell.
    Noisy,
    /// That part of stratum could not be run.
    Unmeasured,
}

/// What a figure has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    Exactly(f64),
    Between(f64, f64),
}

/// Whether noise can move a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// It depends on time, measured in a run that was quiet or was not.
    Time { noisy: bool },
    /// It is a time with a limit of its own. Noise only adds to it, so that what is met in noise is met.
    Limit { noisy: bool },
    /// It is a count.
    Count,
}

impl Figure {
    /// The same for a time that has a limit by itself, and not beside another.
    pub(crate) fn by_itself(self) -> Self {
        match self {
            Self::Time { noisy } | Self::Limit { noisy } => Self::Limit { noisy },
            Self::Count => Self::Count,
        }
    }
}

/// One benchmark at one scale: what was measured, and its targets.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) benchmark: &'static str,
    pub(crate) scale: String,
    pub(crate) floor: String,
    pub(crate) stratum: String,
    pub(crate) peers: String,
    gates: Vec<(String, String, Verdict)>,
}

impl Entry {
    pub(crate) fn new(benchmark: &'static str, scale: impl ToString) -> Self {
        Self {
            benchmark,
            scale: scale.to_string(),
            floor: String::new(),
            stratum: String::new(),
            peers: String::new(),
            gates: Vec::new(),
        }
    }

    /// Adds a target. A `value` of none was not measured.
    pub(crate) fn gate(&mut self, what: &str, value: Option<f64>, target: Target, figure: Figure) {
        let met = value.map(|value| match target {
            Target::AtMost(limit) => value <= limit,
            Target::AtLeast(limit) => value >= limit,
            Target::Exactly(wanted) => (value - wanted).abs() < f64::EPSILON,
            Target::Between(from, to) => (from..=to).contains(&value),
        });
        let verdict = match (met, figure) {
            (None, _) => Verdict::Unmeasured,
            (Some(_), Figure::Time { noisy: true }) | (Some(false), Figure::Limit { noisy: true }) => Verdict::Noisy,
            (Some(true), Figure::Time { noisy: false } | Figure::Limit { .. } | Figure::Count) => Verdict::Pass,
            (Some(false), Figure::Time { noisy: false } | Figure::Limit { noisy: false } | Figure::Count) => {
                Verdict::Miss
            }
        };
        let wanted = match target {
            Target::AtMost(limit) => format!("<= {}", number(limit)),
            Target::AtLeast(limit) => format!(">= {}", number(limit)),
            Target::Exactly(wanted) => number(wanted),
            Target::Between(from, to) => format!("{}..{}", number(from), number(to)),
        };
        let figure = value.map_or_else(|| "-".to_owned(), number);
        self.gates.push((format!("{what}: {figure}"), wanted, verdict));
    }
}

/// All entries of a run.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    notes: Vec<String>,
}

const HEADS: [&str; 8] = ["benchmark", "scale", "floor", "stratum", "peers", "ratio", "target", ""];

impl Table {
    pub(crate) fn add(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Adds the row of what could not be measured to its end.
    pub(crate) fn add_unmeasured(&mut self, what: &'static str) {
        let mut entry = Entry::new(what, "-");
        entry.gate("measured", None, Target::Exactly(1.0), Figure::Count);
        self.add(entry);
    }

    /// Adds a sentence below the table, once.
    pub(crate) fn note(&mut self, note: &str) {
        if !self.notes.iter().any(|known| known == note) {
            self.notes.push(note.to_owned());
        }
    }

    /// Adds the row that says whether time grows as the number of objects does; none without two scales.
    pub(crate) fn add_growth(&mut self, benchmark: &'static str, slope: Option<f64>, noisy: bool) {
        if let Some(slope) = slope {
            let mut entry = Entry::new(benchmark, "log-log slope");
            entry.gate(
                "slope",
                Some(slope),
                Target::Between(0.85, 1.10),
                Figure::Time { noisy },
            );
            self.add(entry);
        }
    }

    pub(crate) fn print(&self, markdown: bool) {
        self.print_rows(markdown);
        for note in &self.notes {
            println!("\n{note}");
        }
    }

    fn print_rows(&self, markdown: bool) {
        let rows = self.rows();
        if markdown {
            println!("| {} |", HEADS.join(" | "));
            println!("|{}", "---|".repeat(HEADS.len()));
            for row in rows {
                println!("| {} |", row.join(" | "));
            }
            return;
        }
        let mut widths = HEADS.map(str::len);
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in std::iter::once(&HEADS.map(String::from)).chain(&rows) {
            let cells: Vec<String> = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            println!("{}", cells.join("  ").trim_end());
        }
    }

    /// 0 when all is well, 1 when a target is missed or could not be measured, 3 when only noise is in the way.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let verdicts = || self.entries.iter().flat_map(|entry| &entry.gates).map(|gate| gate.2);
        if verdicts().any(|verdict| matches!(verdict, Verdict::Miss | Verdict::Unmeasured)) {
            ExitCode::FAILURE
        } else if verdicts().any(|verdict| verdict == Verdict::Noisy) {
            ExitCode::from(3)
        } else {
            ExitCode::SUCCESS
        }
    }

    fn rows(&self) -> Vec<[String; 8]> {
        let mut rows = Vec::new();
        for entry in &self.entries {
            for (index, (ratio, target, verdict)) in entry.gates.iter().enumerate() {
                let once = |text: &str| if index == 0 { text.to_owned() } else { String::new() };
                let verdict = match verdict {
                    Verdict::Pass => "PASS",
                    Verdict::Miss => "MISS",
                    Verdict::Noisy => "NOISY",
                    Verdict::Unmeasured => "NOT MEASURED",
                };
                rows.push([
                    once(entry.benchmark),
                    once(&entry.scale),
                    once(&entry.floor),
                    once(&entry.stratum),
                    once(&entry.peers),
                    ratio.clone(),
                    target.clone(),
                    verdict.to_owned(),
                ]);
            }
        }
        rows
    }
}

/// Tells the person who waits what is going on.
pub(crate) fn progress(text: &str) {
    eprintln!("{text}");
}

/// Seconds, with the unit that reads best.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 0.01 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{:.2} ms", seconds * 1e3)
    }
}

fn number(value: f64) -> String {
    let places = if value.fract() == 0.0 || value >= 100.0 { 0 } else { 2 };
    format!("{value:.places$}")
}
