//! A pass as a person reads it.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::controllers::status;
use crate::reconcilers::manifests::report::{Counts, Report};

/// The table of a report: a line for each stack, then every refusal, what stays, and why pruning waits.
#[must_use]
pub fn table(report: &Report) -> String {
    let width = report
        .stacks
        .keys()
        .map(String::len)
        .chain([LOOSE.len()])
        .max()
        .unwrap_or_default();
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{:<width$}  {:>7}  {:>10}  {:>9}  {:>6}  {:>7}",
        "STACK", "CREATED", "CONFIGURED", "UNCHANGED", "PRUNED", "REFUSED"
    );
    for (stack, counts) in &report.stacks {
        line(&mut out, if stack.is_empty() { LOOSE } else { stack }, counts, width);
    }
    line(&mut out, "total", &report.total(), width);
    for refusal in &report.refusals {
        let _ = writeln!(out, "refused: {refusal}");
    }
    for kept in &report.kept {
        let _ = writeln!(out, "kept: {kept}");
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    if let Some(suspended) = &report.suspended {
        let _ = writeln!(out, "not pruned: {suspended}");
    }
    out
}

/// A line for each node whose status cannot be read.
#[must_use]
pub fn unreadable(problems: &BTreeMap<String, String>) -> String {
    let line = |(node, problem): (&String, &String)| {
        format!(
            "\n{node}  its key of ConfigMap {SYSTEM_NAMESPACE}/{} cannot be read: {problem}; it is written anew at that node's next news\n",
            status::NAME
        )
    };
    problems.iter().map(line).collect()
}

/// How loose files, which belong to no stack, are called in a table.
const LOOSE: &str = "(loose files)";

fn line(out: &mut String, name: &str, counts: &Counts, width: usize) {
    let Counts {
        created,
        configured,
        unchanged,
        pruned,
        refused,
    } = counts;
    let _ = writeln!(
        out,
        "{name:<width$}  {created:>7}  {configured:>10}  {unchanged:>9}  {pruned:>6}  {refused:>7}"
    );
}

/// Rows of words as columns, each as wide as its longest word; the last one runs free.
pub(super) fn columns<const COUNT: usize>(rows: &[[String; COUNT]]) -> String {
    let mut widths = [0; COUNT];
    for row in rows {
        for (width, word) in widths.iter_mut().zip(row) {
            *width = (*width).max(word.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let padded = row.iter().zip(widths).map(|(word, width)| format!("{word:width$}"));
        let line = padded.collect::<Vec<_>>().join("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::reconcilers::manifests::report::{Outcome, Refusal, RefusalReason, Suspension};

    #[test]
    fn a_report_reads_like_this() {
        let mut report = Report::new("n", "/etc/stratum/manifests", Timestamp::UNIX_EPOCH);
        let stack = "hello".parse().unwrap();
        report.count(Some(&stack), Outcome::Created);
        report.count(Some(&stack), Outcome::Unchanged);
        report.count(None, Outcome::Configured);
        report.refuse(Refusal {
            file: "hello/a.yaml".into(),
            line: Some(7),
            object: None,
            stack: Some("hello".into()),
            reason: RefusalReason::Invalid,
            message: "it is no map".into(),
        });
        report.suspended = Some(Suspension::PassIncomplete);
        assert_eq!(
            table(&report),
            "STACK          CREATED  CONFIGURED  UNCHANGED  PRUNED  REFUSED\n\
             (loose files)        0           1          0       0        0\n\
             hello                1           0          1       0        1\n\
             total                1           1          1       0        1\n\
             refused: hello/a.yaml:7: it is no map\n\
             not pruned: something in this pass was refused; pruning waits until everything is applied\n"
        );
    }
}
