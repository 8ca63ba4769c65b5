//! Time per message, compared with prost-reflect. Run with `cargo test --release -p quire-json --lib speed -- --ignored
//! --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};

use super::tests::{DESCRIPTORS, SCHEMA, id, read, write};

const ROUNDS: u32 = 200;

/// Nanoseconds per round: the minimum of many short runs, few of which other programs disturb.
fn nanoseconds(mut round: impl FnMut()) -> f64 {
    let tries = (0..200).map(|_| {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            round();
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
    });
    tries.fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "prints times"]
#[expect(clippy::print_stdout, reason = "prints times")]
fn a_message_each_way() {
    let pool = DescriptorPool::decode(&DESCRIPTORS[..]).unwrap();
    let book = r#"{"id":"1234567","title":"The Sea, the Sea","authorName":"Iris Murdoch","stock":17,"priceCents":"1299","onSale":true,"rating":4.25,"colour":"GREEN"}"#;
    let books = format!(r#"{{"books":[{}{book}]}}"#, format!("{book},").repeat(9));
    let maps = r#"{"strings":{"a":"b","c":"d","e":"f","g":"h"},"scalars":{"x":{"anInt32":1},"y":{"aString":"z"}}}"#;
    let known =
        r#"{"time":"2024-02-29T12:34:56.789Z","duration":"1.500s","value":{"a":[1,2,{"b":null}]},"anInt64":"5"}"#;
    for (name, json) in [("Book", book), ("Shelf", &books), ("Maps", maps), ("Known", known)] {
        let wire = read(name, json).unwrap();
        assert_eq!(write(name, &wire).unwrap(), json);
        let id = id(name);
        let mut out = Vec::with_capacity(8192);
        let writes = nanoseconds(|| {
            out.clear();
            SCHEMA.write(id, black_box(&wire), &mut out).unwrap();
        });
        let reads = nanoseconds(|| {
            out.clear();
            SCHEMA.read(id, black_box(json.as_bytes()), &mut out).unwrap();
        });
        let descriptor = pool.get_message_by_name(&format!("kinds.{name}")).unwrap();
        let other_writes = nanoseconds(|| {
            let message = DynamicMessage::decode(descriptor.clone(), black_box(&wire[..])).unwrap();
            black_box(serde_json::to_vec(&message).unwrap());
        });
        let other_reads = nanoseconds(|| {
            let mut text = serde_json::Deserializer::from_slice(black_box(json.as_bytes()));
            let message = DynamicMessage::deserialize(descriptor.clone(), &mut text).unwrap();
            black_box(message.encode_to_vec());
        });
        println!(
            "{name:8} {:5} B of JSON, {:4} B of wire: writes {writes:6.0} ns (prost-reflect {other_writes:6.0}), reads {reads:6.0} ns ({other_reads:6.0})",
            json.len(),
            wire.len()
        );
    }
}
