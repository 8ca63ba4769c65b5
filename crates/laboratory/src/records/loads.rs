//! What is asked: which of the four calls, how large a share of the rows, by how many clients, compressed or not.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use prost::Message;

use super::{COLUMN, VALUE};
use crate::server::Server;
use bench::cores::cores;
use bench::measurement::Run;
use bench::plan::{End, Pace, Plan};
use bench::run::run;
use bench::template::Sources;
use bench::tls::TlsArgs;
use bench::workload::Workload;
use bench::workload::grpc::{self, GrpcWorkload, Shape, Target};
use bench::workload::http::{self, HttpWorkload, dialer};

/// The published shares of the matching rows.
pub(super) const SHARES: [f64; 3] = [1.0, 0.5, 0.25];
/// The numbers of clients of the curve.
pub(super) const POINTS: [usize; 10] = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20];

/// How long a load is measured: those one at a time, and a point of the curve.
const ONE_AT_A_TIME: Duration = Duration::from_millis(700);
const POINT: Duration = Duration::from_millis(400);

/// The four ways to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Record,
    Search,
    RecordString,
    SearchString,
}

impl Call {
    pub(super) const ALL: [Self; 4] = [Self::Record, Self::Search, Self::RecordString, Self::SearchString];

    pub(super) const fn place(self) -> usize {
        match self {
            Self::Record => 0,
            Self::Search => 1,
            Self::RecordString => 2,
            Self::SearchString => 3,
        }
    }

    /// In figures' names.
    pub(super) fn key(self) -> &'static str {
        ["record", "search", "record_string", "search_string"][self.place()]
    }

    /// For people.
    pub(super) fn name(self) -> &'static str {
        ["gRPC GetRecord", "REST /search", "gRPC GetRecordString", "REST /search_string"][self.place()]
    }

    /// The method's or resource's path.
    pub(super) fn path(self) -> &'static str {
        ["/ReaderService/GetRecord", "/search", "/ReaderService/GetRecordString", "/search_string"][self.place()]
    }

    pub(super) fn is_rest(self) -> bool {
        matches!(self, Self::Search | Self::SearchString)
    }
}

/// What the client says it can unpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    Gzip,
    Zstd,
}

impl Coding {
    pub(super) const PACKED: [Self; 2] = [Self::Gzip, Self::Zstd];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    fn accepted(self) -> &'static [::grpc::Encoding] {
        match self {
            Self::Plain => &[],
            Self::Gzip => &[::grpc::Encoding::Gzip],
            Self::Zstd => &[::grpc::Encoding::Zstd],
        }
    }
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) call: Call,
    pub(super) share: f64,
    pub(super) clients: usize,
    pub(super) coding: Coding,
    duration: Duration,
    /// In front of the name, where the same is also measured beside others.
    series: &'static str,
}

impl Load {
    /// The published way.
    pub(super) fn one_at_a_time(call: Call) -> Self {
        Self { call, share: 1.0, clients: 1, coding: Coding::Plain, duration: ONE_AT_A_TIME, series: "" }
    }

    /// A point of the curve over the number of clients.
    pub(super) fn point(call: Call, clients: usize) -> Self {
        Self { clients, duration: POINT, series: "curve_", ..Self::one_at_a_time(call) }
    }

    /// Beside the server that does nothing but send a file.
    pub(super) fn limit(call: Call, clients: usize) -> Self {
        Self { clients, series: "limit_", ..Self::one_at_a_time(call) }
    }

    pub(super) fn share(self, share: f64) -> Self {
        Self { share, ..self }
    }

    pub(super) fn coded(self, coding: Coding) -> Self {
        Self { coding, ..self }
    }

    /// The same for the same load.
    pub(super) fn name(&self) -> String {
        let share = if self.share < 1.0 { format!("_{:.0}_percent", self.share * 100.0) } else { String::new() };
        let coding = if self.coding == Coding::Plain { String::new() } else { format!("_{}", self.coding.name()) };
        let clients = if self.series.is_empty() { String::new() } else { format!("_{}_clients", self.clients) };
        format!("{}{}{share}{coding}{clients}", self.series, self.call.key())
    }

    fn plan(&self, end: End) -> Plan {
        Plan {
            pace: Pace::Closed { ramp_up: Duration::ZERO },
            end,
            warm_up: Duration::ZERO,
            connections: self.clients,
            in_flight: 1,
            workers: cores().len().min(self.clients),
            cores: None,
            timeout: Duration::from_mins(1),
            seed: 1,
        }
    }
}

// The contract, as far as the experiment needs it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReaderRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(double, optional, tag = "3")]
    result_size: Option<f64>,
}

impl ReaderRequest {
    pub(super) fn of(share: f64) -> Self {
        Self { key: COLUMN.to_owned(), value: VALUE.to_owned(), result_size: (share < 1.0).then_some(share) }
    }
}

/// The resource that answers the question.
pub(super) fn resource(call: Call, share: f64) -> String {
    let size = if share < 1.0 { format!("&result_size={share}") } else { String::new() };
    format!("{}?headerKey={COLUMN}&headerValue={VALUE}{size}", call.path())
}

/// Puts a load to a server and says what CPU time its process spent.
pub(super) fn measure(server: &Server, load: &Load) -> anyhow::Result<(Run, Duration)> {
    if load.call.is_rest() {
        let url = format!("http://{}{}", server.address, resource(load.call, load.share));
        measure_url(server, load, url)
    } else {
        let target = Target::parse(&server.address.to_string(), &TlsArgs::default())?;
        let requests = grpc::Requests::constant(ReaderRequest::of(load.share).encode_to_vec());
        let workload = GrpcWorkload::new(target, load.call.path(), Shape::UNARY, requests);
        measured(server, load, &workload.accepts(load.coding.accepted()))
    }
}

/// As [`measure`], of anything that answers a GET.
pub(super) fn measure_url(server: &Server, load: &Load, url: String) -> anyhow::Result<(Run, Duration)> {
    let packed = (load.coding != Coding::Plain).then(|| format!("Accept-Encoding: {}", load.coding.name()));
    let asked = http::Asked { url, headers: packed.into_iter().collect(), ..http::Asked::default() };
    let requests = http::Requests::new(&asked, &Sources::default())?;
    let dialer = dialer(&requests, server.address, None)?;
    measured(server, load, &HttpWorkload::new(requests, dialer, false))
}

fn measured(server: &Server, load: &Load, workload: &impl Workload) -> anyhow::Result<(Run, Duration)> {
    // What is made once for a first caller is not what a later one waits for.
    let warm_up = End::Count(u64::try_from(2 * load.clients)?);
    run(&load.plan(warm_up), workload, &mut ())?;
    let before = server.cpu()?;
    let measured = run(&load.plan(End::After(load.duration)), workload, &mut ())?;
    let spent = server.cpu()?.saturating_sub(before);
    ensure!(
        measured.errors == 0,
        "{} of {} {load:?} failed: {:?}",
        measured.errors,
        measured.requests,
        measured.endings
    );
    Ok((measured, spent))
}

/// A server's address as a URL's beginning.
pub(super) fn origin(address: SocketAddr) -> String {
    format!("http://{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_names_of_their_own() {
        let one = Call::ALL.into_iter().flat_map(|call| SHARES.map(|share| Load::one_at_a_time(call).share(share)));
        let packed =
            Call::ALL.into_iter().flat_map(|call| Coding::PACKED.map(|coding| Load::one_at_a_time(call).coded(coding)));
        let points = Call::ALL.into_iter().flat_map(|call| POINTS.map(|clients| Load::point(call, clients)));
        let names: Vec<_> = one.chain(packed).chain(points).map(|load| load.name()).collect();
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        assert!(names.contains(&"search_50_percent".to_owned()), "{names:?}");
    }

    #[test]
    fn a_share_is_asked_for_only_where_it_is_less_than_all() {
        assert_eq!(resource(Call::Search, 1.0), "/search?headerKey=locations1&headerValue=Jacobs");
        assert_eq!(
            resource(Call::SearchString, 0.25),
            "/search_string?headerKey=locations1&headerValue=Jacobs&result_size=0.25"
        );
        assert_eq!(ReaderRequest::of(1.0).result_size, None);
        assert_eq!(ReaderRequest::of(0.5).result_size, Some(0.5));
    }
}
