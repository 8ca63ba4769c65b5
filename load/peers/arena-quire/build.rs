//! Generates the service twice: with messages, and with bytes for the methods that benefit.

use std::{env, fs, io, path::PathBuf};

use quire_rpc_build::Builder;

const PROTO: &str = "benchmark.proto";
const FOLDER: &str = "../arena";
const AS_BYTES: [&str; 5] = ["GetSum", "Echo", "StreamSum", "Count", "Ingest"];

fn builder() -> Builder {
    Builder::default().client(false).messages(|messages| {
        messages.bytes(["."]);
    })
}

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    builder().compile(&[PROTO], &[FOLDER])?;
    fs::rename(out.join("benchmark.rs"), out.join("messages.rs"))?;
    let methods = AS_BYTES.map(|method| format!("benchmark.BenchmarkService.{method}"));
    methods.iter().fold(builder(), |builder, method| builder.bytes(method)).compile(&[PROTO], &[FOLDER])
}
