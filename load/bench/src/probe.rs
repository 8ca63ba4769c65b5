//! Reads what one of our servers counts: CPU time of its process, calls, and its own histogram of their times.
//!
//! The load reads before and after. Blocking, with a deadline and a limit on bytes, because nothing else runs while a
//! reading is taken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
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
/// Metric family that distinguishes our servers from others with metrics.
const DURATION: &str = "quire_grpc_call_duration_seconds";
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
    methods: BTreeMap<String, Method>,
}

/// Calls of one method.
#[derive(Clone, Debug, Default, PartialEq)]
struct Method {
    calls: u64,
    /// Upper bounds in seconds, ascending, with the calls up to each, as in the text format.
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
        let reading = parse(std::str::from_utf8(&answer)?)?;
        Ok(Reading { asked_at: Some((began, answered)), ..reading })
    }

    async fn get(&self) -> anyhow::Result<Bytes> {
        let (host, port) = host_and_port(&self.address)?;
        let stream = reach(&host, port).await?;
        let dialer = Dialer::new(stream.peer_addr()?, &host, self.tls.clone())?;
        let transport = dialer.wrap(stream, Arc::default()).await?;
        get(transport, &self.address, "/metrics", ANSWER_BYTES_MAX).await
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

/// Parses the parts of an `OpenMetrics` page that are needed here; other lines are skipped.
fn parse(page: &str) -> anyhow::Result<Reading> {
    if !page.ends_with("# EOF\n") {
        bail!("its metrics are cut off: there is no '# EOF' at their end");
    }
    if !page.contains(&format!("# TYPE {DURATION} histogram\n")) {
        bail!("its metrics have no histogram {DURATION}");
    }
    let (mut cpu, mut start) = (None, None);
    let mut reading = Reading::default();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let sample =
            Sample::parse(line).with_context(|| format!("its metrics have a line that cannot be read: {line}"))?;
        let count = || sample.value.parse::<u64>().with_context(|| format!("no whole number: {line}"));
        let method = || sample.label("method").with_context(|| format!("no method in {line}")).map(str::to_owned);
        match sample.name {
            CPU => cpu = Some(sample.value.parse()?),
            START => start = Some(sample.value.parse()?),
            CALLS => reading.methods.entry(method()?).or_default().calls += count()?,
            name if name.strip_prefix(DURATION) == Some("_bucket") => {
                let bound = sample.label("le").and_then(|bound| bound.parse().ok());
                let bound: f64 = bound.with_context(|| format!("no bound in {line}"))?;
                let up_to = &mut reading.methods.entry(method()?).or_default().up_to;
                if up_to.last().is_some_and(|(last, below)| bound <= *last || count().is_ok_and(|count| count < *below))
                {
                    bail!("its histogram is out of order at {line}");
                }
                up_to.push((bound, count()?));
            }
            _ => {}
        }
    }
    reading.cpu_seconds = cpu.with_context(|| format!("its metrics have no {CPU}"))?;
    reading.start_seconds = start.with_context(|| format!("its metrics have no {START}"))?;
    Ok(reading)
}

/// `name{label="value",…} value`
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: &'a str,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        // Neither a method nor a bound contains a brace or a blank, and our servers write no exemplars.
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = match series.split_once('{') {
            None => (series, ""),
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
        };
        Some(Self { name, labels, value })
    }

    fn label(&self, wanted: &str) -> Option<&'a str> {
        let mut labels = self.labels.split(',').filter_map(|label| label.split_once('='));
        labels.find(|(name, _)| *name == wanted)?.1.strip_prefix('"')?.strip_suffix('"')
    }
}

impl Method {
    /// Adds the calls within each bound since `before` to those of other methods, whose bounds are the same.
    fn add_since(&self, before: &Self, latency: &mut Vec<(f64, u64)>) {
        let mut below = 0;
        for (place, (bound, now)) in self.up_to.iter().enumerate() {
            let up_to = now.saturating_sub(before.up_to.get(place).map_or(0, |(_, before)| *before));
            if latency.len() <= place {
                latency.push((*bound, 0));
            }
            latency[place].1 += up_to.saturating_sub(below);
            below = up_to;
        }
    }
}

impl Reading {
    /// Counts since `earlier`, of all methods or of one (`/package.Service/Method`); `None` if the server was restarted
    /// in between. A method that the server does not count by name has no calls here. The CPU time is the whole
    /// process's, including that of this reading.
    pub fn since(&self, earlier: &Self, method: Option<&str>) -> Option<ServerSide> {
        #[expect(clippy::float_cmp, reason = "the same process writes the same digits")]
        let restarted = self.start_seconds != earlier.start_seconds;
        if restarted || self.cpu_seconds < earlier.cpu_seconds {
            return None;
        }
        let between =
            earlier.asked_at.zip(self.asked_at).map(|(first, last)| last.1.saturating_duration_since(first.0));
        let mut side = ServerSide {
            seconds: between.unwrap_or_default().as_secs_f64(),
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            ..ServerSide::default()
        };
        let none = Method::default();
        let bare = |name: &str| name.trim_start_matches('/').to_owned();
        for (name, now) in &self.methods {
            if method.is_none_or(|method| bare(method) == bare(name)) {
                let before = earlier.methods.get(name).unwrap_or(&none);
                side.calls += now.calls.saturating_sub(before.calls);
                now.add_since(before, &mut side.latency);
            }
        }
        Some(side)
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
    fn difference_is_of_one_method_or_of_all() {
        let earlier = PAGE
            .replace("process_cpu_seconds_total 1.5", "process_cpu_seconds_total 1.25")
            .replace("code=\"Ok\"} 5", "code=\"Ok\"} 4")
            .replace("le=\"+Inf\",method=\"/a.B/C\"} 6", "le=\"+Inf\",method=\"/a.B/C\"} 5")
            .replace("le=\"0.002\",method=\"/a.B/C\"} 5", "le=\"0.002\",method=\"/a.B/C\"} 4");
        let (earlier, now) = (parse(&earlier).unwrap(), parse(PAGE).unwrap());
        let side = now.since(&earlier, None).unwrap();
        assert!((side.cpu_seconds - 0.25).abs() < 1e-12);
        assert_eq!((side.calls, side.latency), (1, vec![(0.001, 0), (0.002, 1), (f64::INFINITY, 0)]));
        let all = Reading { start_seconds: now.start_seconds, ..Reading::default() };
        let side = now.since(&all, None).unwrap();
        assert_eq!((side.calls, side.latency), (8, vec![(0.001, 2), (0.002, 5), (f64::INFINITY, 1)]));
        for name in ["a.B/C", "/a.B/C"] {
            let side = now.since(&all, Some(name)).unwrap();
            assert_eq!((side.calls, side.latency), (6, vec![(0.001, 2), (0.002, 3), (f64::INFINITY, 1)]));
        }
        assert_eq!(now.since(&all, Some("/a.B/Absent")).unwrap().calls, 0);
    }

    #[test]
    fn readings_of_two_processes_have_no_difference() {
        let later = PAGE.replace("1700000000.25", "1700000001.25");
        assert!(parse(&later).unwrap().since(&parse(PAGE).unwrap(), None).is_none());
    }

    #[test]
    fn a_page_that_does_not_hold_what_is_asked_for_is_refused() {
        let bad = [
            ("# EOF\n", "", "cut off"),
            ("duration_seconds histogram", "duration_seconds gauge", "no histogram"),
            ("process_cpu_seconds_total 1.5\n", "", "no process_cpu_seconds_total"),
            ("process_start_time_seconds 1700000000.25\n", "", "no process_start_time_seconds"),
            ("le=\"0.002\",method=\"/a.B/C\"} 5", "le=\"0.002\",method=\"/a.B/C\"} 1", "out of order"),
            ("le=\"0.002\",method=\"/a.B/C\"} 5", "le=\"soon\",method=\"/a.B/C\"} 5", "no bound"),
            ("code=\"Ok\"} 5", "code=\"Ok\"} 5.5", "no whole number"),
            ("code=\"Ok\"} 5", "code=\"Ok\" 5", "a line that cannot be read"),
        ];
        for (part, instead, words) in bad {
            let error = format!("{:#}", parse(&PAGE.replace(part, instead)).unwrap_err());
            assert!(error.contains(words), "{error}");
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
            assert!(request[..count].starts_with(b"GET /metrics HTTP/1.1\r\n"));
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
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
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
