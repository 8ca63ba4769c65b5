//! Parts of pages that change while one looks, as types; each has its template.

use askama::Template;

/// A count, by a reason that has an explanation.
#[derive(Clone, Debug)]
pub(crate) struct Reason {
    pub(crate) name: String,
    pub(crate) count: String,
    /// Path of the explanation.
    pub(crate) path: String,
}

/// Losses and refusals.
#[derive(Debug, Template)]
#[template(path = "room/part-lost.html")]
pub(crate) struct LostPart {
    /// Acknowledged sales that are not committed; empty if there are none.
    pub(crate) lost: String,
    pub(crate) acknowledged: String,
    pub(crate) durable: String,
    /// In the last minute.
    pub(crate) refusals: Vec<Reason>,
    pub(crate) errors: Vec<Reason>,
}

/// A service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceChip {
    pub(crate) name: &'static str,
    pub(crate) trouble: Option<String>,
    /// It has nothing to answer from.
    pub(crate) is_idle: bool,
}

/// A level and its limit, as a bar.
#[derive(Clone, Debug)]
pub(crate) struct Gauge {
    pub(crate) name: &'static str,
    pub(crate) used: String,
    pub(crate) limit: String,
    pub(crate) percent: u32,
    /// `in`, `low` or `out`.
    pub(crate) level: &'static str,
}

/// A fact with a mark of how it is.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    /// `in`, `low`, `out` or `plain`.
    pub(crate) level: &'static str,
}

/// The health of store and services, and levels against their limits.
#[derive(Debug, Template)]
#[template(path = "room/part-healthy.html")]
pub(crate) struct HealthyPart {
    pub(crate) is_healthy: bool,
    pub(crate) services: Vec<ServiceChip>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) gauges: Vec<Gauge>,
}

/// A figure over the last hour, as a line.
#[derive(Clone, Debug)]
pub(crate) struct Spark {
    pub(crate) name: &'static str,
    pub(crate) now: String,
    pub(crate) unit: &'static str,
    /// The greatest value of the hour.
    pub(crate) most: String,
    /// Paths of SVG.
    pub(crate) line: String,
    pub(crate) area: String,
}

/// Figures over the last hour.
#[derive(Debug, Template)]
#[template(path = "room/part-sparks.html")]
pub(crate) struct SparksPart {
    pub(crate) sparks: Vec<Spark>,
}

/// A method's calls of the last minute.
#[derive(Clone, Debug)]
pub(crate) struct MethodRow {
    pub(crate) service: String,
    pub(crate) name: String,
    pub(crate) calls: String,
    pub(crate) failed: String,
    pub(crate) times: [String; 3],
}

/// The methods that were called most.
#[derive(Debug, Template)]
#[template(path = "room/part-methods.html")]
pub(crate) struct MethodsPart {
    pub(crate) rows: Vec<MethodRow>,
}

/// An open connection.
#[derive(Clone, Debug)]
pub(crate) struct CallerRow {
    pub(crate) id: u64,
    /// The credential's name, or the address.
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) agent: String,
    pub(crate) calls: String,
    pub(crate) bytes: String,
    pub(crate) idle: String,
}

/// The open connections, those that moved most bytes first.
#[derive(Debug, Template)]
#[template(path = "room/part-callers.html")]
pub(crate) struct CallersPart {
    pub(crate) rows: Vec<CallerRow>,
    /// Number of further ones.
    pub(crate) others: String,
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub(crate) struct LogRow {
    pub(crate) number: i64,
    /// RFC 3339, in UTC.
    pub(crate) time: String,
    pub(crate) kind: &'static str,
    pub(crate) book: i32,
    /// The title, if the book is in the catalogue.
    pub(crate) title: String,
    /// Value before; empty if there was none.
    pub(crate) before: String,
    pub(crate) after: String,
    /// The copies that were asked for, unless it was one.
    pub(crate) copies: String,
    /// The operator.
    pub(crate) by: String,
}

impl LogRow {
    /// The time for readers: date, minute and second.
    fn shown_time(&self) -> String {
        self.time.get(..19).unwrap_or(&self.time).replace('T', " ") + " UTC"
    }
}

/// Entries of the log, newest first.
#[derive(Debug, Template)]
#[template(path = "room/part-log.html")]
pub(crate) struct LogPart {
    pub(crate) rows: Vec<LogRow>,
    /// There are older parts of the log, where no one has looked yet.
    pub(crate) is_more: bool,
}
