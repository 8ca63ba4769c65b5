//! Any bytes as JSON and as messages of every kind of field: no panic, and after one round trip further ones yield the
//! same message and the same JSON.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use quire_json::{Error, MessageId, Schema};

struct Message {
    schema: &'static Schema,
    id: MessageId,
}

impl Message {
    fn read(&self, json: &[u8]) -> Result<Vec<u8>, Error> {
        let mut wire = Vec::new();
        self.schema.read(self.id, json, &mut wire).map(|()| wire)
    }

    fn write(&self, wire: &[u8]) -> Result<Vec<u8>, Error> {
        let mut json = Vec::new();
        self.schema.write(self.id, wire, &mut json).map(|()| json)
    }
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/json/proto");
    let set = protox::compile(["kinds.proto"], [proto]).unwrap().encode_to_vec();
    Schema::new([&set[..]]).unwrap()
});

static MESSAGES: LazyLock<Vec<Message>> = LazyLock::new(|| {
    let names = ["Scalars", "Optionals", "Lists", "Maps", "Choice", "Known", "Envelope", "Shelf", "Mixed"];
    let message = |name| Message { schema: &SCHEMA, id: SCHEMA.message(&format!("kinds.{name}")).unwrap() };
    names.into_iter().map(message).collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((first, data)) = data.split_first() else { return };
    let message = &MESSAGES[usize::from(*first >> 1) % MESSAGES.len()];
    let json = if first & 1 == 0 {
        let Ok(wire) = message.read(data) else { return };
        message.write(&wire)
    } else {
        message.write(data)
    };
    let Ok(json) = json else {
        assert!(first & 1 == 1, "what was read is a message: {json:?}");
        return;
    };
    // A member that replaces a default may be gone after the first time, so the message settles here.
    let wire = message.read(&json).unwrap();
    let again = message.write(&wire).unwrap();
    assert_eq!(message.read(&again).unwrap(), wire);
    assert_eq!(message.write(&message.read(&again).unwrap()).unwrap(), again);
});
