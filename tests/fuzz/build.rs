//! Generates the service that the model of calls asks.

fn main() -> std::io::Result<()> {
    quire_rpc_build::compile(&["echo.proto"], &["../../engine/testing/proto"])
}
