//! Generates the services that every server may offer, and those of the README and the examples.

use std::env;

use quire_rpc_build::Builder;

fn main() -> std::io::Result<()> {
    let has = |feature| env::var_os(feature).is_some();
    for contract in ["health.proto", "reflection.proto", "channelz.proto", "hello.proto", "chat.proto"] {
        let builder = Builder::default().server(has("CARGO_FEATURE_SERVER")).client(has("CARGO_FEATURE_CLIENT"));
        builder.compile(&[contract], &["proto"])?;
    }
    Ok(())
}
