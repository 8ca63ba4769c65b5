//! The store's metrics.

use std::{fmt, time::Duration};

use hosting::metrics::{self, Page, Refusals};
use prometheus_client::{
    encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::{
    domain::{HoldState, Receipt, Reservation, Verdict},
    fault::Limit,
};

/// The store's counters; handles to those that [`Metrics::register`] put into a registry.
#[derive(Debug)]
pub struct Metrics {
    acknowledged: Counter,
    purchases: Family<Outcome, Counter>,
    reservations: Family<Held, Counter>,
    replays: Counter,
    refusals: Refusals,
    batch_entries: Histogram,
    commit_seconds: Histogram,
    queue_seconds: Histogram,
    store_failures: Counter,
    foreign_entries: Counter,
}

/// Current usage and state.
#[derive(Clone, Copy, Debug)]
pub struct Levels {
    /// Purchases and operator actions queued for the ledger.
    pub purchases_queued: usize,
    /// The most of them.
    pub purchases_queued_max: usize,
    /// Books in the catalogue.
    pub books: usize,
    /// The number of the newest log entry.
    pub log_number: i64,
    /// True while purchases are accepted.
    pub healthy: bool,
    /// Greatest age of the readers' data, if the store is outside this process.
    pub age: Option<Duration>,
    /// Replicas of such a store, if it shows them.
    pub replicas: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Outcome(Verdict);

impl EncodeLabelSet for Outcome {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("outcome", self.0.name()).encode(encoder.encode_label())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held(HoldState);

impl EncodeLabelSet for Held {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("outcome", self.0.name()).encode(encoder.encode_label())
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            acknowledged: Counter::default(),
            purchases: Family::default(),
            reservations: Family::default(),
            replays: Counter::default(),
            refusals: Refusals::default(),
            batch_entries: metrics::batch_sizes(),
            commit_seconds: metrics::commit_times(),
            queue_seconds: metrics::commit_times(),
            store_failures: Counter::default(),
            foreign_entries: Counter::default(),
        }
    }
}

impl Metrics {
    /// Creates the counters and registers them, including zeros.
    pub fn register(registry: &mut Registry, refusals: Refusals) -> Self {
        let metrics = Self { refusals, ..Self::default() };
        for verdict in Verdict::ALL {
            drop(metrics.purchases.get_or_create(&Outcome(verdict)));
        }
        for state in HoldState::ALL {
            drop(metrics.reservations.get_or_create(&Held(state)));
        }
        metrics.refusals.show(Limit::ALL.map(Limit::name));
        // Before those that are on disk, which a page shows in this order: so no page has more of these.
        registry.register(
            "purchases_acknowledged",
            "Purchases that were bought and whose buyer was answered",
            metrics.acknowledged.clone(),
        );
        registry.register(
            "purchases",
            "Purchases decided, by outcome; those that were bought are on disk",
            metrics.purchases.clone(),
        );
        registry.register(
            "reservations",
            "Answered calls of Reserve, Confirm and Release, by the state of the reservation",
            metrics.reservations.clone(),
        );
        registry.register(
            "purchases_replayed",
            "Purchases answered from an earlier one with the same key",
            metrics.replays.clone(),
        );
        registry.register("ledger_batch_entries", "Log entries in one commit", metrics.batch_entries.clone());
        registry.register_with_unit(
            "ledger_commit",
            "Duration of COMMIT",
            Unit::Seconds,
            metrics.commit_seconds.clone(),
        );
        registry.register_with_unit(
            "ledger_queue",
            "Time that purchases and operator actions waited for the ledger, of one in 16",
            Unit::Seconds,
            metrics.queue_seconds.clone(),
        );
        registry.register(
            "ledger_failures",
            "Times that the store failed and was read back",
            metrics.store_failures.clone(),
        );
        registry.register(
            "ledger_foreign_entries",
            "Log entries that other processes wrote",
            metrics.foreign_entries.clone(),
        );
        metrics
    }

    /// Counts a request refused by a limit.
    pub(crate) fn refused(&self, limit: Limit) {
        self.refusals.count(limit.name());
    }

    /// Counts an answer that exceeds a message.
    pub(crate) fn answer_refused(&self) {
        self.refusals.count("limits.message_bytes");
    }

    pub(crate) fn decided(&self, receipts: impl Iterator<Item = Receipt>) {
        let mut counts = [0; Verdict::ALL.len()];
        let mut replays = 0;
        for receipt in receipts {
            if receipt.replayed {
                replays += 1;
            } else if let Some(index) = Verdict::ALL.iter().position(|verdict| *verdict == receipt.verdict) {
                counts[index] += 1;
            }
        }
        for (verdict, count) in Verdict::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
            self.purchases.get_or_create(&Outcome(verdict)).inc_by(count);
        }
        self.replays.inc_by(replays);
    }

    /// Counts an answer to a buyer.
    pub(crate) fn answered(&self, receipt: &Receipt) {
        if receipt.verdict == Verdict::Bought && !receipt.replayed {
            self.acknowledged.inc();
        }
    }

    /// Counts an answer about a reservation.
    pub(crate) fn answered_hold(&self, reservation: &Reservation) {
        self.reservations.get_or_create(&Held(reservation.state)).inc();
        if let Some(receipt) = reservation.purchase() {
            self.answered(&receipt);
        }
    }

    pub(crate) fn committed(&self, entries: usize, took: Duration) {
        self.batch_entries.observe(f64::from(u32::try_from(entries).unwrap_or(u32::MAX)));
        self.commit_seconds.observe(took.as_secs_f64());
    }

    /// Counts the times of jobs in the queue.
    pub(crate) fn on_taken(&self) -> commit::OnTaken {
        let times = self.queue_seconds.clone();
        Box::new(move |queued| times.observe(queued.as_secs_f64()))
    }

    pub(crate) fn store_failed(&self) {
        self.store_failures.inc();
    }

    pub(crate) fn foreign_entries(&self, count: i64) {
        self.foreign_entries.inc_by(u64::try_from(count).unwrap_or(0));
    }
}

/// Writes the levels.
pub(crate) fn write(page: &mut Page<'_>, levels: &Levels) -> fmt::Result {
    let queued = "Purchases and operator actions that wait for the ledger";
    page.gauge("purchases_queued", queued, levels.purchases_queued)?;
    page.gauge("purchases_queued_max", "What limits.purchases_queued is", levels.purchases_queued_max)?;
    page.gauge("books", "Books in the catalogue", levels.books)?;
    page.gauge("log_number", "Number of the newest log entry", levels.log_number)?;
    let healthy = "1 while purchases are taken, 0 while a failed store is read back";
    page.gauge("store_healthy", healthy, levels.healthy)?;
    if let Some(replicas) = levels.replicas {
        page.gauge("store_replicas", "Replicas that stream from the primary of the store's database", replicas)?;
    }
    let Some(age) = levels.age else { return Ok(()) };
    page.seconds("catalogue_age_seconds", "How old what readers see may be; the database did not answer since", age)
}
