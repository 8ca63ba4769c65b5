//! The RPC game over every transport: one call at a time and with a window, as published, and over the stream and the
//! lean protocol; beside them a client and a server written with gRPC C++, where these were built.
//!
//! Each server has one core and the driver another. Every game's checksums, from both of its ends, must be those that
//! are worked out here.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rpcgame::driver::{self, Input, Transport};
use rpcgame::{Checksum, Sums, hash};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;

use crate::server::Server;
use crate::{Findings, Options};
use bench::cores::{cores, pin_to};
use bench::stats::order::Orders;

/// Lines of the input, and the mean length of their names: those of the published input.
const LINES: usize = 120;
const NAME_BYTES_MEAN: f64 = 341.0;
/// Messages of the games in which every subject plays the same, to be compared by their checksums.
pub(super) const SAME_MESSAGES: u64 = 100_000;
/// No game takes nearly so long.
const PATIENCE: Duration = Duration::from_mins(5);
/// Windows of the curve, each a power of four.
pub(super) const WINDOWS: [u64; 7] = [16, 64, 256, 1024, 4096, 16_384, 65_536];
/// Messages of a game of the curve for each message of its window: a small window is slow.
const CURVE_WINDOWS: u64 = 2000;
/// What a game takes, more or less.
const GAME: Duration = Duration::from_secs(2);

/// A client with its server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    /// For programs.
    pub(super) name: &'static str,
    /// For people.
    pub(super) title: &'static str,
    pub(super) transport: Transport,
    /// Messages sent and not yet answered; 1 is a call at a time.
    pub(super) window: u64,
    pub(super) messages: u64,
    /// Messages a second, where some were published.
    pub(super) published: Option<f64>,
    /// Written with gRPC C++.
    pub(super) is_peer: bool,
}

const fn ours(name: &'static str, title: &'static str, transport: Transport, window: u64, messages: u64) -> Subject {
    Subject { name, title, transport, window, messages, published: None, is_peer: false }
}

/// In the order of every table.
pub(super) const SUBJECTS: [Subject; 6] = [
    Subject { published: Some(4396.0), ..ours("unary", "a call at a time", Transport::Unary, 1, SAME_MESSAGES) },
    Subject {
        published: Some(33_148.0),
        ..ours("windowed", "calls, 1,024 under way", Transport::Windowed, 1024, 2_000_000)
    },
    ours("stream", "frames of a gRPC stream", Transport::Stream, 65_536, 5_000_000),
    ours("lean", "the lean protocol", Transport::Lean, 65_536, 20_000_000),
    Subject { is_peer: true, ..ours("cpp_unary", "gRPC C++, a call at a time", Transport::Unary, 1, SAME_MESSAGES) },
    Subject {
        is_peer: true,
        ..ours("cpp_windowed", "gRPC C++, 1,024 under way", Transport::Windowed, 1024, SAME_MESSAGES)
    },
];

/// A game that was played.
#[derive(Clone, Copy, Debug)]
pub(super) struct Game {
    pub(super) subject: Subject,
    /// As its subject has it, except on the curve.
    pub(super) window: u64,
    pub(super) round: usize,
    pub(super) messages: u64,
    pub(super) elapsed: Duration,
    /// Of the server's process.
    pub(super) server_cpu: Duration,
    /// Of the driver's thread; a peer's is not known.
    pub(super) driver_cpu: Option<Duration>,
}

impl Game {
    /// Messages a second.
    pub(super) fn rate(&self) -> f64 {
        real(self.messages) / self.elapsed.as_secs_f64()
    }

    fn words(&self) -> String {
        format!("{:.0} messages/s", self.rate())
    }

    /// Microseconds of the server's CPU a message.
    pub(super) fn server_cpu_us(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / real(self.messages)
    }

    /// Microseconds of the driver's CPU a message.
    pub(super) fn driver_cpu_us(&self) -> Option<f64> {
        Some(self.driver_cpu?.as_secs_f64() * 1e6 / real(self.messages))
    }
}

/// Everything played.
#[derive(Clone, Debug, Default)]
pub(super) struct Games {
    /// At the windows and with the messages of the subjects.
    pub(super) measured: Vec<Game>,
    /// By window.
    pub(super) curve: Vec<Game>,
    /// The sums of [`SAME_MESSAGES`] that every subject came to.
    pub(super) same: Option<Sums>,
    /// Whether the peer was there.
    pub(super) has_peer: bool,
}

/// Starts the servers, plays, and says what was found.
pub(super) fn run_experiment(options: &Options) -> anyhow::Result<Findings> {
    let arena = Arena::open(options)?;
    let mut games = Games { has_peer: arena.peer.is_some(), ..Games::default() };
    let subjects: Vec<Subject> = SUBJECTS.into_iter().filter(|subject| games.has_peer || !subject.is_peer).collect();
    let curved: Vec<Subject> =
        subjects.iter().copied().filter(|subject| subject.window > 1 && !subject.is_peer).collect();
    let games_a_round = subjects.len() + curved.len() * WINDOWS.len();
    options.progress.expect(subjects.len() + options.rounds * games_a_round, GAME);
    for subject in &subjects {
        options.progress.begin(format!("first game, {}", subject.name), None);
        let game = arena.play(&Subject { messages: SAME_MESSAGES, ..*subject }, 0)?;
        options.progress.end(&game.words());
    }
    games.same = Some(expected(&arena.input, SAME_MESSAGES));
    let mut orders = Orders::new(options.seed);
    for round in 0..options.rounds {
        let turn = format!("round {} of {}", round + 1, options.rounds);
        for place in orders.order(subjects.len()) {
            options.progress.begin(format!("{turn}, {}", subjects[place].name), None);
            let game = arena.play(&subjects[place], round)?;
            options.progress.end(&game.words());
            games.measured.push(game);
        }
        for subject in &curved {
            for window in WINDOWS {
                options.progress.begin(format!("{turn}, {} with a window of {window}", subject.name), None);
                let messages = subject.messages.min(window * CURVE_WINDOWS);
                let game = arena.play(&Subject { window, messages, ..*subject }, round)?;
                options.progress.end(&game.words());
                games.curve.push(game);
            }
        }
    }
    arena.close()?;
    crate::rpcgame_page::findings(&games)
}

/// The servers, the input, and the cores.
struct Arena {
    /// Of the databases and the input; removed when the servers have ended.
    folder: tempfile::TempDir,
    input: Input,
    input_path: PathBuf,
    server: Server,
    grpc: SocketAddr,
    lean: SocketAddr,
    peer: Option<Peer>,
    driver_core: usize,
}

/// The client and the server of gRPC C++.
struct Peer {
    server: Server,
    client: PathBuf,
}

impl Arena {
    fn open(options: &Options) -> anyhow::Result<Self> {
        let cores = cores();
        let (Some(&server_core), Some(&driver_core)) = (cores.first(), cores.last()) else {
            return Err(anyhow!("this process has no core to run on"));
        };
        let folder =
            tempfile::Builder::new().prefix("data-").tempdir_in(&options.out).context("no folder for the servers")?;
        let input_path = folder.path().join("lines.txt");
        std::fs::write(&input_path, lines(options.seed)).context("the input cannot be written")?;
        let input = Input::read(&input_path)?;
        let mut quire = Command::new(&options.quire);
        quire.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
        let settings = ["rpcgame.listen=127.0.0.1:0", "rpcgame.lean_listen=127.0.0.1:0", "server.threads=1"];
        for setting in settings.into_iter().chain(["kv.enabled=false", "tasks.enabled=false"]) {
            quire.args(["--set", setting]);
        }
        let server = Server::start_on(server_core, "quire", &mut quire)?;
        let words = "the RPC game has ports of its own";
        let (grpc, lean) = (server.told(words, "grpc=")?, server.told(words, "lean=")?);
        let peer = Peer::start(&options.peers, server_core)?;
        Ok(Self { folder, input, input_path, server, grpc, lean, peer, driver_core })
    }

    fn close(self) -> anyhow::Result<()> {
        if let Some(peer) = self.peer {
            peer.server.stop()?;
        }
        self.server.stop()?;
        self.folder.close().context("the servers' folder cannot be removed")
    }

    fn play(&self, subject: &Subject, round: usize) -> anyhow::Result<Game> {
        let peer = self.peer.as_ref().filter(|_| subject.is_peer);
        let server = peer.map_or(&self.server, |peer| &peer.server);
        let before = server.cpu()?;
        let (elapsed, sums, driver_cpu) = match peer {
            Some(peer) => peer.play(subject, &self.input_path, self.driver_core)?,
            None => self.drive(subject)?,
        };
        let server_cpu = server.cpu()?.saturating_sub(before);
        let right = expected(&self.input, subject.messages);
        ensure!(sums == right, "{} has the checksums {sums} and should have {right}", subject.name);
        let (window, messages) = (subject.window, subject.messages);
        Ok(Game { subject: *subject, window, round, messages, elapsed, server_cpu, driver_cpu })
    }

    /// Plays with the driver of `quire game`, on a thread of its own.
    fn drive(&self, subject: &Subject) -> anyhow::Result<(Duration, Sums, Option<Duration>)> {
        let address = if subject.transport == Transport::Lean { self.lean } else { self.grpc };
        let (transport, messages, window) = (subject.transport, subject.messages, subject.window);
        let options = driver::Options {
            address: address.to_string(),
            transport,
            messages,
            window: Some(window),
            timeout: Some(PATIENCE),
        };
        let drive = || {
            pin_to(self.driver_core)?;
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let before = thread_cpu();
            let outcome = runtime.block_on(driver::play(&self.input, &options, |_| {}))?;
            let spent = thread_cpu().saturating_sub(before);
            ensure!(outcome.matches(), "{}: client and server have different checksums: {outcome}", subject.name);
            ensure!(outcome.messages == messages, "{} of {messages} messages were played", outcome.messages);
            anyhow::Ok((outcome.elapsed, outcome.ours, Some(spent)))
        };
        let driven = std::thread::scope(|threads| threads.spawn(drive).join());
        driven.map_err(|_| anyhow!("the driver panicked"))?
    }
}

impl Peer {
    /// None where it was not built.
    fn start(peers: &Path, core: usize) -> anyhow::Result<Option<Self>> {
        let folder = peers.with_file_name("rpcgame-cpp");
        let (client, program) = (folder.join("rpcgame-client"), folder.join("rpcgame-server"));
        if !(client.is_file() && program.is_file()) {
            return Ok(None);
        }
        let server = Server::start_on(core, "gRPC C++", Command::new(program).arg("127.0.0.1:0"))?;
        Ok(Some(Self { server, client }))
    }

    fn play(&self, subject: &Subject, input: &Path, core: usize) -> anyhow::Result<(Duration, Sums, Option<Duration>)> {
        let mut command = Command::new(&self.client);
        command.arg(self.server.address.to_string()).arg(input);
        command.args([subject.messages.to_string(), subject.window.to_string()]);
        let run = || {
            pin_to(core)?;
            anyhow::Ok(command.output()?)
        };
        let output = std::thread::scope(|threads| threads.spawn(run).join());
        let output = output.map_err(|_| anyhow!("the thread that runs the client panicked"))??;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{}: {}{said}", subject.name, String::from_utf8_lossy(&output.stderr));
        let (elapsed, sums) = said_by_peer(&said).with_context(|| format!("{} said {said:?}", subject.name))?;
        Ok((elapsed, sums, None))
    }
}

/// The time and the client's checksums in what the client of gRPC C++ prints; both ends have the same, or it fails.
fn said_by_peer(said: &str) -> Option<(Duration, Sums)> {
    let sums = said.lines().find_map(|line| line.strip_prefix("client's checksums: client "))?;
    let (client, server) = sums.split_once(", server ")?;
    let sums = Sums { client: u64::from_str_radix(client, 16).ok()?, server: u64::from_str_radix(server, 16).ok()? };
    let seconds = said.lines().find_map(|line| line.split_once(" messages in ")?.1.split_once(" s:"))?.0;
    Some((Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?, sums))
}

/// What a game of so many messages must come to.
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

/// An input as the published one is: lines of words, of very different lengths, with large numbers.
fn lines(seed: u64) -> String {
    let mut numbers = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut lines = String::new();
    for _ in 0..LINES {
        // Exponential, as the lengths of the published names nearly are.
        let bytes = 1.0 - NAME_BYTES_MEAN * uniform(&mut numbers).ln();
        let mut length = 0.0;
        while length < bytes {
            lines.push(char::from(b"etaoin shrdlu "[below(&mut numbers, 14)]));
            length += 1.0;
        }
        lines.extend([",", &numbers.next_u64().to_string(), "\n"]);
    }
    lines
}

/// Above 0 and at most 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
fn uniform(numbers: &mut Xoshiro256PlusPlus) -> f64 {
    ((numbers.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// A number below `count`, which is small: that some are likelier by 2^-60 does not matter here.
fn below(numbers: &mut Xoshiro256PlusPlus, count: u64) -> usize {
    usize::try_from(numbers.next_u64() % count).unwrap_or(0)
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanos)
}

#[expect(clippy::cast_precision_loss, reason = "counts of messages are far below 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_has_the_published_shape() {
        let text = lines(1);
        assert_eq!(text.lines().count(), LINES);
        let names: Vec<usize> = text.lines().map(|line| line.rfind(',').expect("a comma")).collect();
        let mean = names.iter().sum::<usize>() / LINES;
        assert!((250..450).contains(&mean), "{mean} bytes");
        assert_eq!(text, lines(1), "the same seed makes the same input");
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
    fn what_the_peer_says_is_understood() {
        let said = "client's checksums: client 00000000000000ff, server 0000000000000001\nthey match\n\
                    1000 messages in 0.25 s: 4000 a second\n";
        assert_eq!(said_by_peer(said), Some((Duration::from_millis(250), Sums { client: 255, server: 1 })));
        assert_eq!(said_by_peer("nothing"), None);
    }
}
