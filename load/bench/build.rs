//! Generates the messages of the reflection protocol from the engine's contract, and passes the commit to the program,
//! because figures are worth little without it.

use std::process::Command;

fn main() -> std::io::Result<()> {
    println!("cargo:rustc-env=BUILD_COMMIT={}", commit());
    for path in ["../../.git/HEAD", "../../.git/index"] {
        if std::path::Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    quire_rpc_build::Builder::default()
        .server(false)
        .client(false)
        .compile(&["reflection.proto"], &["../../engine/rpc/proto"])
}

/// As git describes it; `unknown` in a tree without git.
fn commit() -> String {
    let described = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let described = described.ok().filter(|output| output.status.success());
    let text = described.and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
