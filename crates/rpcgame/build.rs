//! Makes the services from `proto/`. Messages of the hot path are read where they lie, by `grpc::messages`.

fn main() -> std::io::Result<()> {
    grpc_build::Builder::default()
        .descriptors("rpcgame.bin")
        .bytes("RPCGame.Try")
        .bytes("RPCGameStream.Play")
        .compile(&["rpcgame.proto"], &["../../proto"])
}
