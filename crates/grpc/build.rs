//! Generates the services that every server may offer.

fn main() -> std::io::Result<()> {
    grpc_build::Builder::default().client(false).compile(&["health.proto", "reflection.proto"], &["proto"])
}
