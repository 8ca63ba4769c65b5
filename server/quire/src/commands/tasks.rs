//! `quire tasks`: runs chains of tasks on a server and checks the replies.

use std::{
    cell::Cell,
    io::{self, Write as _},
    net::SocketAddr,
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hosting::address::Target;
use quire_rpc::rustls::{ClientConfig, pki_types::ServerName};
use tasks::{
    Concurrency,
    chain::{self, ChainError, Forecast, Outcome, Plan},
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Builder,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::explained;
use crate::cli::ChainArgs;

/// `quire tasks`.
pub(crate) fn command(args: &ChainArgs) -> anyhow::Result<ExitCode> {
    let plan = Plan { clients: args.clients, requests: args.requests, seed: args.seed };
    let target = Target::parse(&args.address, tasks::PORT)?;
    let door = Door::new(args, &target)?;
    let target = target.authority();
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let asking = async {
        // A name may have several addresses; every client uses the one that answers.
        let found = TcpStream::connect(&target).await.and_then(|stream| stream.peer_addr());
        let address = found.map_err(|error| {
            anyhow::anyhow!(
                "cannot connect to {target}: {error}; start a server with `quire serve` or name another address"
            )
        })?;
        run(address, &door, plan).await
    };
    let outcome = runtime.block_on(asking).map_err(explained)?;
    let forecast = Forecast::new(plan);
    anyhow::ensure!(
        outcome.last == forecast.last,
        "the server answered wrongly: the last replies are {:?} and should be {:?}",
        outcome.last,
        forecast.last
    );
    let seconds = |cache| forecast.bound(Concurrency::Task, cache).as_secs_f64();
    writeln!(
        io::stdout(),
        "sum {}, as it should be\n{:.4} s, of which {:.4} s to connect\nthe shortest possible on a fresh server: {:.3} s with a cache, {:.3} s without",
        outcome.sum(),
        outcome.elapsed.as_secs_f64(),
        outcome.connecting.as_secs_f64(),
        seconds(true),
        seconds(false)
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Interval of the progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// TLS and token for a new connection.
struct Door {
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    token: Option<String>,
}

impl Door {
    fn new(args: &ChainArgs, target: &Target) -> anyhow::Result<Self> {
        let named = |tls| anyhow::Ok((tls, ServerName::try_from(target.host().to_owned())?));
        let tls = args.access.tls(target)?.map(named).transpose()?;
        let token = args.access.token.clone();
        anyhow::ensure!(token.as_ref().is_none_or(|token| !token.contains('\n')), "--token must be one line");
        Ok(Self { tls, token })
    }

    async fn in_clear(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        self.show_token(&mut stream).await?;
        Ok(stream)
    }

    async fn by_tls(
        &self,
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        name: &ServerName<'static>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut stream = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream).await?;
        self.show_token(&mut stream).await?;
        Ok(stream)
    }

    async fn show_token(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let Some(token) = &self.token else { return Ok(()) };
        stream.write_all(format!("TOKEN {token}\n").as_bytes()).await?;
        stream.flush().await
    }

    async fn ask(&self, address: SocketAddr, plan: Plan, replies: &Cell<u64>) -> Result<Outcome, ChainError> {
        match &self.tls {
            None => chain::run_on(|| self.in_clear(address), plan, replies).await,
            Some((config, name)) => chain::run_on(|| self.by_tls(address, config, name), plan, replies).await,
        }
    }
}

/// Runs the chains and shows the progress.
async fn run(address: SocketAddr, door: &Door, plan: Plan) -> anyhow::Result<Outcome> {
    let (replies, start) = (Cell::new(0), Instant::now());
    let mut running = pin!(door.ask(address, plan, &replies));
    loop {
        if let Ok(outcome) = timeout(PROGRESS_INTERVAL, &mut running).await {
            return Ok(outcome?);
        }
        let (replies, all) = (replies.get(), plan.clients * plan.requests);
        eprintln!("{replies} of {all} replies after {:.0} s", start.elapsed().as_secs_f64());
    }
}
