//! `quire-bench null`: a server that does nothing but answer, until Ctrl-C.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::exit::Exit;
use super::input;
use crate::null::{Null, NullOptions, Reply, Speaks, Stalls};
use crate::values;

/// A null server.
#[derive(Clone, Debug, Args)]
pub struct NullArgs {
    /// The protocol.
    #[command(subcommand)]
    pub protocol: Protocol,
}

/// The protocol of a null server.
#[derive(Clone, Debug, Subcommand)]
pub enum Protocol {
    /// Answers every gRPC method
    Grpc {
        /// Size of each message that is answered: 0, or 4 bytes and more; 1KiB and 2MB are understood
        #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::bytes)]
        answer_bytes: usize,
        /// Methods take a stream and answer each of its messages
        #[arg(long)]
        streams: bool,
        /// What all null servers have.
        #[command(flatten)]
        serving: Serving,
    },
    /// Answers every HTTP/1.1 and HTTP/2 request with 200
    Http {
        /// Size of each body that is answered, as in 100, 1KiB or 2MB
        #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::bytes)]
        answer_bytes: usize,
        /// What all null servers have.
        #[command(flatten)]
        serving: Serving,
    },
    /// Answers every line over TCP
    Tcp {
        /// Size of each answer, as in 100, 1KiB or 2MB
        #[arg(long, value_name = "SIZE", default_value = "1", value_parser = values::bytes)]
        answer_bytes: usize,
        /// Answer with this line instead
        #[arg(long, value_name = "TEXT", conflicts_with = "answer_bytes")]
        answer: Option<String>,
        /// What all null servers have.
        #[command(flatten)]
        serving: Serving,
    },
}

/// What all null servers have.
#[derive(Clone, Debug, Args)]
pub struct Serving {
    /// Where to listen, HOST:PORT or :PORT; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = values::listen)]
    pub listen: SocketAddr,
    /// Threads that serve
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Stop all threads for this long, as a garbage collection does
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, requires = "every")]
    pub stall: Option<Duration>,
    /// From the beginning of one stall to that of the next
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, requires = "stall")]
    pub every: Option<Duration>,
    /// When the first stall begins, in milliseconds since 1970 [default: --every after the start]
    #[arg(long, value_name = "UNIX_MS", requires = "stall")]
    pub stall_from: Option<u64>,
    /// Hold back each answer for this long, in whole milliseconds
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    pub delay: Duration,
}

impl NullArgs {
    /// The server that is asked for.
    pub fn options(&self) -> NullOptions {
        let (speaks, serving) = match &self.protocol {
            Protocol::Grpc { answer_bytes, streams, serving } => {
                (Speaks::Grpc { answer_bytes: *answer_bytes, streams: *streams }, serving)
            }
            Protocol::Http { answer_bytes, serving } => (Speaks::Http { answer_bytes: *answer_bytes }, serving),
            Protocol::Tcp { answer_bytes, answer, serving } => {
                let answer = match answer {
                    Some(line) => Reply::Line(line.clone()),
                    None => Reply::Bytes(*answer_bytes),
                };
                (Speaks::Tcp { answer }, serving)
            }
        };
        let stalls = serving.stall.zip(serving.every).map(|(length, every)| Stalls {
            length,
            every,
            first_unix_ms: serving.stall_from,
        });
        NullOptions { speaks, listen: serving.listen, threads: serving.threads, stalls, delay: serving.delay }
    }
}

/// Serves until Ctrl-C, having said where.
pub fn run(args: &NullArgs) -> anyhow::Result<Exit> {
    let null = Null::start(args.options())?;
    let mut out = std::io::stdout().lock();
    if let Some(first) = null.first_stall_unix_ms() {
        writeln!(out, "first stall at {first} ms since 1970")?;
    }
    writeln!(out, "listening on {}", null.address())?;
    out.flush()?;
    drop(out);
    input::block_on(async { Ok(tokio::signal::ctrl_c().await?) })?;
    Ok(Exit::Done)
}
