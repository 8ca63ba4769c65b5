//! Generates the services that every server may offer, and the one of the README's example.

fn main() -> std::io::Result<()> {
    for contract in ["health.proto", "reflection.proto", "hello.proto"] {
        quire_rpc_build::compile(&[contract], &["proto"])?;
    }
    Ok(())
}
