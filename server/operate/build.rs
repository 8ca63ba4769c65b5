//! Generates the messages and the services. Samples can be written as JSON with the names of the contract.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .messages(|messages| {
            messages.bytes(["."]);
            let samples = ["Figures", "Purchases", "Calls", "Reason", "MethodFigures", "Commits", "Levels", "Level"];
            for name in samples.into_iter().chain(["ServiceHealth"]) {
                messages.type_attribute(format!(".quire.{name}"), "#[derive(::serde::Serialize)]");
            }
        })
        .compile(&["operator.proto"], &["../../proto"])?;
    let collector = ["opentelemetry/proto/collector/trace/v1/trace_service.proto"];
    quire_rpc_build::Builder::default().server(false).compile(&collector, &["proto"])
}
