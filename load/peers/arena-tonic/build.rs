//! Generates the messages and the service trait from the arena's contract; bytes are shared, not copied.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(["../arena/benchmark.proto"], ["../arena"])?;
    println!("cargo::rerun-if-changed=../arena");
    tonic_prost_build::configure().build_client(false).bytes(".").compile_fds(descriptors)?;
    Ok(())
}
