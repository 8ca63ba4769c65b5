//! Generates the test services.

fn main() -> std::io::Result<()> {
    // The standard services' clients, for tests.
    quire_rpc_build::Builder::default()
        .server(false)
        .compile(&["health.proto", "reflection.proto"], &["../rpc/proto"])?;
    quire_rpc_build::Builder::default()
        .bytes("testing.Echo.Same")
        .compile(&["echo.proto", "interop.proto", "conformance.proto"], &["proto"])
}
