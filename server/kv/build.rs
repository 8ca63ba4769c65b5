//! Makes the messages and the service traits from `proto/`. Values and keys share the buffer a message came in.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .messages(|messages| {
            messages.bytes(["."]);
        })
        .bytes("io.grpc.KeyValueService.Retrieve")
        .bytes("io.grpc.KeyValueService.Update")
        .bytes("io.grpc.KeyRangeService.Scan")
        .compile(&["kv.proto"], &["../../proto"])
}
