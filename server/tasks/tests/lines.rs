//! The line protocol without sockets.

use proptest::prelude::*;
use tasks::{
    Kind, Task,
    line::{BadLine, Form, Line, Lines, parse, write_error},
};

const CPU: Kind = Kind::Cpu;
const IO: Kind = Kind::Io;

#[test]
fn lines_are_forgiven_what_existing_clients_do() {
    let table: [(&[u8], Kind, u64); 13] = [
        (b"0:42", CPU, 42),
        (b"1:0", IO, 0),
        (b"0:18446744073709551615", CPU, u64::MAX),
        (b"  1:7\t", IO, 7),
        (b"1:7\r", IO, 7),
        (b"\r\t 0:7 \r", CPU, 7),
        (b"0:1:2", CPU, 2),
        ("0:what:ever: é :9".as_bytes(), CPU, 9),
        (b"1::5", IO, 5),
        (b"01:5", IO, 5),
        (b"1:005", IO, 5),
        (b"+1:+5", IO, 5),
        // One field is the first and the last.
        (b"1", IO, 1),
    ];
    for (line, kind, seed) in table {
        assert_eq!(parse(line), Line::Task(Task::new(kind, seed)), "{}", line.escape_ascii());
    }
    assert_eq!(parse(b" HELLO 2\r"), Line::Hello);
}

/// Every character with the property `White_Space`, by PropList.txt of Unicode 16, except the line feed, which ends a
/// line.
const WHITE_SPACE: &str = "\u{9}\u{b}\u{c}\r \u{85}\u{a0}\u{1680}\u{2000}\u{2001}\u{2002}\u{2003}\u{2004}\u{2005}\u{2006}\
                           \u{2007}\u{2008}\u{2009}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

#[test]
fn white_space_of_every_kind_around_a_line_is_forgiven() {
    for space in WHITE_SPACE.chars() {
        for line in [format!("{space}0:7"), format!("0:7{space}"), format!("{space}{space}0:7{space}{space}")] {
            assert_eq!(parse(line.as_bytes()), Line::Task(Task::new(CPU, 7)), "{line:?}");
        }
        assert_eq!(parse(format!("{space}HELLO 2{space}").as_bytes()), Line::Hello, "{space:?}");
        for line in [format!("0{space}:7"), format!("0:{space}7"), format!("0:7{space}7"), space.to_string()] {
            assert!(matches!(parse(line.as_bytes()), Line::Bad(_)), "{line:?}");
        }
    }
    // Not white space in Unicode: zero width space, word joiner, byte order mark.
    for other in ['\u{200b}', '\u{2060}', '\u{feff}'] {
        assert!(matches!(parse(format!("{other}0:7").as_bytes()), Line::Bad(_)), "{other:?}");
    }
}

#[test]
fn zeros_before_a_number_are_forgiven_up_to_the_limit_of_a_line() {
    let limit = 256;
    for zeros in [1, 20, 100, limit - "0:18446744073709551615".len()] {
        let line = format!("0:{}18446744073709551615", "0".repeat(zeros));
        assert!(line.len() <= limit);
        let found = lines_of(format!("{line}\n").as_bytes(), 7, limit);
        assert_eq!(found, [Line::Task(Task::new(CPU, u64::MAX))], "{zeros} zeros");
    }
    assert_eq!(parse(format!("{}1:7", "0".repeat(200)).as_bytes()), Line::Task(Task::new(IO, 7)));
}

#[test]
fn a_line_is_measured_in_bytes_with_its_white_space() {
    let line = format!("0:7{}", "\u{3000}".repeat(5));
    assert_eq!(lines_of(line.as_bytes(), 5, 18), [Line::Task(Task::new(CPU, 7))]);
    assert_eq!(lines_of(line.as_bytes(), 5, 17), [Line::Bad(BadLine::Long(17))]);
}

#[test]
fn lines_that_are_no_task_say_why() {
    let table: [(&[u8], &str); 19] = [
        (b"", "the type is ''"),
        (b"   ", "the type is ''"),
        (b":", "the type is ''"),
        (b":5", "the type is ''"),
        (b"2:5", "the type is '2'"),
        (b"-1:5", "the type is '-1'"),
        (b"x:5", "the type is 'x'"),
        (b"0 :5", "the type is '0 '"),
        (b"18446744073709551616:5", "the type is '18446744073709551616'"),
        (b"\xff:5", "the line '\\xff:5' is not UTF-8"),
        (b"0:what: \xff :9", "the line '0:what: \\xff :9' is not UTF-8"),
        // Half of an ideographic space, and a byte that is white space in Latin-1 only.
        (b"0:5\xe3\x80", "the line '0:5\\xe3\\x80' is not UTF-8"),
        (b"0:5\xa0", "the line '0:5\\xa0' is not UTF-8"),
        (b"HELLO 3", "the type is 'HELLO 3'"),
        (b"0:", "the seed is ''"),
        (b"0:-1", "the seed is '-1'"),
        (b"0: 1", "the seed is ' 1'"),
        (b"0:18446744073709551616", "the seed is '18446744073709551616'"),
        (b"0:1\x002", "the seed is '1\\x002'"),
    ];
    for (line, start) in table {
        let Line::Bad(bad) = parse(line) else { panic!("{} was taken", line.escape_ascii()) };
        let said = bad.to_string();
        assert!(said.starts_with(start) && said.contains("it must be"), "{}: {said}", line.escape_ascii());
    }
}

#[test]
fn what_is_quoted_back_is_short_and_one_line() {
    let Line::Bad(bad) = parse(&[b"0:", [b'\n'; 10_000].as_slice(), b"z"].concat()) else { panic!("taken") };
    let mut said = Vec::new();
    write_error(&bad, &mut said);
    assert!(said.len() < 250, "{} bytes", said.len());
    assert_eq!(said.iter().position(|byte| *byte == b'\n'), Some(said.len() - 1));
    assert!(said.starts_with(b"ERR the seed is '"));
}

#[test]
fn replies_are_a_byte_or_a_line() {
    let mut output = Vec::new();
    Form::Byte.write(10, &mut output);
    Form::Text.write(255, &mut output);
    Form::Byte.write(0, &mut output);
    assert_eq!(output, b"\nOK 255\n\0");
}

/// All lines of these bytes, fed in chunks.
fn lines_of(bytes: &[u8], chunk: usize, line_bytes_max: usize) -> Vec<Line> {
    let mut lines = Lines::new(line_bytes_max);
    let mut found = Vec::new();
    for mut input in bytes.chunks(chunk) {
        while let Some(line) = lines.next(&mut input) {
            found.push(line);
        }
        assert!(input.is_empty(), "everything is taken");
    }
    found.extend(lines.finish());
    found
}

#[test]
fn a_line_of_the_limit_is_taken_and_one_more_byte_is_not_however_it_comes() {
    let fits = b"0:000000000000042";
    let long = b"0:0000000000000042";
    for chunk in 1..40 {
        let bytes = [fits.as_slice(), b"\n", long, b"\n1:5"].concat();
        let expected =
            vec![Line::Task(Task::new(CPU, 42)), Line::Bad(BadLine::Long(fits.len())), Line::Task(Task::new(IO, 5))];
        assert_eq!(lines_of(&bytes, chunk, fits.len()), expected, "in chunks of {chunk}");
    }
}

#[test]
fn an_endless_line_is_refused_once() {
    let bytes = vec![b'0'; 1 << 20];
    for chunk in [1000, 4096, usize::MAX] {
        assert_eq!(lines_of(&bytes, chunk, 256), [Line::Bad(BadLine::Long(256))]);
    }
}

proptest! {
    #[test]
    fn every_cut_of_any_bytes_means_the_same(
        bytes in prop::collection::vec(prop::sample::select(b"01:5\n\r x".to_vec()), 0..200),
        chunk in 1_usize..20,
        line_bytes_max in 1_usize..20,
    ) {
        prop_assert_eq!(lines_of(&bytes, chunk, line_bytes_max), lines_of(&bytes, usize::MAX, line_bytes_max));
    }

    #[test]
    fn tasks_are_read_as_they_are_written(number in 0_usize..2, seed: u64) {
        let kind = Kind::from_number(number).expect("a kind");
        prop_assert_eq!(parse(format!("{number}:{seed}").as_bytes()), Line::Task(Task::new(kind, seed)));
    }
}
