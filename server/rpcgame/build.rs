//! Makes the services from `proto/`. Messages of the hot path are read where they lie, by `quire_rpc::messages`.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .bytes("RPCGame.Try")
        .bytes("RPCGameStream.Play")
        .compile(&["rpcgame.proto"], &["../../proto"])
}
