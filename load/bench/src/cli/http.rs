//! `quire-bench http`: builds the load from flags and probes the server before it begins.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::exit::Exit;
use super::load::{LoadArgs, block_on, read_input, sources};
use super::measure::measure;
use crate::measurement::Load;
use crate::probe::Probe;
use crate::tls::TlsArgs;
use crate::workload::http::{HttpWorkload, RequestArgs, Requests, probe};
use crate::workload::socket::{self, Dialer};

/// Maximum bytes of `--data @FILE`.
const DATA_BYTES_MAX: u64 = 256 << 20;

/// An HTTP load.
#[derive(Clone, Debug, Args)]
pub struct HttpArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// http:// or https://, or HOST:PORT/PATH and :PORT/PATH for http://, with placeholders in path and query: {{number}}, {{random 1 100}}, {{row.column}}
    pub url: String,
    /// Method [default: GET, with --data POST]
    #[arg(short = 'X', long, help_heading = "Request")]
    pub method: Option<String>,
    /// A header, as 'Name: value'; placeholders in the value
    #[arg(short = 'H', long, value_name = "HEADER", help_heading = "Request")]
    pub header: Vec<String>,
    /// Body, @FILE or - for standard input; placeholders are filled in; its type is application/json unless --header
    /// sets another
    #[arg(long, value_name = "TEXT|@FILE|-", help_heading = "Request")]
    pub data: Option<String>,
    /// CSV file with a header row, for {{row.column}}
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub rows: Option<PathBuf>,
    /// Use HTTP/2: with prior knowledge for http://, by ALPN for https://
    #[arg(long, help_heading = "Request")]
    pub http2: bool,
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Builds the load after probing the server; call it outside a runtime. Pace, workers and the like are not filled in.
pub fn prepare(args: &HttpArgs) -> anyhow::Result<(HttpWorkload, Load)> {
    anyhow::ensure!(
        args.http2 || args.load.in_flight.is_none_or(|count| count == 1),
        "HTTP/1.1 carries one request at a time on a connection: use more clients (-c), or --http2"
    );
    let sources = sources(args.load.seed, args.rows.as_deref())?;
    let request = RequestArgs {
        url: args.url.clone(),
        method: args.method.clone(),
        headers: args.header.clone(),
        data: args.data.as_deref().map(|data| read_input(data, DATA_BYTES_MAX)).transpose()?,
        http2: args.http2,
    };
    let requests = Requests::new(&request, &sources)?;
    let protocol: &[u8] = if args.http2 { b"h2" } else { b"http/1.1" };
    let mut tls = args.tls.config_for(requests.is_https())?;
    if let Some(config) = &mut tls {
        config.alpn_protocols.push(protocol.to_vec());
    }
    let dialer = block_on(async {
        let stream = socket::reach(requests.host(), requests.port()).await?;
        let dialer = Dialer::new(stream.peer_addr()?, requests.host(), tls.map(Arc::new))?;
        probe(stream, &dialer, args.http2).await?;
        Ok(dialer)
    })?;
    let workload = HttpWorkload::new(requests, dialer, args.http2);
    let load = described(args, &workload);
    Ok((workload, load))
}

pub fn command(args: &HttpArgs) -> anyhow::Result<Exit> {
    let (workload, load) = prepare(args)?;
    let server = format!("{}:{}", workload.requests().host(), workload.requests().port());
    let probe = Probe::find(&server, workload.dialer().tls().as_ref());
    let reason = if args.http2 {
        "servers take no more streams on an HTTP/2 connection; use more clients (-c)"
    } else {
        "HTTP/1.1 carries one request at a time on a connection; use more clients (-c), or --http2"
    };
    measure(&args.load, (workload.in_flight_max(), reason), load, &workload, probe)
}

fn described(args: &HttpArgs, workload: &HttpWorkload) -> Load {
    let (target, what) = (args.url.clone(), workload.requests().method().to_string());
    let mut load = Load { protocol: "http".into(), target, what, ..Load::default() };
    load.set("header", (!args.header.is_empty()).then(|| args.header.join("; ")));
    load.set("data", args.data.as_ref());
    load.set("rows", args.rows.as_ref().map(|path| path.display()));
    load.set("ca", args.tls.ca.as_ref().map(|path| path.display()));
    load.set("http2", args.http2.then_some(true));
    load
}
