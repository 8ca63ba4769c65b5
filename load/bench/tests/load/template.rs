//! Templates: values of each placeholder, repetition by a seed, and errors.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use bench::template::Turn;
use bench::template::{HEX_BYTES_MAX, ROWS_BYTES_MAX, Rows, Sources, Template};
use bytes::BytesMut;
use proptest::prelude::*;

fn turn(number: u64) -> Turn {
    Turn { number, client: 7, worker: 3 }
}

fn sources(csv: &str) -> Sources {
    Sources { seed: 1, rows: Some(Arc::new(rows(csv).expect("rows"))) }
}

fn rows(csv: &str) -> anyhow::Result<Rows> {
    Rows::from_csv(csv.as_bytes())
}

fn rendered(text: &str, number: u64) -> String {
    rendered_from(text, number, &Sources { seed: 1, rows: None })
}

fn rendered_from(text: &str, number: u64, sources: &Sources) -> String {
    let mut out = String::new();
    Template::parse(text, sources).expect("a template").render(turn(number), &mut out);
    out
}

fn refused(text: &str, sources: &Sources) -> String {
    Template::parse(text, sources).expect_err("no template").to_string()
}

#[test]
fn counters_and_numbers_are_filled_in() {
    assert_eq!(rendered("n={{number}} from={{number 1000}} c={{client}} w={{ worker }}", 42), "n=42 from=1042 c=7 w=3");
    assert_eq!(rendered("{{number}}", u64::MAX), u64::MAX.to_string());
}

#[test]
fn json_keeps_its_own_braces() {
    assert_eq!(rendered(r#"{"a":{"b":{{number}}}}"#, 5), r#"{"a":{"b":5}}"#);
    assert_eq!(rendered("{{{{number}} }}", 5), "{{number}} }}");
}

#[test]
fn what_never_changes_is_constant() {
    let parse = |text| Template::parse(text, &Sources::default()).expect("a template");
    assert_eq!(parse("").constant(), Some(""));
    assert_eq!(parse("a {{{{ b").constant(), Some("a {{ b"));
    assert_eq!(parse("{{client}}").constant(), None);
}

#[test]
fn random_values_stay_in_their_range_and_reach_its_ends() {
    let seen: HashSet<i64> = (0..2_000).map(|number| rendered("{{random -3 3}}", number).parse().unwrap()).collect();
    assert_eq!(seen, (-3..=3).collect());
    let whole = format!("{{{{random {} {}}}}}", i64::MIN, i64::MAX);
    assert_ne!(rendered(&whole, 1), rendered(&whole, 2));
}

#[test]
fn random_values_are_spread_evenly() {
    let template = Template::parse("{{random 0 99}}", &Sources::default()).unwrap();
    let mut counts = [0_u32; 100];
    let mut out = String::new();
    for number in 0..100_000 {
        out.clear();
        template.render(turn(number), &mut out);
        counts[out.parse::<usize>().unwrap()] += 1;
    }
    // Chi-squared with 99 degrees of freedom: mean 99, standard deviation 14; the seed is fixed, so is the sum.
    let chi_squared: f64 = counts.iter().map(|&count| (f64::from(count) - 1_000.0).powi(2) / 1_000.0).sum();
    assert!((50.0..160.0).contains(&chi_squared), "{chi_squared}");
}

#[test]
fn a_template_draws_a_new_value_for_each_placeholder_and_each_text() {
    let one = rendered("{{hex 8}} {{hex 8}}", 1);
    let (first, second) = one.split_once(' ').unwrap();
    assert_ne!(first, second);
    assert!(!rendered("{{hex 8}}", 1).contains(first));
}

#[test]
fn hex_has_two_digits_a_byte() {
    for count in [1, 7, 8, 9, 16, 1000] {
        let text = rendered(&format!("{{{{hex {count}}}}}"), 3);
        assert_eq!(text.len(), count * 2);
        assert!(text.bytes().all(|digit| digit.is_ascii_hexdigit()), "{text}");
    }
}

#[test]
fn rows_go_round_by_the_number_of_the_request() {
    let sources = sources("isbn,title\n1,\"Emma, a novel\"\n2,\n3,Ulysses\n");
    let text = "{{row.isbn}}:{{row.title}}";
    let all: Vec<String> = (0..4).map(|number| rendered_from(text, number, &sources)).collect();
    assert_eq!(all, ["1:Emma, a novel", "2:", "3:Ulysses", "1:Emma, a novel"]);
}

#[test]
fn a_column_may_have_spaces_in_its_name() {
    assert_eq!(rendered_from("{{row.book title}}", 0, &sources("book title\nEmma\n")), "Emma");
}

#[test]
fn a_wrong_placeholder_is_named_with_its_place_and_what_would_be_right() {
    let none = Sources::default();
    let cases = [
        ("é{{nubmer}}", "{{nubmer}} at character 2 of the template: no such placeholder; allowed are {{number}}"),
        ("ab{{number", "{{ at character 3 of the template: no }} follows"),
        ("{{number x}}", "`x` is not a number to count from"),
        ("{{random 1}}", "write two integers"),
        ("{{random a b}}", "write two integers"),
        ("{{random 9 1}}", "9 is above 1"),
        ("{{hex 0}}", "write a number of bytes from 1 to"),
        ("{{row.isbn}}", "--rows FILE"),
        ("{{}}", "no such placeholder"),
    ];
    for (text, wanted) in cases {
        let message = refused(text, &none);
        assert!(message.contains(wanted), "{text}: {message}");
    }
    assert!(refused(&format!("{{{{hex {}}}}}", HEX_BYTES_MAX + 1), &none).contains("from 1 to"));
    let message = refused("{{row.titel}}", &sources("isbn,title\n1,2\n"));
    assert!(message.ends_with("no such column; the columns are isbn, title"), "{message}");
}

#[test]
fn a_file_that_holds_no_rows_is_refused_with_the_reason() {
    let cases = [
        ("", "a header row with the names of the columns comes first"),
        ("isbn,title\n", "no rows follow the header row"),
        ("isbn,isbn\n1,2\n", "names column `isbn` twice"),
        ("isbn,\n1,2\n", "column 2 has no name"),
        ("isbn,title\n1\n", "found record with 1 fields"),
    ];
    for (csv, wanted) in cases {
        let message = rows(csv).expect_err(csv).to_string();
        assert!(message.contains(wanted), "{csv:?}: {message}");
    }
    let message = format!("{:#}", Rows::read(Path::new("/no/such.csv")).expect_err("no file"));
    assert!(message.starts_with("rows of /no/such.csv: No such file"), "{message}");
}

#[test]
fn a_file_of_rows_beyond_the_limit_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    // Sparse: nothing is written to the disk.
    file.as_file().set_len(ROWS_BYTES_MAX + 1).unwrap();
    let message = format!("{:#}", Rows::read(file.path()).expect_err("too large"));
    assert!(message.ends_with("more than 268435456 bytes"), "{message}");
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused_and_renders_the_same_to_every_sink(text in r"[a{} }number.row\PC0-9]{0,60}", number: u64) {
        if let Ok(template) = Template::parse(&text, &Sources::default()) {
            let (mut string, mut bytes) = (String::new(), BytesMut::new());
            template.render(turn(number), &mut string);
            template.render(turn(number), &mut bytes);
            prop_assert_eq!(string.as_bytes(), &bytes[..]);
        }
    }

    #[test]
    fn a_seed_makes_the_same_request_for_every_client_and_worker(seed: u64, number: u64, client: u32, worker: u32) {
        let template = Template::parse("{{random 1 1000000}} {{hex 9}}", &Sources { seed, rows: None }).unwrap();
        let (mut one, mut other) = (String::new(), String::new());
        template.render(turn(number), &mut one);
        template.render(Turn { number, client, worker }, &mut other);
        prop_assert_eq!(one, other);
    }
}
