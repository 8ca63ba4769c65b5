//! Tasks over lines: an input is one connection with everything a client sends before it ends its side. Replies are
//! checked to the byte; errors in text only by kind.

use std::collections::HashMap;

use ::tasks::{Concurrency, Metrics, Server, Settings};
use prometheus_client::registry::Registry;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use rand_xoshiro::Xoshiro256StarStar;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::Judge;
use crate::random::Random;
use crate::tally::Tally;

const MEMORY: usize = 1 << 20;
/// Number of seeds for CPU-bound tasks; few, because the definition is slow.
const CPU_SEEDS: usize = 48;
/// Rarely used, larger number, because most results are 0.
const CPU_SEEDS_RARE: usize = 20_000;
const LINE_BYTES_MAX: usize = 64;

/// The definition, implemented literally.
fn compute(kind: u8, seed: u64) -> u8 {
    if kind == 1 {
        let mut numbers = ChaCha20Rng::seed_from_u64(seed);
        let _wait_ms: usize = numbers.gen_range(0..=2000);
        return numbers.r#gen();
    }
    let mut numbers = Xoshiro256StarStar::seed_from_u64(seed);
    let mut multiples = vec![1; 12];
    multiples.extend([4, 16, 64, 256]);
    let rounds = multiples[numbers.r#gen::<usize>() % 16] * 4096;
    let (mut data, mut dep) = (vec![0_u8; MEMORY], 0_u8);
    for _ in 0..rounds {
        let index = (numbers.r#gen::<usize>() % MEMORY + usize::from(dep)) % MEMORY;
        data[index] = data[index].wrapping_add(numbers.r#gen());
        dep = dep.wrapping_add(data[index]);
    }
    data[(numbers.r#gen::<usize>() % MEMORY + usize::from(dep)) % MEMORY]
}

enum Meaning {
    Task(u8, u64),
    Hello,
    /// Prefix of the expected error in a text reply.
    Bad(&'static str),
}

fn meaning(line: &[u8]) -> Meaning {
    if line.len() > LINE_BYTES_MAX {
        return Meaning::Bad("ERR the line is longer than the server's limit tasks.line_bytes, 64");
    }
    let Ok(text) = std::str::from_utf8(line) else { return Meaning::Bad("ERR the line '") };
    let text = text.trim_matches(char::is_whitespace);
    if text == "HELLO 2" {
        return Meaning::Hello;
    }
    let fields: Vec<&str> = text.split(':').collect();
    let (first, last) = (fields[0], fields[fields.len() - 1]);
    let kind = match first {
        "0" => 0,
        "1" => 1,
        _ => return Meaning::Bad("ERR the type is '"),
    };
    last.parse().map_or(Meaning::Bad("ERR the seed is '"), |seed| Meaning::Task(kind, seed))
}

fn line(random: &mut Random) -> Vec<u8> {
    let (kind, seed) = match random.below(3) {
        0 if random.one_in(20) => ("0", random.below(CPU_SEEDS_RARE) as u64),
        0 => ("0", random.below(CPU_SEEDS) as u64),
        1 => ("1", random.below(100) as u64),
        _ => ("1", random.number()),
    };
    match random.below(40) {
        0..=27 => format!("{kind}:{seed}").into_bytes(),
        28 => format!("{kind}:{seed:025}").into_bytes(),
        29 => format!("{kind}:{}:{seed}", random.pick(&["", "x", "9:", "é"])).into_bytes(),
        30..=31 => {
            let around = random.pick(&[" ", "\t", "\r", "\u{b}", "\u{c}", "\u{a0}", "\u{2003} "]);
            format!("{around}{kind}:{seed}{around}").into_bytes()
        }
        32 => kind.into(),
        33..=35 => b"HELLO 2".to_vec(),
        36 => random.pick(&["", ":", "2:5", "x:1", "-1:3", "HELLO 3", "hello 2", "TASK"]).into(),
        37 => format!("{kind}:{}", random.pick(&["", "x", "-1", "18446744073709551616", "1 2", "0x5", "1.0"]))
            .into_bytes(),
        38 if random.one_in(2) => [b"0:", &[0xff, 0xc3][..], b"1"].concat(),
        38 => format!("{kind}:{}{seed}", "0".repeat(LINE_BYTES_MAX)).into_bytes(),
        _ => random.bytes(30).into_iter().filter(|byte| !matches!(byte, b'\n' | b'+')).collect(),
    }
}

/// Input, expected output, and whether a bad line ends the connection. An error's text is a prefix.
fn conversation(
    random: &mut Random,
    known: &mut HashMap<(u8, u64), u8>,
    tally: &mut Tally,
) -> (Vec<u8>, Vec<Vec<u8>>, bool) {
    let lines: Vec<Vec<u8>> = (0..random.below(30)).map(|_| line(random)).collect();
    let mut sent = lines.join(&b'\n');
    if random.one_in(2) && !lines.is_empty() {
        sent.push(b'\n');
    }
    let mut lines: Vec<&[u8]> = sent.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    let (mut replies, mut is_text) = (Vec::new(), false);
    for line in lines {
        match meaning(line) {
            Meaning::Hello => is_text = true,
            Meaning::Task(kind, seed) => {
                let result = *known.entry((kind, seed)).or_insert_with(|| compute(kind, seed));
                tally.add(["CPU-bound", "I/O-bound"][usize::from(kind)], 1);
                replies.push(if is_text { format!("OK {result}\n").into_bytes() } else { vec![result] });
            }
            Meaning::Bad(why) if is_text => {
                tally.add("refusal in text", 1);
                replies.push(why.into());
            }
            Meaning::Bad(_) => {
                tally.add("connection that a bad line ends", 1);
                return (sent, replies, true);
            }
        }
    }
    (sent, replies, false)
}

/// The server's whole output, and the reason for its end.
async fn talk(server: &Server, random: &mut Random, sent: &[u8]) -> (Vec<u8>, &'static str) {
    let (client, theirs) = tokio::io::duplex(random.pick(&[3, 50, 1000, 100_000]));
    let (_stop, stopped) = watch::channel(false);
    let (mut reader, mut writer) = tokio::io::split(client);
    let writing = async {
        let mut rest = sent;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + random.below(rest.len()));
            rest = after;
            // The server may have closed the connection at a bad line.
            if writer.write_all(piece).await.is_err() {
                break;
            }
            if random.one_in(2) {
                tokio::task::yield_now().await;
            }
        }
        let _ = writer.shutdown().await;
    };
    let reading = async {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.unwrap();
        got
    };
    let ((), got, why) = tokio::join!(writing, reading, server.talk(theirs, "a model", stopped));
    (got, why)
}

fn check(got: &[u8], replies: &[Vec<u8>], told: &dyn Fn() -> String) {
    let mut rest = got;
    for reply in replies {
        rest = rest.strip_prefix(&reply[..]).unwrap_or_else(|| panic!("{}: not {:?}", told(), reply.escape_ascii()));
        if reply.starts_with(b"ERR ") {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or_else(|| panic!("{}: no line", told()));
            rest = &rest[end + 1..];
        }
    }
    assert!(rest.is_empty(), "{}: more than the replies", told());
}

pub fn judge() -> Judge {
    let runtime: Runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let mut settings = Settings::default();
    settings.limits.line_bytes = LINE_BYTES_MAX;
    let narrow =
        ::tasks::Limits { in_flight: 2, waiting: 0, cpu_tasks: 1, cache_entries: 16, ..settings.limits.clone() };
    let servers = [
        settings.clone(),
        Settings { concurrency: Concurrency::Client, limits: narrow, ..settings.clone() },
        Settings { concurrency: Concurrency::None, ..settings },
    ];
    let metrics = || Metrics::register(&mut Registry::default());
    let servers = servers.map(|settings| Server::new(&settings, metrics(), runtime.handle().clone()));
    let mut known = HashMap::new();
    Box::new(move |random, tally| {
        let (sent, replies, is_bad) = conversation(random, &mut known, tally);
        if known.len() > 100_000 {
            known.retain(|(kind, _), _| *kind == 0);
        }
        let server = &servers[random.below(8).min(servers.len() - 1)];
        let (got, why) = runtime.block_on(talk(server, random, &sent));
        let told = || format!("to {} came {}", sent.escape_ascii(), got.escape_ascii());
        check(&got, &replies, &told);
        assert_eq!(why, if is_bad { "bad line" } else { "finished" }, "{}", told());
    })
}
