//! Lines that an operator types while a command runs.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::AsFd as _,
};

use tokio::io::{Interest, unix::AsyncFd};

/// Reads a line from the terminal, bypassing standard input's shared buffer. Ends without one if it is dropped.
#[expect(
    deprecated,
    reason = "the function without a warning needs unsafe; a file keeps its descriptor while it is registered"
)]
pub(super) async fn line() -> io::Result<String> {
    let input = AsyncFd::with_interest(File::from(io::stdin().as_fd().try_clone_to_owned()?), Interest::READABLE)?;
    // A terminal is readable once a whole line was typed.
    drop(input.readable().await?);
    let mut typed = [0; 256];
    let read = input.get_ref().read(&mut typed)?;
    Ok(String::from_utf8_lossy(&typed[..read]).trim().to_owned())
}

/// Asks a question at the terminal; only "y" and "yes" agree.
pub(super) async fn agrees(question: &str) -> io::Result<bool> {
    let mut out = io::stdout();
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    Ok(["y", "yes"].contains(&line().await?.to_lowercase().as_str()))
}
