//! `quire game`: plays the RPC game and prints the result.

use std::{io::Write as _, process::ExitCode};

use hosting::address::Target;
use quire_terminal::screen;
use rpcgame::driver::{self, Input, Options, Progress, Transport};
use tokio::runtime::Builder;

use super::explained;
use crate::cli::{GameArgs, GameTransport};

const USAGE: u8 = 2;

/// `quire game`.
pub(crate) fn command(args: &GameArgs) -> ExitCode {
    match play(args) {
        Ok(outcome) => {
            // A closed output is no error.
            let _ = writeln!(std::io::stdout(), "{outcome}");
            if outcome.matches() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("quire: {}", screen::line(&format!("{error:#}")));
            if error.is::<driver::Failure>() { ExitCode::FAILURE } else { USAGE.into() }
        }
    }
}

fn play(args: &GameArgs) -> anyhow::Result<driver::Outcome> {
    let input = Input::read(&args.input)?;
    let transport = match args.transport {
        GameTransport::Unary => Transport::Unary,
        GameTransport::Windowed => Transport::Windowed,
        GameTransport::Stream => Transport::Stream,
        GameTransport::Lean => Transport::Lean,
    };
    let port = if transport == Transport::Lean { rpcgame::LEAN_PORT } else { rpcgame::PORT };
    let address = args.address.clone().unwrap_or_else(|| format!("127.0.0.1:{port}"));
    let target = Target::parse(&address, port)?;
    let options = Options {
        tls: args.access.tls(&target)?,
        token: args.access.token.clone(),
        address: target.authority(),
        transport,
        messages: args.messages,
        window: args.window,
        timeout: args.timeout,
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let messages = args.messages;
    let progress = |progress| match progress {
        Progress::Answered(done) => {
            let _ = writeln!(std::io::stdout(), "{done} of {messages}");
        }
        Progress::Silent(standing) => eprintln!("quire: no answer for {} s: {standing}", driver::SILENCE.as_secs()),
    };
    runtime.block_on(driver::play(&input, &options, progress)).map_err(|error| explained(error.into()))
}
