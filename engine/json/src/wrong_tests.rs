//! Rejected input, and the exact errors.

use prost::Message as _;

use super::tests::{SCHEMA, id, read, write};
use super::{DEPTH_MAX, Schema};

#[track_caller]
fn refused(name: &str, json: &str, wanted: &str) {
    match read(name, json) {
        Ok(wire) => panic!("{json} was read: {wire:?}"),
        Err(error) => assert_eq!(error.to_string(), wanted, "{json}"),
    }
}

#[test]
fn json_that_is_none_is_refused() {
    for (json, wanted) in [
        ("", "expected an object, found the end of the JSON at byte 0"),
        ("[]", "expected an object, found an array at byte 0"),
        ("null", "expected an object, found `null` at byte 0"),
        ("{", "expected a member's name in quotes, found the end of the JSON at byte 1"),
        ("{,}", "expected a member's name in quotes, found `,` at byte 1"),
        ("{a:1}", "expected a member's name in quotes, found `a` at byte 1"),
        ("{\"anInt32\"}", "expected `:`, found `}` at byte 10"),
        ("{\"anInt32\":}", "anInt32: expected a whole number from -2147483648 to 2147483647, found `}` at byte 11"),
        ("{\"anInt32\":1", "expected `,` or `}`, found the end of the JSON at byte 12"),
        ("{\"anInt32\":1,}", "expected a member's name in quotes, found `}` at byte 13"),
        ("{\"anInt32\":1} x", "expected the end, found `x` at byte 14"),
        ("{\"aString\":\"x", "aString: the string at byte 11 does not end"),
        ("{\"aString\":\"x\\", "aString: the string at byte 11 does not end"),
        (
            "{\"aString\":\"\n\"}",
            "aString: the string at byte 11 has the control character 0x0a, which must be escaped",
        ),
        ("{\"aString\":\"\\x\"}", "aString: a string has the escape \\x, which JSON does not know"),
        ("{\"aString\":\"\\u12g4\"}", "aString: a string has \\u without four hexadecimal digits"),
        ("{\"aString\":\"\\ud800x\"}", "aString: a string has half of a surrogate pair, \\ud800"),
        ("{\"aString\":\"\\ud800\\u0041\"}", "aString: a string has half of a surrogate pair, \\ud800"),
        ("{\"aString\":\"\\udc00\"}", "aString: a string has half of a surrogate pair, \\udc00"),
        ("{\"what\":01}", "expected a value, found `01` at byte 8"),
        ("{\"what\":tru}", "expected a value, found `tru` at byte 8"),
        ("{\"what\":[1,]}", "expected a value, found `]` at byte 11"),
        ("{\"what\":{\"a\":1,}}", "expected a member's name in quotes, found `}` at byte 15"),
        ("{\"what\":[1}", "expected `,` or `]`, found `}` at byte 10"),
        ("{\"aBool\":true,'a':1}", "expected a member's name in quotes, found `'` at byte 14"),
    ] {
        refused("Scalars", json, wanted);
    }
    let mut out = Vec::new();
    let error = SCHEMA.read(id("Scalars"), b"{\"aString\":\"\xff\"}", &mut out).unwrap_err();
    assert_eq!(error.to_string(), "the JSON is not valid UTF-8 at byte 12");
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let wanted = "anInt32: expected a whole number from -2147483648 to 2147483647, found ";
    for (json, found) in [
        ("2147483648", "`2147483648`"),
        ("-2147483649", "`-2147483649`"),
        ("1.5", "`1.5`"),
        ("1e10", "`1e10`"),
        ("1e99999999999999999999", "`1e99999999999999999999`"),
        ("1e-1", "`1e-1`"),
        ("true", "`true`"),
        ("01", "`01`"),
        ("+1", "`+1`"),
        (".5", "`.5`"),
        ("1.", "`1.`"),
        ("--1", "`--1`"),
        ("\"\"", "\"\""),
        ("\" 1\"", "\" 1\""),
        ("\"1 \"", "\"1 \""),
        ("\"x\"", "\"x\""),
        ("{}", "an object"),
    ] {
        refused("Scalars", &format!("{{\"anInt32\":{json}}}"), &format!("{wanted}{found} at byte 11"));
    }
    for (field, json) in [
        ("aUint32", "-1"),
        ("aUint64", "18446744073709551616"),
        ("anInt64", "9223372036854775808"),
        ("anInt64", "\"-9223372036854775809\""),
        ("aUint64", "1e20"),
        ("aFloat", "1e39"),
        ("aDouble", "1e309"),
        ("aDouble", "\"inf\""),
        ("aDouble", "NaN"),
        ("aFloat", "\"\""),
        ("colour", "2147483648"),
        ("aBool", "1"),
        ("aBool", "\"true\""),
        ("aString", "1"),
        ("someBytes", "\"A\""),
        ("someBytes", "\"A-/A\""),
        ("someBytes", "\"A=A=\""),
    ] {
        assert!(read("Scalars", &format!("{{\"{field}\":{json}}}")).is_err(), "{field}: {json}");
    }
}

#[test]
fn the_path_leads_to_the_fault() {
    refused(
        "Shelf",
        r#"{"next":{"books":[{},{"priceCents":true}]}}"#,
        "next.books[1].priceCents: expected a whole number of 64 bits, as a string or a number, found `true` at byte 35",
    );
    refused(
        "Shelf",
        r#"{"by_name":{"a b":{"stock":"no"}}}"#,
        "byName[\"a b\"].stock: expected a whole number from 0 to 4294967295, found \"no\" at byte 27",
    );
    refused("Lists", r#"{"bools":[true,null]}"#, "bools[1]: expected true or false, found `null` at byte 15");
    refused("Lists", r#"{"scalars":[null]}"#, "scalars[0]: expected an object, found `null` at byte 12");
    refused("Lists", r#"{"bools":{}}"#, "bools: expected an array, found an object at byte 9");
    refused("Maps", r#"{"bools":[]}"#, "bools: expected an object, found an array at byte 9");
    refused("Maps", r#"{"strings":{"x":null}}"#, "strings[\"x\"]: expected a string, found `null` at byte 16");
    refused("Maps", r#"{"bools":{"1":true}}"#, "bools: a key must be true or false, in quotes; found \"1\"");
    refused(
        "Maps",
        r#"{"int32s":{"x":1}}"#,
        "int32s: a key must be a whole number from -2147483648 to 2147483647, in quotes; found \"x\"",
    );
}

#[test]
fn what_comes_twice_is_refused() {
    refused("Scalars", r#"{"anInt32":1,"an_int32":2}"#, "anInt32: the JSON has this member twice");
    refused("Scalars", r#"{"anInt32":null,"anInt32":2}"#, "anInt32: the JSON has this member twice");
    refused("Maps", r#"{"int32s":{"1":1,"2":2,"1.0":1}}"#, "int32s: the JSON has a key of this map twice");
    refused("Maps", r#"{"strings":{"":"a","b":"c","":"d"}}"#, "strings: the JSON has a key of this map twice");
    refused("Known", r#"{"object":{"a":1,"\u0061":1}}"#, "object: the JSON has a key of this map twice");
    refused("Choice", r#"{"number":1,"text":"x"}"#, "text: the JSON has another member of the oneof `choice` as well");
    refused(
        "Choice",
        r#"{"nothing":null,"text":""}"#,
        "text: the JSON has another member of the oneof `choice` as well",
    );
}

#[test]
fn well_known_types_say_what_they_need() {
    for time in [
        "",
        "2001-02-03",
        "2001-02-03T04:05:06",
        "2001-02-30T00:00:00Z",
        "2001-02-03t04:05:06z",
        "10000-01-01T00:00:00Z",
    ]
    .into_iter()
    .chain(["0000-12-31T23:59:59Z", "2001-02-03T24:00:00Z", "2001-02-03T04:05:06.Z", "2001-02-03T04:05:06.0000000001Z"])
    .chain([
        "2001-02-03T04:05:60Z",
        "2001-02-03T04:05:06+1:00",
        "0001-01-01T00:00:00+00:01",
        "2001-02-03T04:05:06ZZ",
    ]) {
        let wanted = "time: expected a time such as \"2001-02-03T04:05:06.789Z\", from year 1 to 9999, found ";
        refused("Known", &format!(r#"{{"time":"{time}"}}"#), &format!("{wanted}\"{time}\" at byte 8"));
    }
    for duration in
        ["", "s", "1", "1 s", "1.s", ".5s", "+1s", "315576000001s", "1.0000000001s", "1e3s", "99999999999999999999s"]
    {
        let wanted = "duration: expected a duration such as \"1.5s\", of 315576000000 s at most, found ";
        refused("Known", &format!(r#"{{"duration":"{duration}"}}"#), &format!("{wanted}\"{duration}\" at byte 12"));
    }
    refused("Known", r#"{"mask":"a_b"}"#, "mask: the path \"a_b\" must be in camel case, without `_`");
    refused("Known", r#"{"empty":null,"object":1}"#, "object: expected an object, found `1` at byte 23");
    refused("Envelope", r#"{"any":{"id":1}}"#, "any: the member `@type` is missing");
    refused("Envelope", r#"{"any":{"@type":1}}"#, "any: expected a type URL in quotes, found `1` at byte 16");
    refused(
        "Envelope",
        r#"{"any":{"@type":"/no.Such"}}"#,
        "any: no contract of this server has the type of \"/no.Such\"",
    );
    refused(
        "Envelope",
        r#"{"any":{"@type":"kinds.Book"}}"#,
        "any: no contract of this server has the type of \"kinds.Book\"",
    );
    refused("Envelope", r#"{"any":{"@type":"/google.protobuf.Duration"}}"#, "any: the member `value` is missing");
}

/// `depth` levels of `open` and `close` around `inner`.
fn nested(depth: usize, open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn nesting_ends_where_decoders_of_messages_end() {
    let message = |depth| nested(depth, r#"{"inner":"#, "{}", "}");
    let wire = read("Scalars", &message(DEPTH_MAX)).unwrap();
    assert_eq!(write("Scalars", &wire).unwrap(), message(DEPTH_MAX));
    let error = read("Scalars", &message(DEPTH_MAX + 1)).unwrap_err().to_string();
    assert!(error.ends_with(": messages are nested too deep: at most 100 levels are allowed"), "{error}");
    let mut deeper = vec![0x8a, 1];
    deeper.extend_from_slice(&[u8::try_from(wire.len() - 256).unwrap() | 0x80, 2]);
    deeper.extend_from_slice(&wire);
    let error = write("Scalars", &deeper).unwrap_err().to_string();
    assert!(error.ends_with(": messages are nested too deep: at most 100 levels are allowed"), "{error}");
}

#[test]
fn no_json_can_drive_recursion_or_work_far() {
    for (name, open, close) in [
        ("Scalars", r#"{"inner":"#, "}"),
        ("Scalars", r#"{"what":"#, "}"),
        ("Scalars", r#"{"what":["#, "]}"),
        ("Maps", r#"{"inner":{"":"#, "}}"),
        ("Known", r#"{"list":["#, "]}"),
        ("Envelope", r#"{"any":{"@type":"/kinds.Envelope","any":"#, "}}"),
        ("Envelope", r#"{"any":{"@type":"/google.protobuf.Any","value":"#, "}}"),
        ("Envelope", r#"{"any":{"value":"#, r#","@type":"/google.protobuf.Any"}}"#),
    ] {
        assert!(read(name, &nested(100_000, open, "", close)).is_err(), "{open}");
    }
    let brackets = "[".repeat(1_000_000);
    assert!(read("Known", &format!(r#"{{"list":{brackets}"#)).is_err());
    assert!(read("Known", &format!(r#"{{"value":{brackets}"#)).is_err());
    let number = "9".repeat(1_000_000);
    assert!(read("Scalars", &format!(r#"{{"anInt64":{number}}}"#)).is_err());
    assert!(read("Scalars", &format!(r#"{{"aDouble":{number}}}"#)).is_err());
    assert!(read("Scalars", &format!(r#"{{"anInt64":0.{number}e-1000000}}"#)).is_err());
    assert!(read("Scalars", &format!(r#"{{"aDouble":0.{number}}}"#)).is_ok());
}

#[test]
fn members_before_the_type_are_gone_over_a_few_times_only() {
    let late = |depth| {
        let open = r#"{"value":"#.repeat(depth);
        let close = r#","@type":"/google.protobuf.Any"}"#.repeat(depth);
        format!(r#"{{"any":{open}{{"x":"{}"}}{close}}}"#, "y".repeat(1000))
    };
    let error = read("Envelope", &late(20)).unwrap_err().to_string();
    assert!(error.ends_with("too many nested members come before `@type`: put `@type` first"), "{error}");
}

#[test]
fn a_damaged_message_is_refused() {
    for (wire, wanted) in [
        (&[0x18][..], "the message is malformed: it ends inside a field"),
        (&[0x72, 5, b'x'], "the message is malformed: it ends inside a field"),
        (&[0x72, 1, 0xff], "aString: a string is not valid UTF-8"),
        (&[0x8a, 1, 2, 0x72, 9], "inner: the message is malformed: it ends inside a field"),
        (
            &[0x1a, 0],
            "anInt32: the message has another wire type here than a whole number from -2147483648 to 2147483647 needs",
        ),
        (&[0x88, 1, 0], "inner: the message has another wire type here than an object needs"),
        (&[0], "the message is malformed: a field has the number 0"),
    ] {
        assert_eq!(write("Scalars", wire).unwrap_err().to_string(), wanted, "{wire:?}");
    }
    let error = |name, wire: &[u8]| write(name, wire).unwrap_err().to_string();
    assert_eq!(error("Lists", &[0x0a, 3, 0, 0, 0]), "doubles[0]: the message is malformed: it ends inside a field");
    assert_eq!(
        error("Maps", &[0x8a, 1, 9, 0x0a, 1, b'k', 0x12, 4, 0x72, 2, b'x', 0xff]),
        "scalars[\"k\"].aString: a string is not valid UTF-8"
    );
    assert_eq!(
        error("Known", &[0x0a, 12, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x10, 0]),
        "time: the timestamp of 9223372036854775807 seconds and 0 nanoseconds is out of range"
    );
    assert_eq!(error("Known", &[0x12, 2, 0x10, 0x80]), "duration: the message is malformed: it ends inside a field");
    assert_eq!(
        error("Maps", &[0x1a, 5, 0x0d, 1, 0, 0, 0]),
        "int32s: the message has another wire type here than a whole number from -2147483648 to 2147483647 needs"
    );
    let nan = [&[0x2a, 9, 0x11][..], &f64::NAN.to_le_bytes()].concat();
    assert_eq!(error("Known", &nan), "value: a google.protobuf.Value has a number that is not finite");
    assert_eq!(error("Known", &[0x2a, 0]), "value: a google.protobuf.Value has no value");
    assert_eq!(error("Known", &[0x1a, 3, 0x0a, 1, b'A']), "mask: the path \"A\" has no form in camel case");
    assert_eq!(
        error("Envelope", &[0x0a, 4, 0x0a, 2, b'/', b'x']),
        "any: no contract of this server has the type of \"/x\""
    );
}

#[test]
fn descriptors_that_are_none_or_lack_imports_are_refused() {
    assert!(
        Schema::new([&[1, 2, 3][..]]).unwrap_err().to_string().starts_with("a file descriptor set cannot be read: ")
    );
    let mut set = prost_types::FileDescriptorSet::decode(&super::tests::DESCRIPTORS[..]).unwrap();
    set.file.retain(|file| !file.name().ends_with("any.proto"));
    let error = Schema::new([&set.encode_to_vec()[..]]).unwrap_err().to_string();
    assert_eq!(error, "kinds.Envelope.any: no descriptor defines the type google.protobuf.Any");
}
