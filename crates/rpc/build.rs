//! Generates the services that every server may offer, and those of the README and the examples.

fn main() -> std::io::Result<()> {
    for contract in ["health.proto", "reflection.proto", "hello.proto", "chat.proto"] {
        quire_rpc_build::compile(&[contract], &["proto"])?;
    }
    Ok(())
}
