//! `quire token`: creates credentials. A token is printed once and not stored.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::bail;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hosting::access::{Scope, hashed};
use rand_core::{OsRng, RngCore as _};

use crate::cli::TokenArgs;

/// 256 bits, which cannot be guessed.
const BYTES: usize = 32;

/// `quire token new`.
pub(crate) fn command(args: &TokenArgs) -> anyhow::Result<ExitCode> {
    let crate::cli::TokenCommand::New { scope, name } = &args.what;
    let named = Scope::ALL.map(Scope::name).join(", ");
    let scopes = match Scope::list(scope) {
        Ok(scopes) => scopes.into_iter().map(Scope::name).collect::<Vec<_>>().join(","),
        Err(wrong) => bail!("--scope: '{wrong}' is no scope; the scopes are {named}, with commas between"),
    };
    if name.is_empty() || name.starts_with('#') || name.contains(char::is_whitespace) {
        bail!("--name is '{name}'; it must be one word");
    }
    let mut bytes = [0; BYTES];
    OsRng.fill_bytes(&mut bytes);
    let token = format!("quire_{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
    let mut out = io::stdout();
    writeln!(out, "{token}\n{name} {scopes} {}", hashed(&token))?;
    eprintln!(
        "The first line is the token: give it to the client; it is shown once. The second is for the file server.tokens."
    );
    Ok(ExitCode::SUCCESS)
}
