//! Client for chains of tasks, in which each reply is the seed of the next task, and the shortest time they can take on
//! any server.
//!
//! Draws are those of a published experiment, for comparable figures: `ChaCha20` seeded with the seed plus the client's
//! number; a drawn u8 is the first seed; each request's type is a drawn usize modulo 2.

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    future::Future,
    io,
    net::SocketAddr,
    time::Duration,
};

use futures_util::future::try_join_all;
use quire_rpc::client::ONLY_TLS;
use rand::Rng as _;
use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng as _};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

use crate::{
    settings::Concurrency,
    socket::prepare,
    task::{Io, Kind, Task},
    work::Workspace,
};

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Clients, each with a connection and a chain.
    pub clients: u64,
    /// Requests in a chain.
    pub requests: u64,
    /// Random seed; equal seeds give equal chains.
    pub seed: u64,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Last reply to each client; its first seed if the chain is empty.
    pub last: Vec<u8>,
    /// Part of `elapsed` until the last client was connected. Each client begins as soon as it is connected.
    pub connecting: Duration,
    /// Time from the first connection to the last reply.
    pub elapsed: Duration,
}

impl Outcome {
    /// Sum that the published client prints.
    pub fn sum(&self) -> u64 {
        self.last.iter().copied().map(u64::from).sum()
    }
}

/// Failure of a run.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// No server answers.
    #[error("cannot connect: {0}; start a server with `quire serve` or name another address")]
    Connect(io::Error),
    /// The connection failed.
    #[error("client {client}, request {request}: {error}")]
    Broken {
        /// Client number, from 0.
        client: u64,
        /// Request number, from 0.
        request: u64,
        /// The underlying error.
        error: io::Error,
    },
    /// The server answered with TLS.
    #[error("client {client}: {ONLY_TLS}")]
    Tls {
        /// Client number, from 0.
        client: u64,
    },
    /// The server closed the connection, or sent more than one byte.
    #[error("client {client}, request {request}: the server sent {bytes} bytes; a reply is one byte")]
    Reply {
        /// Client number, from 0.
        client: u64,
        /// Request number, from 0.
        request: u64,
        /// Bytes received; 0 if the connection was closed.
        bytes: usize,
    },
}

/// The requests of one client.
struct Chain {
    draws: ChaCha20Rng,
    last: u8,
}

impl Chain {
    fn new(plan: Plan, client: u64) -> Self {
        let mut draws = ChaCha20Rng::seed_from_u64(plan.seed.wrapping_add(client));
        let last = draws.r#gen();
        Self { draws, last }
    }

    fn next(&mut self) -> Task {
        let kind = if self.draws.r#gen::<usize>().is_multiple_of(2) { Kind::Cpu } else { Kind::Io };
        Task::new(kind, self.last.into())
    }
}

/// Runs all chains against a server concurrently.
pub async fn run(address: SocketAddr, plan: Plan) -> Result<Outcome, ChainError> {
    let connect = async || {
        let stream = TcpStream::connect(address).await?;
        prepare(&stream)?;
        Ok(stream)
    };
    run_on(connect, plan, &Cell::new(0)).await
}

/// Like [`run`], on any connections; `replies` counts the replies so far.
pub async fn run_on<C, F, S>(connect: C, plan: Plan, replies: &Cell<u64>) -> Result<Outcome, ChainError>
where
    C: Fn() -> F,
    F: Future<Output = io::Result<S>>,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let start = Instant::now();
    let connecting = Cell::new(Duration::ZERO);
    let chain = async |client| {
        let stream = connect().await.map_err(ChainError::Connect)?;
        connecting.set(start.elapsed());
        ask(stream, plan, client, replies).await
    };
    let last = try_join_all((0..plan.clients).map(chain)).await?;
    Ok(Outcome { last, connecting: connecting.get(), elapsed: start.elapsed() })
}

async fn ask<S>(mut stream: S, plan: Plan, client: u64, replies: &Cell<u64>) -> Result<u8, ChainError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut chain = Chain::new(plan, client);
    // Larger than a reply: a read that fills its buffer would be followed by one that finds nothing.
    let mut reply = [0; 16];
    for request in 0..plan.requests {
        let broken = |error| ChainError::Broken { client, request, error };
        let task = chain.next();
        let line = format!("{}:{}\n", task.kind.number(), task.seed);
        stream.write_all(line.as_bytes()).await.map_err(broken)?;
        let bytes = stream.read(&mut reply).await.map_err(broken)?;
        // The beginning of an alert (RFC 8446 sections 5.1 and 6).
        if reply[..bytes].starts_with(&[0x15, 3]) {
            return Err(ChainError::Tls { client });
        }
        if bytes != 1 {
            return Err(ChainError::Reply { client, request, bytes });
        }
        chain.last = reply[0];
        replies.set(replies.get() + 1);
    }
    Ok(chain.last)
}

/// Results of chains, computed without a server, and the duration of their waits.
#[derive(Clone, Debug)]
pub struct Forecast {
    plan: Plan,
    chains: Vec<Vec<(Task, Duration)>>,
    /// Last reply to each client.
    pub last: Vec<u8>,
}

impl Forecast {
    /// Computes all results locally.
    pub fn new(plan: Plan) -> Self {
        let mut workspace = Workspace::default();
        let mut known = HashMap::new();
        let mut run = |task: Task| match task.kind {
            Kind::Cpu => (Duration::ZERO, workspace.run(task.seed)),
            Kind::Io => {
                let Io { wait, result } = Io::new(task.seed);
                (wait, result)
            }
        };
        let mut chain_of = |client| {
            let mut chain = Chain::new(plan, client);
            let mut step = |_| {
                let task = chain.next();
                let (wait, result) = *known.entry(task).or_insert_with(|| run(task));
                chain.last = result;
                (task, wait)
            };
            let steps: Vec<_> = (0..plan.requests).map(&mut step).collect();
            (steps, chain.last)
        };
        let (chains, last) = (0..plan.clients).map(&mut chain_of).unzip();
        Self { plan, chains, last }
    }

    /// Lower bound of the time on a server with an empty cache and infinitely fast processors.
    pub fn bound(&self, concurrency: Concurrency, cache: bool) -> Duration {
        let steps = || self.chains.iter().flatten();
        let total = |chain: &Vec<(Task, Duration)>| chain.iter().map(|(_, wait)| *wait).sum::<Duration>();
        match (concurrency, cache) {
            (Concurrency::None, false) => steps().map(|(_, wait)| *wait).sum(),
            (Concurrency::None, true) => steps().copied().collect::<HashMap<_, _>>().values().sum(),
            (_, false) => self.chains.iter().map(total).max().unwrap_or_default(),
            (_, true) => self.longest_chain_of_first_waits(),
        }
    }

    /// Simulates the chains in time order. The first client to request a task waits its full duration; a client that
    /// requests it meanwhile waits for the rest; later clients do not wait.
    fn longest_chain_of_first_waits(&self) -> Duration {
        let mut ends = HashMap::new();
        let mut longest = Duration::ZERO;
        // The client with the earliest next request is on top.
        let mut next: BinaryHeap<_> = (0..self.chains.len()).map(|client| Reverse((Duration::ZERO, client))).collect();
        let mut asked = vec![0; self.chains.len()];
        while let Some(Reverse((now, client))) = next.pop() {
            longest = longest.max(now);
            let Some((task, wait)) = self.chains[client].get(asked[client]) else { continue };
            asked[client] += 1;
            let end = *ends.entry(*task).or_insert(now + *wait);
            next.push(Reverse((end.max(now), client)));
        }
        longest
    }

    /// The plan of the chains.
    pub const fn plan(&self) -> Plan {
        self.plan
    }
}
