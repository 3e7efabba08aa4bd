//! What Prometheus reads of the certificates of this machine. Read from the files at each scrape, so that it is what is
//! there, whoever wrote it; nothing is counted in this process.
//!
//! Every name begins with `stratum_certificate_`: the same in the operator and in `stratum certs renew --daemon`.

#[cfg(test)]
mod tests;

use std::fmt::Error;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::host::certificates::Machine;
use crate::host::layout::{Form, Layout};
use crate::host::renewal_record::{RenewalRecord, RenewalResult, load_renewal_record};
use crate::host::rotation_incomplete::incomplete_rotation;

/// Before every name, behind `stratum_`.
const SUBJECT: &str = "certificate";

/// Adds what is read of the machine with this layout.
#[must_use]
pub fn registry(layout: Layout) -> Registry {
    let mut registry = Registry::with_prefix("stratum");
    registry.register_collector(Box::new(Certificates { layout }));
    registry
}

/// Reads at each scrape.
#[derive(Debug)]
struct Certificates {
    layout: Layout,
}

/// One certificate.
struct Row {
    name: String,
    /// Its beginning and its end; none when it cannot be read.
    life: Option<(Timestamp, Timestamp)>,
}

/// What is on the machine now.
struct Scrape {
    rows: Vec<Row>,
    /// `node.yaml` is there and cannot be used, so that nobody knows what certificates there should be.
    unknown: bool,
    /// None when the record cannot be read.
    record: Option<Option<RenewalRecord>>,
    incomplete: bool,
}

impl Scrape {
    fn of(layout: &Layout) -> Self {
        let is_node = layout.form() == Form::Kubeadm || layout.node_state().exists();
        let machine = is_node.then(|| Machine::load(layout.clone()));
        let unknown = matches!(machine, Some(Err(_)));
        let mut rows = Vec::new();
        for entry in machine.into_iter().flatten().flat_map(|machine| machine.entries()) {
            // Not the keys: nothing is said of them, and somebody scrapes every few seconds.
            let life = match entry.look() {
                Ok(None) => continue,
                Ok(Some(found)) => {
                    let details = found.certificate.details();
                    Some((details.not_before, details.not_after))
                }
                Err(_) => None,
            };
            rows.push(Row { name: entry.name, life });
        }
        Self {
            rows,
            unknown,
            record: load_renewal_record(layout).ok(),
            incomplete: incomplete_rotation(layout).0,
        }
    }
}

impl Collector for Certificates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let scrape = Scrape::of(&self.layout);
        let rows = scrape.rows.iter();
        let lives = rows
            .clone()
            .filter_map(|row| row.life.map(|life| (row.name.as_str(), life)));
        let mut write = Writer(&mut encoder);
        write.by_name(
            "not_after_timestamp",
            "Unix time at which a certificate of this machine ends, authorities included",
            Some(&Unit::Seconds),
            lives.clone().map(|(name, (_, end))| (name, end.as_second())),
        )?;
        write.by_name(
            "not_before_timestamp",
            "Unix time at which the life of a certificate of this machine begins",
            Some(&Unit::Seconds),
            lives.map(|(name, (beginning, _))| (name, beginning.as_second())),
        )?;
        write.by_name(
            "unreadable",
            "Whether a certificate of this machine is there and cannot be read (1) or can (0)",
            None,
            rows.map(|row| (row.name.as_str(), row.life.is_none().into())),
        )?;
        write.one(
            "roster_unreadable",
            "Whether it cannot be told which certificates this machine should hold (1) or can (0)",
            None,
            Some(scrape.unknown.into()),
        )?;
        write.one(
            "rotation_incomplete",
            "Whether a rotation has made certificates new and not brought everything onto them (1) or not (0)",
            None,
            Some(scrape.incomplete.into()),
        )?;
        renewal(&mut write, scrape.record)
    }
}

/// Without an attempt there is no time of one and no success: a rule must not take that for a failure.
fn renewal(write: &mut Writer<'_, '_>, record: Option<Option<RenewalRecord>>) -> Result<(), Error> {
    write.one(
        "renewal_record_unreadable",
        "Whether the record of the last renewal is there and cannot be read (1) or not (0)",
        None,
        Some(record.is_none().into()),
    )?;
    let record = record.flatten();
    let record = record.as_ref();
    write.one(
        "renewal_last_attempt_timestamp",
        "Unix time at which the last renewal of certificates on this machine began",
        Some(&Unit::Seconds),
        record.map(|record| record.attempted_at.as_second()),
    )?;
    write.one(
        "renewal_last_attempt_success",
        "Whether the last renewal succeeded (1) or failed, was cut off or is in progress (0)",
        None,
        record.map(|record| record.is_success().into()),
    )?;
    write.one(
        "renewal_in_progress",
        "Whether the last renewal has begun and, as far as is recorded, not ended (1) or has (0)",
        None,
        record.map(|record| (record.result == RenewalResult::InProgress).into()),
    )?;
    write.one(
        "renewal_failures",
        "Renewals in a row that did not succeed, one in progress included",
        None,
        record.map(|record| record.failures.into()),
    )
}

/// Writes gauges.
struct Writer<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Writer<'_, '_> {
    fn by_name<'c>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl Iterator<Item = (&'c str, i64)>,
    ) -> Result<(), Error> {
        let name = format!("{SUBJECT}_{name}");
        let mut family = self.0.encode_descriptor(&name, help, unit, MetricType::Gauge)?;
        for (name, value) in values {
            family.encode_family(&[("name", name)])?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn one(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: Option<i64>) -> Result<(), Error> {
        let name = format!("{SUBJECT}_{name}");
        let mut family = self.0.encode_descriptor(&name, help, unit, MetricType::Gauge)?;
        value.map_or(Ok(()), |value| family.encode_gauge(&value))
    }
}
