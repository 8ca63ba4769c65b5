//! Generates the messages, the service traits and, for the test, a client from the shared contract.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(["../../../proto/bookstore.proto"], ["../../../proto"])?;
    println!("cargo::rerun-if-changed=../../../proto");
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
