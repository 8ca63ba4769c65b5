//! The well-known types, both ways.

use super::tests::{check, read, write};

#[track_caller]
fn same(json: &str) {
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
        same(&format!(r#"{{"time":"{time}"}}"#));
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
        same(&format!(r#"{{"duration":"{duration}"}}"#));
    }
    check("Known", r#"{"duration":"1.5s"}"#, r#"{"duration":"1.500s"}"#);
}

#[test]
fn field_masks_are_paths_in_camel_case() {
    same(r#"{"mask":"user.displayName,photo"}"#);
    same(r#"{"mask":""}"#);
    assert_eq!(read("Known", r#"{"mask":"aB"}"#).unwrap(), [0x1a, 5, 0x0a, 3, b'a', b'_', b'b']);
}

#[test]
fn wrappers_are_their_values() {
    same(
        r#"{"aDouble":1.5,"aFloat":0,"anInt64":"-1","aUint64":"0","anInt32":0,"aUint32":7,"aBool":false,"aString":"","someBytes":""}"#,
    );
    same(r#"{"int64s":["0","1"]}"#);
}

#[test]
fn structs_values_and_lists_are_any_json() {
    same(r#"{"object":{"a":[1,"x",true,null,{"b":{}}]},"value":{"c":[[]]},"list":[{},[],1.5]}"#);
    same(r#"{"object":{},"list":[]}"#);
    for value in ["null", "0", "-1.5e-7", "\"\"", "\"NaN\"", "true", "false", "{}", "[]"] {
        same(&format!(r#"{{"value":{value},"values":[{value},{value}],"named":{{"x":{value}}}}}"#));
    }
}

#[test]
fn null_values_and_empties_have_their_forms() {
    same(r#"{"empty":{}}"#);
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
