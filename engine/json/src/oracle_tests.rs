//! prost-reflect as the oracle: it reads and writes random messages with the same meaning.

use std::sync::LazyLock;

use prost::Message as _;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _,
    Value,
};

use super::tests::{DESCRIPTORS, read, write};

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(&DESCRIPTORS[..]).unwrap());

const SPECIAL: [&str; 8] = ["", "a", "\"", "\\", "\n\u{1}", "ä€😀", "plain and long enough for words", "\u{2028}/<"];

fn number(random: &mut fastrand::Rng) -> u64 {
    match random.u8(0..4) {
        0 => random.u64(0..4),
        1 => u64::MAX - random.u64(0..4),
        2 => 1u64 << random.u8(0..64),
        _ => random.u64(..) >> random.u8(0..64),
    }
}

fn text(random: &mut fastrand::Rng) -> String {
    (0..random.u8(0..4)).map(|_| SPECIAL[random.usize(0..SPECIAL.len())]).collect()
}

/// Numbers that `serde_json` reads without rounding errors; not -0, which prost-reflect drops as a default.
fn double(random: &mut fastrand::Rng) -> f64 {
    match random.u8(0..8) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        _ => f64::from(random.i32(..)) / 256.0,
    }
}

fn float(random: &mut fastrand::Rng) -> f32 {
    f32::from(random.i16(..)) / 8.0
}

fn low(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap()
}

fn value(kind: &Kind, depth: u8, random: &mut fastrand::Rng) -> Value {
    let bits = number(random);
    match kind {
        Kind::Double => Value::F64(double(random)),
        Kind::Float => Value::F32(float(random)),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(low(bits).cast_signed()),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(bits.cast_signed()),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(low(bits)),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(bits),
        Kind::Bool => Value::Bool(random.bool()),
        Kind::String => Value::String(text(random)),
        Kind::Bytes => Value::Bytes((0..random.u8(0..9)).map(|_| random.u8(..)).collect()),
        Kind::Message(message) => Value::Message(self::message(message, depth, random)),
        Kind::Enum(kind) if kind.full_name() == "google.protobuf.NullValue" => Value::EnumNumber(0),
        Kind::Enum(_) => Value::EnumNumber(low(bits).cast_signed()),
    }
}

fn key(kind: &Kind, random: &mut fastrand::Rng) -> MapKey {
    match value(kind, 0, random) {
        Value::Bool(key) => MapKey::Bool(key),
        Value::I32(key) => MapKey::I32(key),
        Value::I64(key) => MapKey::I64(key),
        Value::U32(key) => MapKey::U32(key),
        Value::U64(key) => MapKey::U64(key),
        Value::String(key) => MapKey::String(key),
        other => panic!("{other:?} is no key"),
    }
}

fn field(field: &FieldDescriptor, depth: u8, random: &mut fastrand::Rng) -> Value {
    let kind = field.kind();
    if field.is_map() {
        let entry = kind.as_message().unwrap();
        let (key_kind, value_kind) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
        return Value::Map(
            (0..random.u8(0..4)).map(|_| (key(&key_kind, random), value(&value_kind, depth, random))).collect(),
        );
    }
    if field.cardinality() == Cardinality::Repeated {
        return Value::List((0..random.u8(0..4)).map(|_| value(&kind, depth, random)).collect());
    }
    value(&kind, depth, random)
}

/// Fills well-known types whose values are restricted.
fn known(message: &mut DynamicMessage, random: &mut fastrand::Rng) -> bool {
    let nanos = [0, 500_000_000, 1_000, 999_999_999][random.usize(0..4)];
    match message.descriptor().full_name() {
        "google.protobuf.Timestamp" => {
            message.set_field_by_name("seconds", Value::I64(random.i64(-62_135_596_800..=253_402_300_799)));
            message.set_field_by_name("nanos", Value::I32(nanos));
        }
        "google.protobuf.Duration" => {
            let seconds = random.i64(-315_576_000_000..=315_576_000_000);
            message.set_field_by_name("seconds", Value::I64(seconds));
            message.set_field_by_name("nanos", Value::I32(if seconds < 0 { -nanos } else { nanos }));
        }
        "google.protobuf.FieldMask" => {
            let paths = (0..random.u8(0..3))
                .map(|_| Value::String(["a_b.c", "x", "long_name_here"][random.usize(0..3)].into()));
            message.set_field_by_name("paths", Value::List(paths.collect()));
        }
        "google.protobuf.Any" => {
            let name = ["kinds.Book", "google.protobuf.Duration", "google.protobuf.Empty"][random.usize(0..3)];
            let inner = self::message(&POOL.get_message_by_name(name).unwrap(), 0, random);
            message.set_field_by_name("type_url", Value::String(format!("type.googleapis.com/{name}")));
            message.set_field_by_name("value", Value::Bytes(inner.encode_to_vec().into()));
        }
        // prost-reflect writes an infinity in a wrapper as null.
        "google.protobuf.DoubleValue" => message.set_field_by_name("value", Value::F64(f64::from(nanos) / 4.0)),
        "google.protobuf.FloatValue" => message.set_field_by_name("value", Value::F32(0.25)),
        _ => return false,
    }
    true
}

fn message(descriptor: &MessageDescriptor, depth: u8, random: &mut fastrand::Rng) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    if known(&mut message, random) {
        return message;
    }
    if descriptor.full_name() == "google.protobuf.Value" {
        // `Value` cannot hold NaN or infinity in JSON.
        let (name, value) = match random.u8(0..if depth == 0 { 4 } else { 6 }) {
            0 => ("null_value", Value::EnumNumber(0)),
            1 => ("number_value", Value::F64(f64::from(random.i32(..)) / 8.0)),
            2 => ("string_value", Value::String(text(random))),
            3 => ("bool_value", Value::Bool(random.bool())),
            other => {
                let name = if other == 4 { "struct_value" } else { "list_value" };
                (name, field(&descriptor.get_field_by_name(name).unwrap(), depth - 1, random))
            }
        };
        message.set_field_by_name(name, value);
        return message;
    }
    for each in descriptor.fields() {
        let nests = matches!(each.kind(), Kind::Message(_));
        if random.bool() && !(nests && depth == 0) {
            message.set_field(&each, field(&each, depth.saturating_sub(u8::from(nests)), random));
        }
    }
    for each in descriptor.extensions() {
        if random.bool() {
            let one = value(&each.kind(), depth.saturating_sub(1), random);
            message.set_extension(&each, if each.is_list() { Value::List(vec![one]) } else { one });
        }
    }
    message
}

/// The same fields, every other one first, after an unknown one.
fn shuffled(message: &DynamicMessage) -> Vec<u8> {
    let mut parts = [vec![0xf8, 0xff, 3, 7], Vec::new()];
    for (index, (field, value)) in message.fields().enumerate() {
        let mut part = DynamicMessage::new(message.descriptor());
        part.set_field(&field, value.clone());
        parts[index % 2].extend(part.encode_to_vec());
    }
    for (index, (extension, value)) in message.extensions().enumerate() {
        let mut part = DynamicMessage::new(message.descriptor());
        part.set_extension(&extension, value.clone());
        parts[index % 2].extend(part.encode_to_vec());
    }
    parts.concat()
}

/// Number of random messages of each kind; `JSON_SEEDS` overrides the default.
fn seeds(usual: u64) -> u64 {
    std::env::var("JSON_SEEDS").map_or(usual, |seeds| seeds.parse().expect("a number"))
}

#[test]
fn random_messages_mean_the_same_to_prost_reflect() {
    let names = [
        "Book",
        "Shelf",
        "Scalars",
        "Optionals",
        "Lists",
        "Maps",
        "Choice",
        "Known",
        "Envelope",
        "Mixed",
        "Old",
        "Grouped",
    ];
    for seed in 0..seeds(600) {
        let random = &mut fastrand::Rng::with_seed(seed);
        for name in names {
            let descriptor = POOL.get_message_by_name(&format!("kinds.{name}")).unwrap();
            let wire = message(&descriptor, 2, random).encode_to_vec();
            let wanted = DynamicMessage::decode(descriptor.clone(), &wire[..]).unwrap();
            let json = write(name, &wire).unwrap_or_else(|error| panic!("{seed} {name}: {error}\n{wanted}"));
            // Our output means the same message to the oracle.
            let mut text = serde_json::Deserializer::from_str(&json);
            let understood = DynamicMessage::deserialize(descriptor.clone(), &mut text)
                .unwrap_or_else(|error| panic!("{seed} {name}: {error}\n{json}"));
            assert!(understood == wanted, "{seed} {name} {json}\n{understood}\n{wanted}");
            // The oracle's output is read as the same message.
            let theirs = serde_json::to_string(&wanted).unwrap();
            for json in [&json, &theirs] {
                let wire = read(name, json).unwrap_or_else(|error| panic!("{seed} {name}: {error}\n{json}"));
                let understood = DynamicMessage::decode(descriptor.clone(), &wire[..]).unwrap();
                assert!(understood == wanted, "{seed} {name} {json}\n{understood}\n{wanted}");
            }
            assert_eq!(write(name, &shuffled(&wanted)).unwrap(), json, "{seed} {name}: order does not count");
        }
    }
}

#[test]
fn messages_in_two_pieces_are_merged_as_prost_reflect_merges_them() {
    for seed in 0..1_000 {
        let random = &mut fastrand::Rng::with_seed(seed);
        for name in ["Shelf", "Scalars", "Optionals", "Lists", "Maps", "Choice", "Mixed", "Old", "Grouped"] {
            let descriptor = POOL.get_message_by_name(&format!("kinds.{name}")).unwrap();
            let pieces = [(); 2].map(|()| message(&descriptor, 2, random).encode_to_vec()).concat();
            let wanted = DynamicMessage::decode(descriptor.clone(), &pieces[..]).unwrap();
            let whole = write(name, &wanted.encode_to_vec()).unwrap();
            assert_eq!(write(name, &pieces).unwrap(), whole, "{seed} {name} {wanted}");
        }
    }
}
