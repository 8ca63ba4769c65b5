//! Makes messages and stubs from `proto/`. Keys and values share the buffer a message came in.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .server(false)
        .messages(|messages| {
            messages.bytes(["."]);
        })
        .compile(&["bookstore.proto", "kv.proto"], &["proto"])
}
