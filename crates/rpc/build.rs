//! Generates the services that every server may offer.

fn main() -> std::io::Result<()> {
    quire_rpc_build::compile(&["health.proto"], &["proto"])?;
    quire_rpc_build::compile(&["reflection.proto"], &["proto"])
}
