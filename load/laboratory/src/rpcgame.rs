//! The RPC game over every transport: one call at a time and with a window, as published, and over the stream and the
//! lean protocol; compared with a client and a server in gRPC C++, if built.
//!
//! Each server has one core and the driver another. Both ends' checksums of every game must match those that this
//! module computes independently.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bench::cores::on_core;
use bench::report::page::{Card, Page, Table, Value};
use bench::report::plot::{Axis, Chart, Unit};
use bench::report::units::{self, float};
use kit::Server;
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rpcgame::driver::{self, Input, Transport};
use rpcgame::{Checksum, Sums, hash};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;

use crate::lab::{Cores, Lab};
use crate::machine::{below, exponential};
use crate::results::{Findings, Observed, Results, Summary, card, page, ratio_cells, row, runs_csv, value};

/// Lines of the input and the mean length of their names, as published.
const LINES: usize = 120;
const NAME_BYTES_MEAN: f64 = 341.0;
/// Messages of the games that every subject plays identically, for comparison of checksums.
const SAME_MESSAGES: u64 = 100_000;
/// Far longer than any game takes.
const TIMEOUT: Duration = Duration::from_mins(5);
/// Windows of the curve, each a power of four.
const WINDOWS: [u64; 7] = [16, 64, 256, 1024, 4096, 16_384, 65_536];
/// Messages of a game of the curve per message of its window: a small window is slow.
const CURVE_WINDOWS: u64 = 2000;
/// Approximate duration of a game.
const GAME: Duration = Duration::from_secs(2);

/// A client with its server.
#[derive(Clone, Copy, Debug)]
struct Subject {
    /// Name in keys.
    name: &'static str,
    /// Name for people.
    title: &'static str,
    transport: Transport,
    /// Messages in flight; 1 is a call at a time.
    window: u64,
    messages: u64,
    /// Published messages per second, if any.
    published: Option<f64>,
}

const fn subject(
    name: &'static str,
    title: &'static str,
    transport: Transport,
    window: u64,
    messages: u64,
    published: Option<f64>,
) -> Subject {
    Subject { name, title, transport, window, messages, published }
}

/// Subjects of Quire, in the order of every table.
const OURS: [Subject; 4] = [
    subject("unary", "a call at a time", Transport::Unary, 1, SAME_MESSAGES, Some(4396.0)),
    subject("windowed", "calls, 1,024 in flight", Transport::Windowed, 1024, 2_000_000, Some(33_148.0)),
    subject("stream", "frames of a gRPC stream", Transport::Stream, 65_536, 5_000_000, None),
    subject("lean", "the lean protocol", Transport::Lean, 65_536, 20_000_000, None),
];
/// The peer, written with gRPC C++.
const PEERS: [Subject; 2] = [
    subject("cpp_unary", "gRPC C++, a call at a time", Transport::Unary, 1, SAME_MESSAGES, None),
    subject("cpp_windowed", "gRPC C++, 1,024 in flight", Transport::Windowed, 1024, SAME_MESSAGES, None),
];
/// Subjects of Quire and of the peer that are compared.
const PAIRS: [(Subject, Subject); 2] = [(OURS[0], PEERS[0]), (OURS[1], PEERS[1])];
/// Subjects with a window, and so a curve.
const CURVED: [&str; 3] = ["windowed", "stream", "lean"];

const GAMES: [&str; 8] = [
    "subject",
    "window",
    "round",
    "messages",
    "seconds",
    "messages_per_second=per_second",
    "server_cpu_us_a_message=server_cpu_us",
    "driver_cpu_us_a_message=driver_cpu_us",
];

/// Starts the servers, plays, and returns the findings.
pub(crate) fn run(lab: &mut Lab) -> anyhow::Result<Findings> {
    let arena = Arena::open(lab)?;
    if arena.peer.is_none() {
        let reason = "gRPC C++: the programs of load/peers/rpcgame-cpp are not there; `make reproduce` builds them where \
                      libgrpc++ is installed";
        lab.missing.push(reason.to_owned());
    }
    let subjects: Vec<Subject> = OURS.into_iter().chain(arena.peer.iter().flat_map(|_| PEERS)).collect();
    let names: Vec<&'static str> = subjects.iter().map(|subject| subject.name).collect();
    let of = |name: &str| *subjects.iter().find(|subject| subject.name == name).expect("one of the names");
    lab.progress.expect(subjects.len() + lab.options.rounds * (names.len() + CURVED.len() * WINDOWS.len()), GAME);
    for subject in &subjects {
        lab.progress.begin(format!("first game, {}", subject.name), None);
        let seen = arena.play(Subject { messages: SAME_MESSAGES, ..*subject })?;
        lab.progress.end(&format!("{:.0} messages/s", seen.figure("per_second")));
    }
    let curve = WINDOWS.map(|window| (window_name(window), window));
    for round in lab.rounds() {
        lab.in_turns(round, &names, &[(String::new(), ())], |name, ()| arena.play(of(name)))?;
        lab.in_turns(round, &CURVED, &curve, |name, window| {
            let (subject, window) = (of(name), *window);
            arena.play(Subject { window, messages: subject.messages.min(window * CURVE_WINDOWS), ..subject })
        })?;
    }
    findings(&lab.results, &subjects, expected(&arena.input, SAME_MESSAGES))
}

fn window_name(window: u64) -> String {
    format!("window_{window}")
}

/// The servers, the input, and the cores.
struct Arena {
    input: Input,
    input_path: PathBuf,
    server: Server,
    grpc: SocketAddr,
    lean: SocketAddr,
    peer: Option<Peer>,
    cores: Cores,
}

/// The client and the server of gRPC C++.
struct Peer {
    server: Server,
    client: PathBuf,
}

/// A game's time, and its client's checksums and CPU time, which is unknown for a peer.
type Played = (Duration, Sums, Option<Duration>);

impl Arena {
    fn open(lab: &Lab) -> anyhow::Result<Self> {
        let cores = lab.cores;
        let input_path = lab.folder().join("lines.txt");
        std::fs::write(&input_path, lines_of_input(lab.options.seed)).context("the input cannot be written")?;
        let input = Input::read(&input_path)?;
        let settings = ["rpcgame.listen=127.0.0.1:0", "rpcgame.lean_listen=127.0.0.1:0", "server.threads=1"];
        let server = on_core(cores.server, || lab.quire("quire", "rpcgame", &settings))?;
        let words = "the RPC game has ports of its own";
        let (grpc, lean) = (server.address_after(words, "grpc=")?, server.address_after(words, "lean=")?);
        let folder = lab.options.peers.with_file_name("rpcgame-cpp");
        let (client, program) = (folder.join("rpcgame-client"), folder.join("rpcgame-server"));
        let start = || Server::start("gRPC C++", Command::new(&program).arg("127.0.0.1:0"));
        let peer = if client.is_file() && program.is_file() {
            Some(Peer { server: on_core(cores.server, start)?, client })
        } else {
            None
        };
        Ok(Self { input, input_path, server, grpc, lean, peer, cores })
    }

    fn play(&self, subject: Subject) -> anyhow::Result<Observed> {
        let is_peer = PEERS.iter().any(|peer| peer.name == subject.name);
        let peer = self.peer.as_ref().filter(|_| is_peer);
        let server = peer.map_or(&self.server, |peer| &peer.server);
        let before = server.cpu()?;
        let (elapsed, sums, driver_cpu) = on_core(self.cores.client, || match peer {
            Some(peer) => self.watch(peer, subject),
            None => self.drive(subject),
        })?;
        let server_cpu = server.cpu()?.saturating_sub(before);
        let right = expected(&self.input, subject.messages);
        ensure!(sums == right, "{} has the checksums {sums} and should have {right}", subject.name);
        let messages = float(subject.messages);
        let us_a_message = |cpu: Duration| cpu.as_secs_f64() * 1e6 / messages;
        Ok(Observed::new([
            ("window", float(subject.window)),
            ("messages", messages),
            ("seconds", elapsed.as_secs_f64()),
            ("per_second", messages / elapsed.as_secs_f64()),
            ("server_cpu_us", us_a_message(server_cpu)),
            ("driver_cpu_us", driver_cpu.map_or(f64::NAN, us_a_message)),
        ]))
    }

    /// Plays with the driver of `quire game`, on this thread.
    fn drive(&self, subject: Subject) -> anyhow::Result<Played> {
        let Subject { name, transport, messages, window, .. } = subject;
        let address = if transport == Transport::Lean { self.lean } else { self.grpc };
        let (address, window, timeout) = (address.to_string(), Some(window), Some(TIMEOUT));
        let options = driver::Options { address, transport, messages, window, timeout, token: None, tls: None };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let before = thread_cpu();
        let outcome = runtime.block_on(driver::play(&self.input, &options, |_| {}))?;
        let spent = thread_cpu().saturating_sub(before);
        ensure!(outcome.matches(), "{name}: client and server have different checksums: {outcome}");
        ensure!(outcome.messages == messages, "{} of {messages} messages were played", outcome.messages);
        Ok((outcome.elapsed, outcome.ours, Some(spent)))
    }

    /// Runs the peer's client.
    fn watch(&self, peer: &Peer, subject: Subject) -> anyhow::Result<Played> {
        let mut command = Command::new(&peer.client);
        command.arg(peer.server.address.to_string()).arg(&self.input_path);
        let output = command.args([subject.messages.to_string(), subject.window.to_string()]).output()?;
        let output_text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{}: {}{output_text}", subject.name, String::from_utf8_lossy(&output.stderr));
        let (elapsed, sums) =
            parse_output(&output_text).with_context(|| format!("{} printed {output_text:?}", subject.name))?;
        Ok((elapsed, sums, None))
    }
}

/// Time and checksums in the output of the gRPC C++ client, which fails if its ends differ.
fn parse_output(output_text: &str) -> Option<(Duration, Sums)> {
    let sums = output_text.lines().find_map(|line| line.strip_prefix("client's checksums: client "))?;
    let (client, server) = sums.split_once(", server ")?;
    let sums = Sums { client: u64::from_str_radix(client, 16).ok()?, server: u64::from_str_radix(server, 16).ok()? };
    let seconds = output_text.lines().find_map(|line| line.split_once(" messages in ")?.1.split_once(" s:"))?.0;
    Some((Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?, sums))
}

/// Checksums of a game of `messages` messages.
fn expected(input: &Input, messages: u64) -> Sums {
    let hashes: Vec<u64> = input.pairs().iter().map(|pair| hash(&pair.name)).collect();
    let (mut client, mut server) = (Checksum::default(), Checksum::default());
    for (number, (place, pair)) in (0..messages).zip(input.cycle()) {
        client.add(&pair.name);
        client.add_number(pair.count);
        server.add_number(hashes[place].wrapping_add(pair.count).wrapping_add(number));
    }
    Sums { client: client.value(), server: server.value() }
}

/// An input like the published one: lines of words, of very different lengths, with large numbers.
fn lines_of_input(seed: u64) -> String {
    let mut numbers = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut lines = String::new();
    for _ in 0..LINES {
        // The lengths of the published names are nearly exponential.
        for _ in 0..=exponential(&mut numbers, NAME_BYTES_MEAN) {
            lines.push(char::from(b"etaoin shrdlu "[below(&mut numbers, 14)]));
        }
        lines.extend([",", &numbers.next_u64().to_string(), "\n"]);
    }
    lines
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanos)
}

fn findings(results: &Results, subjects: &[Subject], same: Sums) -> anyhow::Result<Findings> {
    let (games, windows) = results.all().iter().partition::<Vec<_>, _>(|one| one.load.is_empty());
    let csvs = vec![("games.csv", runs_csv(games, &GAMES)?), ("windows.csv", runs_csv(windows, &GAMES)?)];
    Ok(Findings { page: the_page(results, subjects, same), csvs, summary: summary(results, subjects) })
}

fn the_page(results: &Results, subjects: &[Subject], same: Sums) -> Page {
    let page = page("The RPC game's experiment", 
            "Numbered messages, handled in order and hashed at both ends, over four transports. The server has one \
             core and the driver another; in every game both ends reached the checksums that the experiment computes apart from them.",
        )
        .cards(cards(results))
        .heading("Every transport")
        .paragraph(
            "Messages a second from the first message to the server's checksums; medians over the rounds. The server's \
             CPU is that of its process, the driver's that of its thread; user and system together.",
        )
        .table(transports(results, subjects))
        .heading("By window")
        .charts(vec![curve(results)])
        .footer(format!("Every subject reached {same} with {SAME_MESSAGES} messages."));
    if subjects.len() == OURS.len() {
        return page;
    }
    page.heading("Against gRPC C++")
        .paragraph(
            "The same contract and the same pattern of calls with gRPC C++ at both ends (a callback server, a \
             completion-queue client), its server on the same core as ours and its client on the driver's, in turns.",
        )
        .table(peers(results))
}

fn cards(results: &Results) -> Vec<Card> {
    let of = |subject: &Subject| {
        let rate = results.median("", subject.name, "per_second");
        let note = |published| format!("{:.0} times the published {}", rate / published, units::number(published));
        let millions: fn(f64) -> String = |rate| format!("{} million/s", units::number(rate / 1e6));
        let note = subject.published.map_or_else(String::new, note);
        card(subject.title, value(format!("{}_per_second", subject.name), rate, millions), note)
    };
    OURS[1..].iter().map(of).collect()
}

fn transports(results: &Results, subjects: &[Subject]) -> Table {
    let heads =
        ["transport", "published", "messages/s", "least", "most", "server CPU, µs", "driver CPU, µs", "messages"];
    let rows = subjects.iter().map(|subject| {
        let cell = |figure| results.cell("", subject.name, figure, units::number);
        let rates = results.figures("", subject.name, "per_second");
        let least = rates.iter().copied().fold(f64::NAN, f64::min);
        let most = rates.iter().copied().fold(f64::NAN, f64::max);
        let spread = [least, most].map(|rate| Value::text(units::number(rate)));
        let cells = [cell("per_second")].into_iter().chain(spread);
        let cells =
            cells.chain([cell("server_cpu_us"), cell("driver_cpu_us"), Value::text(units::count(subject.messages))]);
        row([subject.title, &subject.published.map_or_else(String::new, units::number)], cells)
    });
    Table::of_numbers("Messages a second", heads, rows)
}

fn peers(results: &Results) -> Table {
    let heads = ["", "Quire", "gRPC C++", "ratio", "95% interval", "server CPU, µs", "C++ server CPU, µs"];
    let rows = PAIRS.map(|(ours, peer)| {
        let pair = |figure| [ours, peer].map(|subject| results.cell("", subject.name, figure, units::number));
        let ratio = ratio_cells(format!("{}_ratio", ours.name), results.ratio("per_second", "", ours.name, peer.name));
        row([ours.title], pair("per_second").into_iter().chain(ratio).chain(pair("server_cpu_us")))
    });
    Table::of_numbers("Messages a second", heads, rows)
}

fn curve(results: &Results) -> Chart {
    let caption = "The window is how many messages may be sent and not yet answered; medians over the rounds.";
    let axes = (Axis::log("window", Unit::Count), Axis::log("messages a second", Unit::Count));
    let series = CURVED.map(|name| {
        let rate = |window| results.median(&window_name(window), name, "per_second");
        (name, WINDOWS.map(|window| (float(window), rate(window))).to_vec())
    });
    Chart::of_lines("Messages a second against the window", caption, axes, series)
}

fn summary(results: &Results, subjects: &[Subject]) -> Summary {
    let mut summary = Summary::default();
    for subject in subjects {
        summary.medians(results, "", &[subject.name], &["per_second", "server_cpu_us", "driver_cpu_us"]);
        summary.add(format!("{}_published_per_second", subject.name), subject.published.unwrap_or(f64::NAN));
    }
    for (ours, peer) in PAIRS {
        summary.ratio(&format!("{}_ratio", ours.name), results.ratio("per_second", "", ours.name, peer.name));
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_has_the_published_shape() {
        let text = lines_of_input(1);
        assert_eq!(text.lines().count(), LINES);
        let names: Vec<usize> = text.lines().map(|line| line.rfind(',').expect("a comma")).collect();
        let mean = names.iter().sum::<usize>() / LINES;
        assert!((250..450).contains(&mean), "{mean} bytes");
        assert_eq!(text, lines_of_input(1), "the same seed makes the same input");
    }

    #[test]
    fn checksums_are_those_of_another_implementation() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        std::io::Write::write_all(&mut file, b"reef,5\nkelp,18446744073709551615\n").expect("room");
        let input = Input::read(file.path()).expect("pairs");
        assert_eq!(expected(&input, 3), Sums { client: SUMS[0], server: SUMS[1] });
    }

    // By Python's xxhash, of the three messages of the test above.
    const SUMS: [u64; 2] = [0x49fa_8d81_901a_80d8, 0x6f32_66ae_1684_a1bd];

    #[test]
    fn the_output_of_the_peer_is_parsed() {
        let output_text = "client's checksums: client 00000000000000ff, server 0000000000000001\nthey match\n\
                    1000 messages in 0.25 s: 4000 a second\n";
        assert_eq!(parse_output(output_text), Some((Duration::from_millis(250), Sums { client: 255, server: 1 })));
        assert_eq!(parse_output("nothing"), None);
    }
}
