//! Generates the services from `proto/`. Messages of the hot path are read in place, by `quire_rpc::messages`.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .bytes("RPCGame.Try")
        .bytes("RPCGameStream.Play")
        .compile(&["rpcgame.proto"], &["../../proto"])
}
