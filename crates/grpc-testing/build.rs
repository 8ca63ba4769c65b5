//! Generates the test services.

fn main() -> std::io::Result<()> {
    grpc_build::Builder::default()
        .client(false)
        .descriptors("testing.bin")
        .compile(&["echo.proto", "interop.proto", "conformance.proto"], &["proto"])
}
