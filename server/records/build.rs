//! Generates the messages and the service traits from `proto/`.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .bytes("ReaderService.GetRecord")
        .bytes("ReaderService.GetRecordString")
        .bytes("reader.ReaderService.GetRecord")
        .bytes("reader.ReaderService.GetRecordString")
        .bytes("RecordStreamService.StreamRecords")
        .compile(&["records.proto", "reader.proto"], &["../../proto"])
}
