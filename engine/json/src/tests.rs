//! Examples of the mapping, in both directions.

use super::wire::put_delimited;
use super::{Error, MessageId, Schema};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use std::sync::LazyLock;

/// Encoded descriptors of the test messages.
pub(super) static DESCRIPTORS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    protox::compile(["kinds.proto"], [proto]).unwrap().encode_to_vec()
});

pub(super) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new([&DESCRIPTORS[..], &DESCRIPTORS]).unwrap());

pub(super) fn id(name: &str) -> MessageId {
    SCHEMA.message(&format!("kinds.{name}")).unwrap()
}

pub(super) fn read(name: &str, json: &str) -> Result<Vec<u8>, Error> {
    let mut out = vec![42];
    let read = SCHEMA.read(id(name), json.as_bytes(), &mut out);
    assert!(out[0] == 42 && (read.is_ok() || out.len() == 1), "what was there stays");
    read.map(|()| out.split_off(1))
}

pub(super) fn write(name: &str, wire: &[u8]) -> Result<String, Error> {
    let mut out = vec![b'*'];
    let written = SCHEMA.write(id(name), wire, &mut out);
    assert!(out[0] == b'*' && (written.is_ok() || out.len() == 1), "what was there stays");
    written.map(|()| String::from_utf8(out.split_off(1)).unwrap())
}

/// Reads `json` and writes it again.
#[track_caller]
pub(super) fn check(name: &str, json: &str, wanted: &str) {
    let wire = read(name, json).unwrap_or_else(|error| panic!("{json}: {error}"));
    assert_eq!(write(name, &wire).unwrap_or_else(|error| panic!("{json}: {error}")), wanted, "{json}");
}

#[track_caller]
fn same(name: &str, json: &str) {
    check(name, json, json);
}

#[test]
fn an_empty_message_is_an_empty_object() {
    same("Scalars", "{}");
    check("Scalars", " { \n\t\r} ", "{}");
    assert!(read("Scalars", "{}").unwrap().is_empty());
}

#[test]
fn every_scalar_has_its_form() {
    same(
        "Scalars",
        r#"{"aDouble":1.5,"aFloat":-0.1,"anInt32":-2147483648,"anInt64":"-9223372036854775808","aUint32":4294967295,"aUint64":"18446744073709551615","aSint32":-2147483648,"aSint64":"9223372036854775807","aFixed32":4294967295,"aFixed64":"18446744073709551615","aSfixed32":-1,"aSfixed64":"-1","aBool":true,"aString":"x","someBytes":"AQID","colour":"GREEN","inner":{},"other \"name\"":"y"}"#,
    );
}

#[test]
fn defaults_are_left_out_without_presence_and_kept_with_it() {
    check(
        "Scalars",
        r#"{"aDouble":0,"anInt32":0,"aUint64":"0","aBool":false,"aString":"","someBytes":"","colour":0}"#,
        "{}",
    );
    same(
        "Optionals",
        r#"{"aDouble":0,"aFloat":0,"anInt32":0,"aUint64":"0","aSint64":"0","aFixed32":0,"aSfixed64":"0","aBool":false,"aString":"","someBytes":"","colour":"COLOUR_UNSPECIFIED"}"#,
    );
    same("Choice", r#"{"number":0,"yes":false}"#);
    same("Choice", r#"{"scalars":{}}"#);
    assert_eq!(write("Scalars", &[0x18, 0, 0x72, 0]).unwrap(), "{}");
}

#[test]
fn original_names_escaped_names_and_unknown_members_are_read() {
    check(
        "Scalars",
        r#"{"an_int32":1,"a\u0055int32":2,"renamed":"x"}"#,
        r#"{"anInt32":1,"aUint32":2,"other \"name\"":"x"}"#,
    );
    check(
        "Scalars",
        r#"{"what":[{"a":[1,-0.5e+3,true,null,"\u00e4\\",{}]},[]], "anInt32" : 1 , "":{"":""}}"#,
        r#"{"anInt32":1}"#,
    );
    same("Scalars", r#"{"other \"name\"":"x"}"#);
}

#[test]
fn whole_numbers_are_read_in_every_form() {
    for form in
        ["1000", "1e3", "1E+3", "1.0e3", "1000.00", "100000e-2", "0.001e6", "\"1000\"", "\"1e3\"", "\"\\u0031000\""]
    {
        check("Scalars", &format!(r#"{{"anInt32":{form},"anInt64":{form}}}"#), r#"{"anInt32":1000,"anInt64":"1000"}"#);
    }
    check("Scalars", r#"{"anInt64":9223372036854775807.0,"aUint64":-0}"#, r#"{"anInt64":"9223372036854775807"}"#);
    check("Scalars", r#"{"aUint64":0e99999999999999999999,"aUint32":0.000e-5}"#, "{}");
}

#[test]
fn floating_point_numbers_have_words_for_what_json_cannot_write() {
    same(
        "Lists",
        r#"{"doubles":["NaN","Infinity","-Infinity",-0,1e+300,5e-324],"floats":["NaN","-Infinity",3.4028235e+38]}"#,
    );
    check("Lists", r#"{"doubles":["1.5","-1e2",1,1.0e-1]}"#, r#"{"doubles":[1.5,-100,1,0.1]}"#);
}

#[test]
fn strings_are_escaped_where_they_must_be() {
    same("Scalars", r#"{"aString":"\"\\\b\f\n\r\t\u0000\u001f/ä€😀\u007f"}"#.replace("\\u007f", "\u{7f}").as_str());
    check("Scalars", r#"{"aString":"\/\u00e4\ud83d\ude00\u0041"}"#, r#"{"aString":"/ä😀A"}"#);
}

#[test]
fn bytes_are_read_in_both_alphabets_with_and_without_padding() {
    for (form, wanted) in
        [("+/8=", "+/8="), ("-_8", "+/8="), ("-_8=", "+/8="), ("+\\/8", "+/8="), ("AA", "AA=="), ("AAAA", "AAAA")]
    {
        check("Scalars", &format!(r#"{{"someBytes":"{form}"}}"#), &format!(r#"{{"someBytes":"{wanted}"}}"#));
    }
}

#[test]
fn enums_are_names_and_unknown_numbers_stay_numbers() {
    same("Lists", r#"{"colours":["RED","INFRARED","FAR",7,-5,"COLOUR_UNSPECIFIED"]}"#);
    check("Lists", r#"{"colours":["CRIMSON",2,"2x",1.0]}"#, r#"{"colours":["RED","GREEN","RED"]}"#);
    check("Scalars", r#"{"colour":"NO_SUCH"}"#, "{}");
    check("Maps", r#"{"colours":{"a":"NO_SUCH","b":"RED"}}"#, r#"{"colours":{"b":"RED"}}"#);
}

#[test]
fn null_means_absent() {
    check("Scalars", r#"{"aString":null,"inner":null,"colour":null}"#, "{}");
    check("Lists", r#"{"strings":null,"scalars":null}"#, "{}");
    check("Choice", r#"{"number":null,"text":"x"}"#, r#"{"text":"x"}"#);
    check("Known", r#"{"time":null,"anInt64":null,"empty":null,"values":null}"#, "{}");
    same("Known", r#"{"value":null}"#);
    same("Choice", r#"{"nothing":null}"#);
    check("Known", r#"{"nothing":null}"#, "{}");
}

#[test]
fn lists_are_packed_as_the_contract_says_and_read_in_both_forms() {
    same(
        "Lists",
        r#"{"int32s":[1,-1],"int64s":["1"],"sint32s":[-1],"fixed64s":["7"],"bools":[true,false],"strings":["",""],"blocks":["",""],"scalars":[{},{"anInt32":1}],"apart":[1,2]}"#,
    );
    check("Lists", r#"{"int32s":[],"strings":[],"colours":["NO_SUCH"]}"#, "{}");
    assert_eq!(read("Lists", r#"{"int32s":[1,2]}"#).unwrap(), [0x1a, 2, 1, 2]);
    assert_eq!(read("Lists", r#"{"apart":[1,2]}"#).unwrap(), [0x90, 1, 1, 0x90, 1, 2]);
    assert_eq!(read("Old", r#"{"apart":[1,2],"packed":[3]}"#).unwrap(), [0x18, 1, 0x18, 2, 0x22, 1, 3]);
    assert_eq!(write("Lists", &[0x18, 1, 0x1a, 2, 2, 3, 0x1a, 0, 0x18, 4]).unwrap(), r#"{"int32s":[1,2,3,4]}"#);
    assert_eq!(write("Lists", &[0x1a, 0]).unwrap(), "{}");
}

#[test]
fn maps_have_keys_of_every_kind() {
    same(
        "Maps",
        r#"{"int32s":{"0":0,"1":2,"-1":-2},"int64s":{"-1":"1"},"uint32s":{"4294967295":0.5},"uint64s":{"18446744073709551615":1.5},"sint32s":{"-3":-3},"sint64s":{"-3":"-3"},"fixed32s":{"3":3},"fixed64s":{"3":"3"},"sfixed32s":{"-3":-3},"sfixed64s":{"-3":"-3"},"bools":{"false":true,"true":false},"strings":{"":"","a\"b":"c"},"blocks":{"x":"AQ=="},"colours":{"x":"COLOUR_UNSPECIFIED"},"scalars":{"":{},"x":{"anInt32":1}},"inner":{"i":{"inner":{"j":{}}}}}"#,
    );
}

#[test]
fn a_map_on_the_wire_may_lack_keys_and_values_and_have_a_key_twice() {
    assert_eq!(write("Maps", &[0x1a, 0]).unwrap(), r#"{"int32s":{"0":0}}"#);
    let twice = [0x1a, 4, 8, 1, 16, 2, 0x1a, 4, 16, 3, 8, 1, 0x1a, 2, 16, 9];
    assert_eq!(write("Maps", &twice).unwrap(), r#"{"int32s":{"0":9,"1":3}}"#);
    // A message value in two pieces is merged.
    let pieces = [0x8a, 1, 8, 0x12, 2, 0x18, 1, 0x12, 2, 0x28, 2];
    assert_eq!(write("Maps", &pieces).unwrap(), r#"{"scalars":{"":{"anInt32":1,"aUint32":2}}}"#);
}

#[test]
fn fields_out_of_order_are_sorted_merged_and_replaced() {
    let wire = [0x18, 1, 0x0a, 1, b'a', 0x2a, 2, 0x18, 1, 0x1a, 2, 2, 3, 0x2a, 2, 0x28, 5, 0x0a, 1, b'b'];
    assert_eq!(
        write("Mixed", &wire).unwrap(),
        r#"{"first":"b","numbers":[1,2,3],"scalars":{"anInt32":1,"aUint32":5}}"#
    );
}

#[test]
fn the_last_member_of_a_oneof_counts() {
    assert_eq!(write("Choice", &[0x10, 1, 0x1a, 1, b'x']).unwrap(), r#"{"text":"x"}"#);
    assert_eq!(write("Choice", &[0x1a, 1, b'x', 0x10, 0]).unwrap(), r#"{"number":0}"#);
    // Another member between two pieces of a message discards the first piece.
    let cut = [0x22, 2, 0x18, 1, 0x10, 1, 0x22, 2, 0x28, 2];
    assert_eq!(write("Choice", &cut).unwrap(), r#"{"scalars":{"aUint32":2}}"#);
    let whole = [0x22, 2, 0x18, 1, 0x22, 2, 0x28, 2];
    assert_eq!(write("Choice", &whole).unwrap(), r#"{"scalars":{"anInt32":1,"aUint32":2}}"#);
}

#[test]
fn unknown_fields_on_the_wire_are_left_out() {
    let wire = [0x18, 1, 0xa2, 6, 1, 0, 0xa3, 6, 0x0a, 1, 0, 0xa4, 6, 0xa5, 6, 1, 2, 3, 4, 0xa0, 6, 1];
    assert_eq!(write("Scalars", &wire).unwrap(), r#"{"anInt32":1}"#);
}

#[test]
fn proto2_keeps_what_was_set() {
    same("Old", r#"{"needed":0,"text":"","apart":[1,2],"packed":[3],"closed":"TWO"}"#);
}

#[test]
fn an_extension_has_its_full_name_in_brackets() {
    same("Old", r#"{"needed":1,"[kinds.more]":"","[kinds.numbers]":[1,2],"[kinds.Grouped.count]":0}"#);
    same("Old", r#"{"[kinds.Grouped.grouped]":{"before":"x"}}"#);
    check("Old", r#"{"more":"x","[more]":"y","[kinds.count]":1,"kinds.more":"z"}"#, "{}");
    assert_eq!(read("Old", r#"{"[kinds.more]":"x"}"#).unwrap(), [0xa2, 6, 1, b'x']);
}

/// Wire bytes of a message of `kinds2.proto` as a file of an edition with these features.
fn read_with_features(features: &[u8], name: &str, json: &str) -> Vec<u8> {
    let mut set = Vec::new();
    for mut file in FileDescriptorSet::decode(&DESCRIPTORS[..]).unwrap().file {
        let mut options = Vec::new();
        if file.name() == "kinds2.proto" {
            file.syntax = Some("editions".to_owned());
            let len = u8::try_from(features.len()).unwrap();
            options = [&[0x42, len + 3, 0x92, 3, len], features].concat();
        }
        put_delimited(1, &[file.encode_to_vec(), options].concat(), &mut set);
    }
    let (schema, mut wire) = (Schema::new([&set[..]]).unwrap(), Vec::new());
    schema.read(schema.message(name).unwrap(), json.as_bytes(), &mut wire).unwrap();
    wire
}

#[test]
fn features_of_an_edition_set_presence_and_encoding() {
    let (old, grouped) = (r#"{"text":"","apart":[1,2],"packed":[3]}"#, r#"{"inner":{"grouped":{}}}"#);
    assert_eq!(read_with_features(&[], "kinds.Old", old), [0x12, 0, 0x1a, 2, 1, 2, 0x22, 1, 3]);
    assert_eq!(read_with_features(&[], "kinds.Grouped", grouped), [0x13, 0x22, 0, 0x14]);
    let (implicit, expanded, delimited) = ([0x08, 2], [0x18, 2], [0x28, 2]);
    assert_eq!(read_with_features(&implicit, "kinds.Old", old), [0x1a, 2, 1, 2, 0x22, 1, 3]);
    assert_eq!(read_with_features(&expanded, "kinds.Old", old), [0x12, 0, 0x18, 1, 0x18, 2, 0x20, 3]);
    assert_eq!(read_with_features(&delimited, "kinds.Grouped", grouped), [0x13, 0x23, 0x24, 0x14]);
}

#[test]
fn a_group_looks_like_a_message() {
    same(
        "Grouped",
        r#"{"before":"x","inner":{"number":0,"grouped":{"inner":{}}},"each":[{"text":"y"},{},{"deeper":{}}]}"#,
    );
    same("Grouped", r#"{"chosen":{"numbers":[1,2]}}"#);
    assert_eq!(read("Grouped", r#"{"inner":{"number":7}}"#).unwrap(), [0x13, 0x18, 7, 0x14]);
    // Two pieces are merged, even with another field between them.
    let pieces = [0x13, 0x18, 7, 0x14, 0x0a, 0, 0x13, 0x22, 0, 0x14];
    assert_eq!(write("Grouped", &pieces).unwrap(), r#"{"before":"","inner":{"number":7,"grouped":{}}}"#);
    // A message with a length is not a group, and vice versa.
    assert!(write("Grouped", &[0x12, 0]).is_err());
    assert!(write("Grouped", &[0x13, 0x23, 0x24, 0x14]).is_err());
}

#[test]
fn long_messages_have_long_lengths() {
    let text = "x".repeat(300);
    let inner = format!(
        r#"{{"books":[{{"id":"1","title":"{text}"}},{{"title":"{text}"}}],"next":{{"books":[{{"title":"{text}"}}]}}}}"#
    );
    same("Shelf", &format!(r#"{{"byName":{{"k":{{"title":"{text}"}}}},"next":{inner},"inner":[{inner},{inner}]}}"#));
}

#[test]
fn floating_point_numbers_keep_every_bit() {
    let random = &mut fastrand::Rng::with_seed(1);
    for _ in 0..100_000 {
        let (float, double) = (f32::from_bits(random.u32(..)), f64::from_bits(random.u64(..)));
        if float.is_finite() && double.is_finite() {
            let wire = [&[0x0a, 8][..], &double.to_le_bytes(), &[0x12, 4], &float.to_le_bytes()].concat();
            let json = write("Lists", &wire).unwrap();
            assert_eq!(read("Lists", &json).unwrap(), wire, "{json}");
        }
    }
}

#[track_caller]
fn same_known(json: &str) {
    check("Known", json, json);
}

#[test]
fn timestamps_are_times_of_rfc_3339() {
    for time in [
        "0001-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "1969-12-31T23:59:59.999999999Z",
        "2000-02-29T12:34:56.789Z",
        "2024-12-31T23:59:59.000001Z",
        "9999-12-31T23:59:59.999999999Z",
    ] {
        same_known(&format!(r#"{{"time":"{time}"}}"#));
    }
    check("Known", r#"{"time":"2001-01-01T01:30:00+01:30"}"#, r#"{"time":"2001-01-01T00:00:00Z"}"#);
    check("Known", r#"{"time":"2000-12-31T23:30:00.5-00:30"}"#, r#"{"time":"2001-01-01T00:00:00.500Z"}"#);
    assert_eq!(read("Known", r#"{"time":"1970-01-01T00:00:01Z"}"#).unwrap(), [0x0a, 2, 8, 1]);
    assert_eq!(
        write("Known", &[0x0a, 2, 0x10, 1, 0x0a, 2, 8, 1]).unwrap(),
        r#"{"time":"1970-01-01T00:00:01.000000001Z"}"#
    );
}

#[test]
fn durations_are_seconds() {
    for duration in
        ["0s", "1s", "-1s", "0.500s", "-0.500s", "1.000001s", "1.000000001s", "315576000000s", "-315576000000s"]
    {
        same_known(&format!(r#"{{"duration":"{duration}"}}"#));
    }
    check("Known", r#"{"duration":"1.5s"}"#, r#"{"duration":"1.500s"}"#);
}

#[test]
fn field_masks_are_paths_in_camel_case() {
    same_known(r#"{"mask":"user.displayName,photo"}"#);
    same_known(r#"{"mask":""}"#);
    assert_eq!(read("Known", r#"{"mask":"aB"}"#).unwrap(), [0x1a, 5, 0x0a, 3, b'a', b'_', b'b']);
}

#[test]
fn wrappers_are_their_values() {
    same_known(
        r#"{"aDouble":1.5,"aFloat":0,"anInt64":"-1","aUint64":"0","anInt32":0,"aUint32":7,"aBool":false,"aString":"","someBytes":""}"#,
    );
    same_known(r#"{"int64s":["0","1"]}"#);
}

#[test]
fn structs_values_and_lists_are_any_json() {
    same_known(r#"{"object":{"a":[1,"x",true,null,{"b":{}}]},"value":{"c":[[]]},"list":[{},[],1.5]}"#);
    same_known(r#"{"object":{},"list":[]}"#);
    for value in ["null", "0", "-1.5e-7", "\"\"", "\"NaN\"", "true", "false", "{}", "[]"] {
        same_known(&format!(r#"{{"value":{value},"values":[{value},{value}],"named":{{"x":{value}}}}}"#));
    }
}

#[test]
fn null_values_and_empties_have_their_forms() {
    same_known(r#"{"empty":{}}"#);
    check("Known", r#"{"nothing":"NULL_VALUE","empty":{"unknown":1}}"#, r#"{"empty":{}}"#);
}

#[test]
fn any_holds_messages_of_the_contracts() {
    let same = |json: &str| check("Envelope", json, json);
    same(r#"{"any":{}}"#);
    same(r#"{"any":{"@type":"type.googleapis.com/kinds.Book"}}"#);
    same(r#"{"any":{"@type":"a/b/kinds.Book","id":"7","title":"x"}}"#);
    same(
        r#"{"any":{"@type":"/google.protobuf.Duration","value":"1.500s"},"more":[{"@type":"/google.protobuf.Value","value":null}]}"#,
    );
    same(r#"{"any":{"@type":"/google.protobuf.Any","value":{"@type":"/google.protobuf.Empty","value":{}}}}"#);
    same(r#"{"any":{"@type":"/kinds.Envelope","any":{"@type":"/google.protobuf.Int64Value","value":"0"}}}"#);
    check(
        "Envelope",
        r#"{"any":{"title":"x","more":[{}],"@type":"/kinds.Book","id":7}}"#,
        r#"{"any":{"@type":"/kinds.Book","id":"7","title":"x"}}"#,
    );
    check(
        "Envelope",
        r#"{"any":{"value":"1s","other":1,"@type":"/google.protobuf.Duration"}}"#,
        r#"{"any":{"@type":"/google.protobuf.Duration","value":"1s"}}"#,
    );
    check(
        "Envelope",
        r#"{"any":{"@type":"/google.protobuf.Empty"}}"#,
        r#"{"any":{"@type":"/google.protobuf.Empty","value":{}}}"#,
    );
    let long = "x".repeat(500);
    same(&format!(r#"{{"any":{{"@type":"/kinds.Envelope","more":[{{"@type":"/kinds.Book","title":"{long}"}}]}}}}"#));
}
