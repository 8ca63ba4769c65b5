//! Generates messages and stubs from `proto/`. Keys and values share the buffer of their message.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .server(false)
        .messages(|messages| {
            messages.bytes(["."]);
        })
        .compile(&["bookstore.proto", "kv.proto", "operator.proto"], &["proto"])
}
