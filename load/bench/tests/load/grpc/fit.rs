//! JSON into messages: accepts and rejects the same as the library that implements the JSON mapping.

use bench::workload::grpc::{Schema, example, message_from_json};
use proptest::prelude::*;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde_json::{Value, json};

const CONTRACT: &str = r#"
syntax = "proto3";
package p;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
service S { rpc M(A) returns (A); }
enum E { NONE = 0; ONE = 1; }
message A {
  int32 a = 1; sint64 b = 2; uint32 c = 3; fixed64 d = 4; float e = 5; double f = 6;
  bool g = 7; string h = 8; bytes i = 9; E j = 10; A k = 11;
  repeated int32 l = 12; repeated A m = 13; map<string, int32> n = 14; map<int32, A> o = 15; map<bool, E> q = 16;
  google.protobuf.Timestamp r = 17; google.protobuf.Int32Value s = 18; google.protobuf.Struct t = 19;
  oneof u { int32 v = 20; string w = 21; }
}
"#;

fn descriptor() -> MessageDescriptor {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("contract.proto");
    std::fs::write(&file, CONTRACT).unwrap();
    Schema::from_proto(&file, &[]).unwrap().method("p.S", "M").unwrap().input()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3i64..300).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "1",
            "-1",
            "1.5",
            "1e3",
            "true",
            "NaN",
            "Infinity",
            "ONE",
            "TWO",
            "YQ==",
            "YQ",
            "_-8=",
            "a b",
            "§",
            "2020-01-01T00:00:00Z",
            "4294967296",
            " 1",
        ])
        .prop_map(Value::from),
        Just(json!(1.0)),
        Just(json!(1e3)),
        Just(json!(2_147_483_648u32)),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let names = prop::sample::select("abcdefghijklmnoqrstvwxyz".chars().map(String::from).collect::<Vec<_>>());
        let keys = prop_oneof![8 => names, 1 => Just("1".to_owned()), 1 => Just("true".to_owned())];
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            3 => prop::collection::btree_map(keys, inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_is_taken_and_refused_as_the_mapping_says(json in any_json()) {
        thread_local! {
            static DESCRIPTOR: MessageDescriptor = descriptor();
        }
        let descriptor = DESCRIPTOR.with(Clone::clone);
        let library = DynamicMessage::deserialize(descriptor.clone(), &json);
        let ours = message_from_json(&json, &descriptor);
        // Messages are not shown: their contract is recursive, and so would be the output.
        prop_assert_eq!(ours.is_ok(), library.is_ok(), "{:?}\n{:?}", ours.err(), library.err());
    }
}

#[test]
fn example_of_a_contract_with_everything_in_it_fits() {
    let descriptor = descriptor();
    let example = example(&descriptor);
    message_from_json(&example, &descriptor).unwrap();
    assert_eq!(example["n"], json!({"key": 0}));
    assert_eq!((example.get("v"), example.get("w")), (Some(&json!(0)), None));
}

#[test]
fn keys_of_maps_and_names_of_enums_are_checked() {
    let descriptor = descriptor();
    for (json, line) in [
        (json!({"o": {"x": {}}}), r#"o: wants keys that are an int32, got {"x":{}}"#),
        (json!({"n": {"x": "y"}}), r#"n.x: wants an int32, got "y""#),
        (json!({"j": "TWO"}), r#"j: wants a p.E (ONE, NONE), got "TWO""#),
        (json!({"n": []}), "n: wants an object of keys and values, got []"),
        (json!({"k": {"m": [{}, {"g": 1}]}}), "k.m[1].g: wants a bool: true or false, got 1"),
    ] {
        assert_eq!(message_from_json(&json, &descriptor).unwrap_err().to_string(), line);
    }
}
