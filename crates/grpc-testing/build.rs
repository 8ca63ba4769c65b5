//! Generates the test services.

fn main() -> std::io::Result<()> {
    // The standard services' clients, for tests.
    grpc_build::Builder::default().server(false).compile(&["health.proto", "reflection.proto"], &["../grpc/proto"])?;
    grpc_build::Builder::default()
        .descriptors("testing.bin")
        .bytes("testing.Echo.Same")
        .compile(&["echo.proto", "interop.proto", "conformance.proto"], &["proto"])
}
