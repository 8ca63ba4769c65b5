//! `quire-bench null`: serves constant answers until Ctrl-C.

use std::io::Write as _;

use super::exit::Exit;
use super::input;
use crate::null::{Null, NullServer};

/// Prints the address and serves until Ctrl-C.
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
