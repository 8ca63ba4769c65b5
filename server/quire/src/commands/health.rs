//! `quire health`: requests `/healthz` for probes and scripts.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use hosting::address::Target;
use quire_rpc::rustls::pki_types::ServerName;
use quire_terminal::screen;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Builder,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{check_plain, explained};
use crate::{cli::HealthArgs, config::PORT};

const UNHEALTHY: u8 = 1;
const USAGE: u8 = 2;
const NO_ANSWER: u8 = 3;

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// `quire health`.
pub(crate) fn command(args: &HealthArgs) -> ExitCode {
    let target = match Target::parse(&args.address, PORT) {
        Ok(target) => target,
        Err(error) => return failed(&error.to_string(), USAGE),
    };
    let tls = match args.access.tls(&target) {
        Ok(tls) => tls.map(TlsConnector::from),
        Err(error) => return failed(&format!("{error:#}"), USAGE),
    };
    match request(&target, tls, args.timeout) {
        Ok((200, _)) => {
            // A closed output is no error.
            let _ = writeln!(io::stdout(), "healthy");
            ExitCode::SUCCESS
        }
        Ok((503, reasons)) => failed(reasons.trim_end(), UNHEALTHY),
        Ok((status, _)) => failed(&format!("{} answers /healthz with status {status}", target.url()), NO_ANSWER),
        Err(error) => failed(&format!("{:#}", explained(error)), NO_ANSWER),
    }
}

fn failed(text: &str, code: u8) -> ExitCode {
    for line in text.lines() {
        eprintln!("quire: {}", screen::line(line));
    }
    code.into()
}

/// Status and body of the answer.
fn request(target: &Target, tls: Option<TlsConnector>, most: Duration) -> anyhow::Result<(u16, String)> {
    let answer = async {
        let authority = target.authority();
        let stream = TcpStream::connect(&authority).await.with_context(|| format!("cannot connect to {authority}"))?;
        match tls {
            None => exchange(stream, &authority).await,
            Some(tls) => {
                let name = ServerName::try_from(target.host().to_owned())?;
                exchange(tls.connect(name, stream).await?, &authority).await
            }
        }
    };
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let late = || anyhow::anyhow!("no answer from {} within {} s", target.url(), most.as_secs_f64());
    runtime.block_on(async { timeout(most, answer).await }).unwrap_or_else(|_| Err(late()))
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str) -> anyhow::Result<(u16, String)> {
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    let read = (&mut stream).take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await;
    check_plain(&answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let Some((status, (_, body))) = status.zip(answer.split_once("\r\n\r\n")) else {
        read.context("the connection broke")?;
        bail!("the answer is not HTTP/1.1");
    };
    Ok((status, body.to_owned()))
}
