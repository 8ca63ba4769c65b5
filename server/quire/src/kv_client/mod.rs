//! `quire kv`: one call to the key-value service, for shells and scripts.

mod calls;
mod command;
mod text;

use std::process::ExitCode;

use quire_client::cli::{Exit, split};
use quire_terminal::screen;
use tokio::runtime::Builder;

use self::calls::Calls;
use crate::cli::KvArgs;

/// `quire kv`.
pub(crate) fn command(args: &KvArgs) -> ExitCode {
    let exit = run(args).unwrap_or_else(|error| {
        eprintln!("quire: {}", screen::line(&format!("{error:#}")));
        Exit::Usage
    });
    exit.into()
}

/// Errors are usage errors.
fn run(args: &KvArgs) -> anyhow::Result<Exit> {
    let (address, words) = split(&args.words, command::is_command);
    let (command, key) = command::parse(&words, args)?;
    command::check(&command, args)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Ok(Calls::new(args, address)?.run(command, &key).await) })
}
