//! Generates messages and service traits from `proto/`. Keys and values share the buffer of their message.

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
