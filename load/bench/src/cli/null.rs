//! `quire-bench null`: a server that does nothing but answer, until Ctrl-C.

use std::io::Write as _;

use super::exit::Exit;
use super::input;
use crate::null::{Null, NullServer};

/// Serves until Ctrl-C, having said where.
pub(crate) fn run(server: &NullServer) -> anyhow::Result<Exit> {
    let null = Null::start(server.clone())?;
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
