//! Makes the messages and the service traits from `proto/`, with no compiler to install.

use std::{env, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let contracts = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", contracts.display());
    let descriptors = protox::compile([contracts.join("bookstore.proto")], [&contracts])?;
    tonic_prost_build::configure()
        .file_descriptor_set_path(PathBuf::from(env::var("OUT_DIR")?).join("bookstore.fds"))
        .compile_fds(descriptors)?;
    Ok(())
}
