//! Generates the messages and the service trait from the arena's contract, without `protoc`.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../arena");
    let descriptors = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?).join("arena.descriptors");
    let mut compiler = protox::Compiler::new(["../arena"])?;
    compiler.include_imports(true).open_file("benchmark.proto")?;
    fs::write(&descriptors, compiler.encode_file_descriptor_set())?;
    let mut config = prost_build::Config::new();
    config.service_generator(Box::new(pajamax_build::PajamaxGen::Local));
    config.file_descriptor_set_path(descriptors).skip_protoc_run();
    config.compile_protos(&["../arena/benchmark.proto"], &["../arena"])?;
    Ok(())
}
