//! Generates the messages, their views and the service trait from the arena's contract, without `protoc`.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../arena");
    let descriptors = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?).join("arena.descriptors");
    let mut compiler = protox::Compiler::new(["../arena"])?;
    compiler.include_source_info(true).include_imports(true).open_file("benchmark.proto")?;
    fs::write(&descriptors, compiler.encode_file_descriptor_set())?;
    let config = connectrpc_build::Config::new().files(&["benchmark.proto"]).descriptor_set(descriptors);
    config.include_file("_connectrpc.rs").compile()?;
    Ok(())
}
