//! Loads: which of the four calls, share of the rows, number of clients, compression.

use std::time::Duration;

use bench::plan::End;
use bench::template::Sources;
use bench::workload::Workload;
use bench::workload::grpc::Requests;
use bench::workload::http::{self, HttpWorkload};
use bench::workload::socket::Dialer;
use kit::Server;
use prost::Message as _;
use quire_rpc::Encoding;
use records::grpc::wire::ReaderRequest;

use crate::lab::{calls, closed, measure};
use crate::results::Observed;

/// Queried column and value, and the share of matching rows.
pub(super) const COLUMN: &str = "locations1";
pub(super) const VALUE: &str = "Jacobs";
pub(super) const ONE_OF: u64 = 200;

/// Published shares of the matching rows.
pub(super) const SHARES: [f64; 3] = [1.0, 0.5, 0.25];
/// Numbers of clients of the curve.
pub(super) const POINTS: [usize; 10] = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20];
/// Numbers of clients compared with the server that only sends a file.
pub(super) const LIMITS: [usize; 2] = [1, 8];

/// Durations of sequential loads, and of a point of the curve.
const ONE_AT_A_TIME: Duration = Duration::from_millis(700);
const POINT: Duration = Duration::from_millis(400);

/// The four kinds of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Record,
    Search,
    RecordString,
    SearchString,
}

impl Call {
    pub(super) const ALL: [Self; 4] = [Self::Record, Self::Search, Self::RecordString, Self::SearchString];

    /// Name in figures' keys.
    pub(super) fn key(self) -> &'static str {
        ["record", "search", "record_string", "search_string"][self as usize]
    }

    /// Name for people.
    pub(super) fn name(self) -> &'static str {
        ["gRPC GetRecord", "REST /search", "gRPC GetRecordString", "REST /search_string"][self as usize]
    }

    /// The method's or resource's path.
    pub(super) fn path(self) -> &'static str {
        ["/ReaderService/GetRecord", "/search", "/ReaderService/GetRecordString", "/search_string"][self as usize]
    }

    pub(super) fn is_rest(self) -> bool {
        matches!(self, Self::Search | Self::SearchString)
    }
}

/// Encodings that the client accepts, with a name.
pub(super) type Coding = (&'static str, &'static [Encoding]);
pub(super) const PLAIN: Coding = ("plain", &[]);
pub(super) const PACKED: [Coding; 2] = [("gzip", &[Encoding::Gzip]), ("zstd", &[Encoding::Zstd])];

#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) call: Call,
    pub(super) share: f64,
    clients: usize,
    coding: Coding,
    duration: Duration,
    /// Prefix of the name, for loads also measured in another series.
    series: &'static str,
}

impl Load {
    /// The published load.
    pub(super) fn one_at_a_time(call: Call) -> Self {
        Self { call, share: 1.0, clients: 1, coding: PLAIN, duration: ONE_AT_A_TIME, series: "" }
    }

    /// A point of the curve over the number of clients.
    pub(super) fn point(call: Call, clients: usize) -> Self {
        Self { clients, duration: POINT, series: "curve_", ..Self::one_at_a_time(call) }
    }

    /// For comparison with the server that only sends a file.
    pub(super) fn limit(clients: usize) -> Self {
        Self { clients, series: "limit_", ..Self::one_at_a_time(Call::Search) }
    }

    pub(super) fn share(self, share: f64) -> Self {
        Self { share, ..self }
    }

    pub(super) fn coded(self, coding: Coding) -> Self {
        Self { coding, ..self }
    }

    /// Name of the load; equal for equal loads.
    pub(super) fn name(&self) -> String {
        let share = if self.share < 1.0 { format!("_{:.0}_percent", self.share * 100.0) } else { String::new() };
        let coding = if self.coding == PLAIN { String::new() } else { format!("_{}", self.coding.0) };
        let clients = if self.series.is_empty() { String::new() } else { format!("_{}_clients", self.clients) };
        format!("{}{}{share}{coding}{clients}", self.series, self.call.key())
    }
}

/// The query as a message.
pub(super) fn message(share: f64) -> Vec<u8> {
    let result_size = (share < 1.0).then_some(share);
    ReaderRequest { key: COLUMN.to_owned(), value: VALUE.to_owned(), result_size, ..Default::default() }.encode_to_vec()
}

/// The resource of the query.
pub(super) fn resource(call: Call, share: f64) -> String {
    let size = if share < 1.0 { format!("&result_size={share}") } else { String::new() };
    format!("{}?headerKey={COLUMN}&headerValue={VALUE}{size}", call.path())
}

/// Runs a load on a server.
pub(super) fn ask(server: &Server, load: &Load) -> anyhow::Result<Observed> {
    if load.call.is_rest() {
        return get(server, load, &resource(load.call, load.share));
    }
    let mut workload = calls(server, load.call.path(), Requests::constant(message(load.share)))?;
    workload.settings.accepts = load.coding.1.to_vec();
    measured(server, load, &workload)
}

/// Runs a load on any server with a GET of this resource.
pub(super) fn get(server: &Server, load: &Load, resource: &str) -> anyhow::Result<Observed> {
    let url = format!("http://{}{resource}", server.address);
    let packed = (load.coding != PLAIN).then(|| format!("Accept-Encoding: {}", load.coding.0));
    let request = http::RequestArgs { url, headers: packed.into_iter().collect(), ..http::RequestArgs::default() };
    let requests = http::Requests::new(&request, &Sources::default())?;
    measured(server, load, &HttpWorkload::new(requests, Dialer::plain(server.address), false))
}

fn measured(server: &Server, load: &Load, workload: &impl Workload) -> anyhow::Result<Observed> {
    // Later callers do not wait for things that the server builds once, for its first caller.
    let warm_up = Some(End::Count(2 * load.clients as u64));
    measure(server, workload, warm_up, &closed(load.clients, 1, End::After(load.duration)), 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_names_of_their_own() {
        let one = Call::ALL.into_iter().flat_map(|call| SHARES.map(|share| Load::one_at_a_time(call).share(share)));
        let packed =
            Call::ALL.into_iter().flat_map(|call| PACKED.map(|coding| Load::one_at_a_time(call).coded(coding)));
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
        let size = |share| ReaderRequest::decode(&*message(share)).expect("a message").result_size;
        assert_eq!((size(1.0), size(0.5)), (None, Some(0.5)));
    }
}
