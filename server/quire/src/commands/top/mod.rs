//! `quire top`: a server's figures in a terminal, live or once, by `quire.Operator`.

#[cfg(feature = "top")]
mod live;
mod samples;
mod text;

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use hosting::address::Target;
use operate::grpc::wire::{Figures, operator_client::OperatorClient};
use quire_rpc::client::{Channel, Settings};
use quire_terminal::screen;
use tokio::runtime::Builder;

use self::samples::{Failure, REFUSED, USAGE, next, watch};
use super::explained;
use crate::{cli::TopArgs, config::PORT};

/// Time for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(not(feature = "top"))]
const WITHOUT: &str = "this build has no live screen: add --once, or build it with `cargo build --release -p server`, \
                       whose feature `top` has it";

/// `quire top`.
pub(crate) fn command(args: &TopArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err((error, code)) => {
            eprintln!("quire: {}", screen::line(&format!("{:#}", explained(error))));
            code.into()
        }
    }
}

/// Shows the figures that the arguments ask for.
pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let usage = |error: anyhow::Error| (error, USAGE);
    let target = Target::parse(&args.address, PORT).map_err(|error| usage(error.into()))?;
    if !args.once && !io::stdout().is_terminal() {
        return Err(usage(anyhow::anyhow!("standard output is no terminal: add --once for one sample")));
    }
    #[cfg(not(feature = "top"))]
    if !args.once {
        return Err(usage(anyhow::anyhow!(WITHOUT)));
    }
    let settings = Settings { connect_timeout: CONNECT_TIMEOUT, ..Settings::default() };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| usage(error.into()))?;
    let _inside = runtime.enter();
    let channel = || -> anyhow::Result<Channel> {
        let builder = Channel::builder(&target.url())?.settings(settings);
        let builder = match args.access.tls(&target)? {
            None => builder,
            Some(tls) => builder.tls(tls)?,
        };
        Ok(builder.connect_lazy()?)
    };
    let client = OperatorClient::new(channel().map_err(usage)?);
    runtime.block_on(async {
        let mut samples = watch(&client, args.access.token.as_deref()).await?;
        if args.once {
            return print(&next(&mut samples).await?, args.json, &target.url());
        }
        #[cfg(feature = "top")]
        live::show(&mut samples, &target.url()).await?;
        Ok(())
    })
}

/// Prints one sample of the server behind a channel that needs no credential.
pub(crate) async fn once(channel: Channel, server: &str) -> Result<(), Failure> {
    let mut samples = watch(&OperatorClient::new(channel), None).await?;
    print(&next(&mut samples).await?, false, server)
}

fn print(sample: &Figures, is_json: bool, server: &str) -> Result<(), Failure> {
    let text = if is_json {
        serde_json::to_string(sample).map(|json| screen::json_text(&json).into_owned())
    } else {
        Ok(screen::lines(&text::sample(sample, server)))
    };
    // A closed output is no error.
    let _ = writeln!(io::stdout(), "{}", text.map_err(|error| (error.into(), REFUSED))?);
    Ok(())
}
