//! Makes the messages and the service traits from `proto/`, with no compiler to install.

use std::{env, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let contracts = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", contracts.display());
    let descriptors = protox::compile([contracts.join("bookstore.proto")], [&contracts])?;
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("bookstore.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
