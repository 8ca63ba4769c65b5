//! Makes the messages and the service traits from `proto/`. Values and keys share the buffer a message came in.

fn main() -> std::io::Result<()> {
    grpc_build::Builder::default()
        .descriptors("kv.bin")
        .messages(|messages| {
            messages.bytes(["."]);
        })
        .compile(&["kv.proto"], &["../../proto"])
}
