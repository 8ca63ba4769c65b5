//! Generates the services that every server may offer.

fn main() -> std::io::Result<()> {
    grpc_build::compile(&["health.proto", "reflection.proto"], &["proto"])
}
