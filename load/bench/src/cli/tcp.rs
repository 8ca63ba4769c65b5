//! `quire-bench tcp`: builds the load of lines from flags and probes the server before it begins.

use std::path::PathBuf;

use clap::Args;

use super::exit::Exit;
use super::load::{LoadArgs, block_on, sources};
use super::measure::measure;
use crate::measurement::Load;
use crate::template::Template;
use crate::values::host_and_port;
use crate::workload::socket;
use crate::workload::tcp::{Exchange, PIPELINED_MAX_DEFAULT, Reply, TcpWorkload};

/// A load of lines over TCP.
#[derive(Clone, Debug, Args)]
pub struct TcpArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// HOST:PORT, or :PORT on this machine
    pub address: String,
    /// The request without its newline; placeholders: {{number}}, {{random 1 100}}, {{row.column}}
    #[arg(long, value_name = "TEMPLATE", help_heading = "Request")]
    pub line: String,
    /// Form of a reply: bytes:SIZE, or line for everything up to a newline
    #[arg(long, value_name = "FORM", help_heading = "Request")]
    pub reply: String,
    /// Count replies by their text
    #[arg(long, help_heading = "Request")]
    pub outcome: bool,
    /// A good reply, may be repeated; every other reply then counts as an error
    #[arg(long, value_name = "TEXT", help_heading = "Request")]
    pub ok: Vec<String>,
    /// Lines end with CR LF
    #[arg(long, help_heading = "Request")]
    pub crlf: bool,
    /// CSV file with a header row, for {{row.column}}
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub rows: Option<PathBuf>,
}

/// Builds the load after probing the server; call it outside a runtime. Pace, workers and the like are not filled in.
pub fn prepare(args: &TcpArgs) -> anyhow::Result<(TcpWorkload, Load)> {
    let reply: Reply = args.reply.parse()?;
    let sources = sources(args.load.seed, args.rows.as_deref())?;
    let line = Template::parse(&args.line, &sources).map_err(|error| anyhow::anyhow!("in --line: {error}"))?;
    let (host, port) = host_and_port(&args.address)?;
    let address = block_on(async { Ok(socket::reach(&host, port).await?.peer_addr()?) })?;
    let exchange = Exchange {
        line,
        line_end: if args.crlf { "\r\n" } else { "\n" },
        reply,
        outcomes: args.outcome || !args.ok.is_empty(),
        good: args.ok.iter().map(|text| text.clone().into_bytes()).collect(),
    };
    let workload = TcpWorkload::new(exchange, address);
    Ok((workload, described(args)))
}

/// Runs the command. A line server would take a request for metrics for a line, so none is sent.
pub fn command(args: &TcpArgs) -> anyhow::Result<Exit> {
    let (workload, load) = prepare(args)?;
    let reason = "more lines would only wait in the socket; use more clients (-c)";
    measure(&args.load, (PIPELINED_MAX_DEFAULT, reason), load, &workload, None)
}

fn described(args: &TcpArgs) -> Load {
    let (target, what) = (args.address.clone(), args.line.clone());
    let mut load = Load { protocol: "tcp".into(), target, what, ..Load::default() };
    load.set("reply", Some(&args.reply));
    load.set("outcome", args.outcome.then_some(true));
    load.set("ok", (!args.ok.is_empty()).then(|| args.ok.join("; ")));
    load.set("crlf", args.crlf.then_some(true));
    load.set("rows", args.rows.as_ref().map(|path| path.display()));
    load
}
