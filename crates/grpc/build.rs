//! Generates the services that every server may offer.

fn main() -> std::io::Result<()> {
    grpc_build::Builder::default().descriptors("health.bin").compile(&["health.proto"], &["proto"])?;
    grpc_build::compile(&["reflection.proto"], &["proto"])
}
