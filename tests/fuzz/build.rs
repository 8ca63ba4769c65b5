//! Generates the service for the model of calls.

fn main() -> std::io::Result<()> {
    quire_rpc_build::compile(&["echo.proto"], &["../../engine/testing/proto"])
}
