//! A contract with every kind of field, and its document.

use openapi::{add, document};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use quire_rpc::prost::Message as _;
use serde_json::{Value, json};

const CONTRACT: &str = r#"
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";

// Sells things.
//
// All day.
service Shop {
  // Finds a thing. Its price is
  // today's.
  rpc Find(Thing) returns (Thing) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Sell(Thing) returns (Thing);
  // Tells of sales.
  rpc Watch(Thing) returns (stream Sale);
  rpc Talk(stream Thing) returns (stream Thing);
}
service Hidden { rpc Never(Unseen) returns (Unseen); }
message Unseen {}
message Sale {}

// A thing.
message Thing {
  // Counts.
  int64 item_count = 1;
  repeated uint32 sizes = 2;
  map<string, Part> parts = 3;
  oneof price {
    double exact = 4;
    string told = 5;
  }
  optional bool is_new = 6;
  bytes picture = 7;
  Color color = 8;
  google.protobuf.Timestamp made_at = 9;
  google.protobuf.Value note = 10 [json_name = "remark"];
  message Part { Thing whole = 1; }
}

// Of the surface.
enum Color {
  COLOR_UNSPECIFIED = 0;
  // As blood.
  COLOR_RED = 1;
}
"#;

struct One;

impl FileResolver for One {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "shop.proto" => File::from_source(name, CONTRACT),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

fn shop() -> Value {
    let mut files = ChainFileResolver::new();
    files.add(One);
    files.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(files);
    compiler.include_imports(true).include_source_info(true).open_file("shop.proto").expect("a contract");
    let set = compiler.file_descriptor_set().encode_to_vec();
    let services = ["shop.v1.Shop".to_owned(), "not.There".to_owned()];
    document("Shop", "1.2.3", &[&set, &set], &services).expect("a document")
}

#[test]
fn a_method_is_a_post_with_its_messages_and_a_get_if_it_changes_nothing() {
    let shop = shop();
    let find = &shop["paths"]["/shop.v1.Shop/Find"];
    let thing = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/shop.v1.Thing" } } });
    assert_eq!(find["post"]["requestBody"], json!({ "required": true, "content": thing }));
    assert_eq!(find["post"]["responses"]["200"]["content"], thing);
    assert_eq!((&find["post"]["summary"], &find["post"]["tags"]), (&json!("Finds a thing."), &json!(["shop.v1.Shop"])));
    assert_eq!(find["post"]["description"], "Finds a thing. Its price is today's.");
    assert_eq!(find["get"]["parameters"][2]["content"], thing);
    let sell = &shop["paths"]["/shop.v1.Shop/Sell"];
    assert_eq!((sell.get("get"), &sell["post"]["summary"]), (None, &json!("Sell")));
}

#[test]
fn a_call_that_failed_has_the_statuses_of_its_codes() {
    let shop = shop();
    let responses = &shop["paths"]["/shop.v1.Shop/Sell"]["post"]["responses"];
    assert_eq!(responses["404"]["$ref"], "#/components/responses/Error404");
    let told = &shop["components"]["responses"]["Error400"]["description"];
    assert_eq!(told, "The call failed: `invalid_argument`, `failed_precondition`, `out_of_range`.");
    let codes = shop["components"]["schemas"]["connect.Error"]["properties"]["code"]["enum"].as_array();
    assert_eq!(codes.map(Vec::len), Some(16));
}

#[test]
fn methods_that_stream_are_named_under_their_service_with_their_messages() {
    let shop = shop();
    assert_eq!(shop["paths"].as_object().map(serde_json::Map::len), Some(2));
    assert_eq!(shop["tags"].as_array().map(Vec::len), Some(1));
    let tag = &shop["tags"][0];
    assert_eq!((&tag["name"], &tag["description"]), (&json!("shop.v1.Shop"), &json!("Sells things.\n\nAll day.")));
    let watch = json!({
        "path": "/shop.v1.Shop/Watch",
        "description": "Tells of sales.",
        "contentType": "application/connect+json",
        "request": { "$ref": "#/components/schemas/shop.v1.Thing" },
        "requestStreams": false,
        "answer": { "$ref": "#/components/schemas/shop.v1.Sale" },
        "answerStreams": true,
    });
    assert_eq!(tag["x-streams"][0], watch);
    assert_eq!(tag["x-streams"][1]["requestStreams"], true);
}

#[test]
fn a_message_is_an_object_with_the_fields_that_json_has() {
    let shop = shop();
    let schemas = &shop["components"]["schemas"];
    let thing = &schemas["shop.v1.Thing"];
    assert_eq!(thing["description"], "A thing.");
    let fields = &thing["properties"];
    let count = &fields["itemCount"];
    assert_eq!(
        (&count["type"], &count["format"], &count["description"]),
        (&json!("string"), &json!("int64"), &json!("Counts."))
    );
    assert_eq!(fields["sizes"]["items"]["maximum"], u32::MAX);
    let part = json!({ "$ref": "#/components/schemas/shop.v1.Thing.Part" });
    assert_eq!(fields["parts"], json!({ "type": "object", "additionalProperties": part }));
    assert_eq!(schemas["shop.v1.Thing.Part"]["properties"]["whole"]["$ref"], "#/components/schemas/shop.v1.Thing");
    assert_eq!(fields["picture"]["contentEncoding"], "base64");
    assert_eq!(fields["madeAt"]["format"], "date-time");
    assert_eq!(fields["remark"], json!({}));
    let color = &schemas["shop.v1.Color"];
    assert_eq!(color["enum"], json!(["COLOR_UNSPECIFIED", "COLOR_RED"]));
    assert_eq!(color["description"], "Of the surface.\n\n`COLOR_RED`: As blood.");
    assert!(schemas.get("shop.v1.Unseen").is_none(), "only what served methods need");
}

#[test]
fn at_most_one_field_of_a_oneof_may_be_there_and_an_optional_one_is_free() {
    let shop = shop();
    let exact = json!({ "required": ["exact"] });
    let told = json!({ "required": ["told"] });
    let none = json!({ "not": { "anyOf": [exact, told] } });
    assert_eq!(shop["components"]["schemas"]["shop.v1.Thing"]["allOf"], json!([{ "oneOf": [exact, told, none] }]));
}

#[test]
fn a_part_is_added_and_what_is_there_stays() {
    let mut document = json!({ "paths": { "/a": { "get": 1 } }, "tags": [1] });
    add(&mut document, &json!({ "paths": { "/a": { "get": 2, "head": 3 }, "/b": {} }, "tags": [2] }));
    assert_eq!(document, json!({ "paths": { "/a": { "get": 1, "head": 3 }, "/b": {} }, "tags": [1, 2] }));
}
