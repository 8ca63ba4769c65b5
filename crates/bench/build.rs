//! Generates the messages of the reflection protocol, from the contract that the engine serves.

fn main() -> std::io::Result<()> {
    grpc_build::Builder::default().server(false).client(false).compile(&["reflection.proto"], &["../grpc/proto"])
}
