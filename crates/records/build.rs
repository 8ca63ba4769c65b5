//! Makes the messages and the service traits from `proto/`.

fn main() -> std::io::Result<()> {
    grpc_build::Builder::default().descriptors("records.bin").compile(&["records.proto"], &["../../proto"])
}
