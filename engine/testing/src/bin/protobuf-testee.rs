//! Testee of protobuf's conformance suite: answers each `ConformanceRequest` of its standard input.
//!
//! Its argument is the path that messages take: with `messages` prost decodes and encodes all, with `bytes` there is our
//! JSON alone.

use std::io::{self, Read, Write};
use std::sync::LazyLock;

use quire_json::Schema;
use quire_rpc::prost::Message;

use conformance::conformance_request::Payload;
use conformance::conformance_response::Result as Answer;
use conformance::{ConformanceRequest, ConformanceResponse, WireFormat};

mod conformance {
    quire_rpc::include_proto!("conformance");
}
mod editions {
    quire_rpc::include_proto!("protobuf_test_messages.editions");
    pub(crate) mod proto2 {
        quire_rpc::include_proto!("protobuf_test_messages.editions.proto2");
    }
    pub(crate) mod proto3 {
        quire_rpc::include_proto!("protobuf_test_messages.editions.proto3");
    }
}
mod proto2 {
    quire_rpc::include_proto!("protobuf_test_messages.proto2");
}
mod proto3 {
    quire_rpc::include_proto!("protobuf_test_messages.proto3");
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let set = include_bytes!(concat!(env!("OUT_DIR"), "/suite.descriptors"));
    Schema::new([&set[..]]).expect("the descriptors are complete")
});

/// Decodes and encodes a message.
type Recode = fn(&[u8]) -> Result<Vec<u8>, String>;

fn by_prost<M: Message + Default>(bytes: &[u8]) -> Result<Vec<u8>, String> {
    M::decode(bytes).map(|message| message.encode_to_vec()).map_err(|error| error.to_string())
}

fn recode(message_type: &str) -> Option<Recode> {
    Some(match message_type {
        "conformance.FailureSet" => by_prost::<conformance::FailureSet>,
        "protobuf_test_messages.editions.TestAllTypesEdition2023" => by_prost::<editions::TestAllTypesEdition2023>,
        "protobuf_test_messages.editions.proto2.TestAllTypesProto2" => by_prost::<editions::proto2::TestAllTypesProto2>,
        "protobuf_test_messages.editions.proto3.TestAllTypesProto3" => by_prost::<editions::proto3::TestAllTypesProto3>,
        "protobuf_test_messages.proto2.TestAllTypesProto2" => by_prost::<proto2::TestAllTypesProto2>,
        "protobuf_test_messages.proto3.TestAllTypesProto3" => by_prost::<proto3::TestAllTypesProto3>,
        _ => return None,
    })
}

fn answer(request: &ConformanceRequest, path: &str) -> Answer {
    let skipped = |what: &str| Answer::Skipped(format!("{what} is not supported"));
    let format = request.requested_output_format();
    let (Some(by_prost), Some(id)) = (recode(&request.message_type), SCHEMA.message(&request.message_type)) else {
        return skipped(&request.message_type);
    };
    if !matches!(format, WireFormat::Protobuf | WireFormat::Json) {
        return skipped("the format of the answer");
    }
    let from_json = |json: &[u8]| {
        let mut bytes = Vec::new();
        SCHEMA.read(id, json, &mut bytes).map_err(|error| error.to_string()).map(|()| bytes)
    };
    let to_json = |bytes: &[u8]| {
        let mut json = Vec::new();
        SCHEMA.write(id, bytes, &mut json).map_err(|error| error.to_string()).map(|()| json)
    };
    let read = match &request.payload {
        Some(Payload::JsonPayload(json)) => from_json(json.as_bytes()),
        Some(Payload::ProtobufPayload(bytes)) => Ok(bytes.clone()),
        _ => return skipped("the format of the payload"),
    };
    let decoded = read.and_then(|bytes| match (path, &request.payload, format) {
        ("messages", ..) => by_prost(&bytes),
        // Our JSON is the only codec here.
        (_, Some(Payload::ProtobufPayload(_)), WireFormat::Protobuf) => from_json(&to_json(&bytes)?),
        _ => Ok(bytes),
    });
    match decoded {
        Err(error) => Answer::ParseError(error),
        Ok(bytes) if format == WireFormat::Protobuf => Answer::ProtobufPayload(bytes),
        Ok(bytes) => match to_json(&bytes) {
            Ok(json) => Answer::JsonPayload(String::from_utf8(json).expect("JSON is UTF-8")),
            Err(error) => Answer::SerializeError(error),
        },
    }
}

fn main() -> io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_default();
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut length = [0; 4];
    while input.read_exact(&mut length).is_ok() {
        let mut request = vec![0; u32::from_le_bytes(length) as usize];
        input.read_exact(&mut request)?;
        let result = match ConformanceRequest::decode(&*request) {
            Ok(request) => answer(&request, &path),
            Err(error) => Answer::RuntimeError(error.to_string()),
        };
        let response = ConformanceResponse { result: Some(result) }.encode_to_vec();
        output.write_all(&u32::try_from(response.len()).map_err(io::Error::other)?.to_le_bytes())?;
        output.write_all(&response)?;
        output.flush()?;
    }
    Ok(())
}
