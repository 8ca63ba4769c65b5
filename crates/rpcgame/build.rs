//! Makes the services from `proto/`. Messages of the hot path are read where they lie, by `grpc::messages`.

fn main() -> std::io::Result<()> {
    grpc_build::Builder::default()
        .descriptors("rpcgame.bin")
        .messages(|config| {
            for name in ["TryRequest", "TryResponse", "PlayRequest", "PlayResponse"] {
                config.extern_path(format!(".{name}"), format!("crate::grpc::raw::Raw{name}"));
            }
        })
        .compile(&["rpcgame.proto"], &["../../proto"])
}
