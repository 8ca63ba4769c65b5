//! Generates the messages and the service trait from the shared contract.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(["../../../proto/bookstore.proto"], ["../../../proto"])?;
    println!("cargo::rerun-if-changed=../../../proto");
    tonic_prost_build::configure().build_client(false).compile_fds(descriptors)?;
    Ok(())
}
