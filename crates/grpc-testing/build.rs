//! Generates the test services.

fn main() -> std::io::Result<()> {
    grpc_build::Builder::default()
        .descriptors("testing.bin")
        .compile(&["echo.proto", "interop.proto", "conformance.proto"], &["proto"])
}
