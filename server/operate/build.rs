//! Generates the messages and the service.

fn main() -> std::io::Result<()> {
    quire_rpc_build::compile(&["operator.proto"], &["../../proto"])
}
