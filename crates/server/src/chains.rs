//! `quire tasks`: asks chains of tasks of a server and checks the replies.

use std::{
    cell::Cell,
    io::Write as _,
    net::SocketAddr,
    pin::pin,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hosting::address::Target;
use tasks::{
    Concurrency,
    chain::{self, Forecast, Outcome, Plan},
};
use tokio::{net::TcpStream, runtime::Builder, time::timeout};

use crate::cli::ChainArgs;

/// `quire tasks`.
pub(crate) fn command(args: &ChainArgs) -> anyhow::Result<ExitCode> {
    let plan = Plan { clients: args.clients, requests: args.requests, seed: args.seed };
    let target = Target::parse_plain(&args.address, tasks::PORT)?.authority();
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let asking = async {
        // A name may have several addresses; every client uses the one that answers.
        let found = TcpStream::connect(&target).await.and_then(|stream| stream.peer_addr());
        let address = found.map_err(|error| {
            anyhow::anyhow!(
                "cannot connect to {target}: {error}; start a server with `quire serve` or name another address"
            )
        })?;
        run(address, plan).await
    };
    let outcome = runtime.block_on(asking)?;
    let forecast = Forecast::new(plan);
    anyhow::ensure!(
        outcome.last == forecast.last,
        "the server answered wrongly: the last replies are {:?} and should be {:?}",
        outcome.last,
        forecast.last
    );
    let seconds = |cache| forecast.bound(Concurrency::Task, cache).as_secs_f64();
    writeln!(
        std::io::stdout(),
        "sum {}, as it should be\n{:.4} s, of which {:.4} s to connect\nthe shortest possible on a fresh server: {:.3} s with a cache, {:.3} s without",
        outcome.sum(),
        outcome.elapsed.as_secs_f64(),
        outcome.connecting.as_secs_f64(),
        seconds(true),
        seconds(false)
    )?;
    Ok(ExitCode::SUCCESS)
}

/// A run that takes longer shows its progress this often.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Asks the chains and shows the progress.
async fn run(address: SocketAddr, plan: Plan) -> anyhow::Result<Outcome> {
    let (replies, start) = (Cell::new(0), Instant::now());
    let mut running = pin!(chain::run_telling(address, plan, &replies));
    loop {
        if let Ok(outcome) = timeout(PROGRESS_INTERVAL, &mut running).await {
            return Ok(outcome?);
        }
        let (replies, all) = (replies.get(), plan.clients * plan.requests);
        eprintln!("{replies} of {all} replies after {:.0} s", start.elapsed().as_secs_f64());
    }
}
