//! Reads what one of our servers counts: CPU time of its process, calls, and its own histogram of their times.
//!
//! The load reads before and after. Blocking, with a deadline and a limit on bytes, because nothing else runs while a
//! reading is taken.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use tokio_rustls::rustls::ClientConfig;

use crate::measurement::ServerSide;
use crate::values::host_and_port;
use crate::workload::http::get;
use crate::workload::socket::{Dialer, reach};

/// Deadline of an answer, connecting included; other servers may never answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer that is read; ours are some 30 KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Only this format marks the end of a page.
const FORMAT: &str = "application/openmetrics-text";
/// Metric family that distinguishes our servers from others with metrics.
const DURATION: &str = "quire_grpc_call_duration_seconds";
const BUCKET: &str = "quire_grpc_call_duration_seconds_bucket";
const CALLS: &str = "quire_grpc_calls_total";
const CPU: &str = "process_cpu_seconds_total";
const START: &str = "process_start_time_seconds";

/// A server whose counts can be read.
#[derive(Clone, Debug)]
pub struct Probe {
    /// `HOST:PORT`.
    address: String,
    tls: Option<Arc<ClientConfig>>,
}

/// Counts of a server at some time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    cpu_seconds: f64,
    /// Times of the request and of the answer.
    asked_at: Option<(Instant, Instant)>,
    /// Start of the process, which distinguishes processes at the same address.
    start_seconds: f64,
    calls: u64,
    /// Upper bounds in seconds, ascending, with the calls up to each. All methods have the same bounds.
    up_to: Vec<(f64, u64)>,
}

impl Probe {
    /// A probe of the server at `HOST:PORT`, if that is one of ours; over TLS if there is a configuration for it. Sends
    /// an HTTP request: not for servers that would take it for a request of their own protocol.
    pub fn find(address: &str, tls: Option<&Arc<ClientConfig>>) -> Option<Self> {
        let tls = tls.map(|tls| {
            let mut tls = ClientConfig::clone(tls);
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(tls)
        });
        let probe = Self { address: address.to_owned(), tls };
        probe.read().is_ok().then_some(probe)
    }

    /// Reads the current counts.
    pub fn read(&self) -> anyhow::Result<Reading> {
        let began = Instant::now();
        let answer = within_deadline(self.get());
        let answer = answer.with_context(|| format!("cannot read http://{}/metrics", self.address))?;
        let answered = Instant::now();
        let reading = parse(std::str::from_utf8(&answer)?).context("its metrics are not those of a server of ours")?;
        Ok(Reading { asked_at: Some((began, answered)), ..reading })
    }

    async fn get(&self) -> anyhow::Result<Bytes> {
        let (host, port) = host_and_port(&self.address)?;
        let stream = reach(&host, port).await?;
        let dialer = Dialer::new(stream.peer_addr()?, &host, self.tls.clone())?;
        let transport = dialer.wrap(stream, Arc::default()).await?;
        get(transport, &self.address, "/metrics", FORMAT, ANSWER_BYTES_MAX).await
    }
}

/// Waits on a thread apart, because the caller may be inside a runtime.
fn within_deadline<T: Send>(work: impl Future<Output = anyhow::Result<T>> + Send) -> anyhow::Result<T> {
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::time::timeout(ANSWER_TIMEOUT, work).await? })
    };
    thread::scope(|scope| scope.spawn(wait).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Parses the parts of an `OpenMetrics` page that are needed here; `None` if it is not a whole page of ours.
fn parse(page: &str) -> Option<Reading> {
    if !page.ends_with("# EOF\n") || !page.contains(&format!("# TYPE {DURATION} histogram\n")) {
        return None;
    }
    let (mut cpu, mut start) = (None, None);
    let mut reading = Reading::default();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        // `name{label="value",…} value`: no label contains a brace, a comma or a blank, and our servers write no exemplars.
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        match name {
            CPU => cpu = Some(value.parse().ok()?),
            START => start = Some(value.parse().ok()?),
            CALLS => reading.calls += value.parse::<u64>().ok()?,
            BUCKET => {
                let bound =
                    labels.split([',', '}']).find_map(|label| label.strip_prefix("le=\"")?.strip_suffix('"'))?;
                reading.add(bound.parse().ok()?, value.parse().ok()?);
            }
            _ => {}
        }
    }
    Some(Reading { cpu_seconds: cpu?, start_seconds: start?, ..reading })
}

impl Reading {
    fn add(&mut self, bound: f64, calls: u64) {
        match self.up_to.iter_mut().find(|(known, _)| known.total_cmp(&bound).is_eq()) {
            Some((_, sum)) => *sum += calls,
            None => self.up_to.push((bound, calls)),
        }
    }

    /// Counts since `earlier`; `None` if the server was restarted in between. The CPU time is the whole process's,
    /// including that of this reading.
    pub fn since(&self, earlier: &Self) -> Option<ServerSide> {
        #[expect(clippy::float_cmp, reason = "the same process writes the same digits")]
        let restarted = self.start_seconds != earlier.start_seconds;
        if restarted || self.cpu_seconds < earlier.cpu_seconds {
            return None;
        }
        let between =
            earlier.asked_at.zip(self.asked_at).map(|(first, last)| last.1.saturating_duration_since(first.0));
        let mut below = 0;
        let latency = self.up_to.iter().enumerate().map(|(place, (bound, now))| {
            let up_to = now.saturating_sub(earlier.up_to.get(place).map_or(0, |(_, before)| *before));
            let within = up_to.saturating_sub(below);
            below = up_to;
            (*bound, within)
        });
        Some(ServerSide {
            latency: latency.collect(),
            seconds: between.unwrap_or_default().as_secs_f64(),
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            calls: self.calls.saturating_sub(earlier.calls),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    const PAGE: &str = "\
# HELP process_cpu_seconds User and system CPU time
# TYPE process_cpu_seconds counter
# UNIT process_cpu_seconds seconds
process_cpu_seconds_total 1.5
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1700000000.25
# TYPE quire_grpc_calls counter
quire_grpc_calls_total{method=\"/a.B/C\",code=\"Ok\"} 5
quire_grpc_calls_total{method=\"/a.B/C\",code=\"Cancelled\"} 1
quire_grpc_calls_total{method=\"other\",code=\"Ok\"} 2
# TYPE quire_grpc_call_duration_seconds histogram
quire_grpc_call_duration_seconds_sum{method=\"/a.B/C\"} 0.1
quire_grpc_call_duration_seconds_count{method=\"/a.B/C\"} 6
quire_grpc_call_duration_seconds_bucket{le=\"0.001\",method=\"/a.B/C\"} 2
quire_grpc_call_duration_seconds_bucket{le=\"0.002\",method=\"/a.B/C\"} 5
quire_grpc_call_duration_seconds_bucket{le=\"+Inf\",method=\"/a.B/C\"} 6
quire_grpc_call_duration_seconds_bucket{le=\"0.001\",method=\"other\"} 0
quire_grpc_call_duration_seconds_bucket{le=\"0.002\",method=\"other\"} 2
quire_grpc_call_duration_seconds_bucket{le=\"+Inf\",method=\"other\"} 2
# EOF
";

    #[test]
    fn difference_is_of_all_methods() {
        let earlier = PAGE
            .replace("process_cpu_seconds_total 1.5", "process_cpu_seconds_total 1.25")
            .replace("code=\"Ok\"} 5", "code=\"Ok\"} 4")
            .replace("le=\"+Inf\",method=\"/a.B/C\"} 6", "le=\"+Inf\",method=\"/a.B/C\"} 5")
            .replace("le=\"0.002\",method=\"/a.B/C\"} 5", "le=\"0.002\",method=\"/a.B/C\"} 4");
        let (earlier, now) = (parse(&earlier).unwrap(), parse(PAGE).unwrap());
        let side = now.since(&earlier).unwrap();
        assert!((side.cpu_seconds - 0.25).abs() < 1e-12);
        assert_eq!((side.calls, side.latency), (1, vec![(0.001, 0), (0.002, 1), (f64::INFINITY, 0)]));
        let none = Reading { start_seconds: now.start_seconds, ..Reading::default() };
        let side = now.since(&none).unwrap();
        assert_eq!((side.calls, side.latency), (8, vec![(0.001, 2), (0.002, 5), (f64::INFINITY, 1)]));
    }

    #[test]
    fn readings_of_two_processes_have_no_difference() {
        let later = PAGE.replace("1700000000.25", "1700000001.25");
        assert!(parse(&later).unwrap().since(&parse(PAGE).unwrap()).is_none());
    }

    #[test]
    fn a_page_that_does_not_hold_what_is_asked_for_is_refused() {
        let bad = [
            ("# EOF\n", ""),
            ("duration_seconds histogram", "duration_seconds gauge"),
            ("process_cpu_seconds_total 1.5\n", ""),
            ("process_start_time_seconds 1700000000.25\n", ""),
            ("le=\"0.002\",method=\"/a.B/C\"} 5", "le=\"soon\",method=\"/a.B/C\"} 5"),
            ("code=\"Ok\"} 5", "code=\"Ok\"} 5.5"),
            ("process_cpu_seconds_total 1.5", "process_cpu_seconds_total"),
        ];
        for (part, instead) in bad {
            assert_eq!(parse(&PAGE.replace(part, instead)), None, "{part} {instead}");
        }
    }

    /// A server that handles each connection with `serve`, for as long as the test runs.
    fn server(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || listener.incoming().for_each(|socket| serve(socket.unwrap())));
        address
    }

    fn answering(answer: String) -> SocketAddr {
        server(move |mut socket| {
            let mut request = [0; 1024];
            let count = socket.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..count]);
            assert!(request.starts_with("GET /metrics HTTP/1.1\r\n"), "{request}");
            assert!(request.contains("\r\naccept: application/openmetrics-text\r\n"), "{request}");
            // A client that has enough closes the connection.
            let _ = socket.write_all(answer.as_bytes());
        })
    }

    fn unchecked(address: SocketAddr) -> Probe {
        Probe { address: address.to_string(), tls: None }
    }

    #[test]
    fn a_server_of_ours_is_found_and_read() {
        let address = answering(format!("HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\n{PAGE}"));
        let probe = Probe::find(&address.to_string(), None).unwrap();
        assert_eq!(Reading { asked_at: None, ..probe.read().unwrap() }, parse(PAGE).unwrap());
    }

    #[test]
    fn other_servers_are_not_taken_for_ours() {
        let closed = ([127, 0, 0, 1], 1).into();
        let others = [
            ("no listener", closed),
            ("hangs up", server(drop)),
            ("no such page", answering("HTTP/1.1 404 Not Found\r\n\r\n".into())),
            ("no HTTP", answering("\0\0\u{6}\u{4}\0\0\0\0\0".into())),
            ("other metrics", answering("HTTP/1.1 200 OK\r\n\r\ngo_goroutines 7\n# EOF\n".into())),
            ("cut off", answering(format!("HTTP/1.1 200 OK\r\n\r\n{}", &PAGE[..PAGE.len() / 2]))),
        ];
        for (what, address) in others {
            assert!(Probe::find(&address.to_string(), None).is_none(), "{what}");
        }
        assert!(Probe::find("no address", None).is_none());
    }

    #[test]
    fn an_answer_without_end_is_read_to_the_largest_size() {
        let endless = server(|mut socket| {
            let line = "x".repeat(1 << 16);
            let _ = socket.read(&mut [0; 1024]);
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while socket.write_all(line.as_bytes()).is_ok() {}
        });
        let probe = unchecked(endless);
        let error = format!("{:#}", probe.read().unwrap_err());
        assert!(error.contains("larger than 1048576 bytes"), "{error}");
    }

    #[test]
    fn a_server_that_says_nothing_is_given_up() {
        let silent = server(std::mem::forget);
        let probe = unchecked(silent);
        // No clock is checked here: without the deadline the test would not end.
        assert!(probe.read().is_err());
    }
}
