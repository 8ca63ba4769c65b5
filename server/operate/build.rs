//! Generates the messages and the service.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .messages(|messages| {
            messages.bytes(["."]);
        })
        .compile(&["operator.proto"], &["../../proto"])
}
