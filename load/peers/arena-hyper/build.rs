//! Generates the messages of the arena's contract.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../arena");
    let descriptors = protox::compile(["../arena/benchmark.proto"], ["../arena"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(descriptors)?;
    Ok(())
}
