use clap::Parser;

use super::*;
use crate::cli::child::stub::Stub;
use crate::stats::curve::Refusal;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: SweepArgs,
}

fn args(words: &[&str]) -> SweepArgs {
    Line::try_parse_from([&["sweep"], words].concat()).expect("arguments").args
}

fn run(stub: &Stub, words: &[&str]) -> anyhow::Result<Sweep> {
    Plan::new(&args(words))?.run(&stub.children, &Interrupt::default(), &mut |_| {})
}

/// Throughput by the law with λ 1,000, σ 0.05, κ 0.002, and up to 1% of noise that varies by call.
const LAW: &str = r#"rate=$(awk -v n="$clients" -v t="$turn" 'BEGIN {
    noise = 1 + 0.01 * ((t * 7919 % 201) - 100) / 100
    printf "%.6f", noise * 1000 * n / (1 + 0.05 * (n - 1) + 0.002 * n * (n - 1)) }')"#;

#[test]
fn a_sweep_over_clients_finds_the_knee_and_the_laws_parameters() {
    let stub = Stub::new(LAW);
    let sweep = run(&stub, &["--clients", "1..40", "--step", "3", "--", "grpc", "x", "a.B/C"]).expect("measured");
    let usl = sweep.usl().expect("of clients").expect("the law fits");
    assert!(usl.sigma.contains(0.05) && usl.kappa.contains(0.002) && usl.lambda.contains(1_000.0), "{usl:?}");
    let peak = usl.peak.expect("throughput falls");
    assert!((peak.clients - 21.8).abs() < 1.0 && peak.low.is_some() && peak.high.is_some(), "{usl:?}");
    assert!(sweep.knee().is_some_and(|knee| (7.0..=16.0).contains(&knee)), "{:?}", sweep.knee());
    assert!(sweep.points.iter().all(|point| point.runs.len() == 3) && sweep.served().is_none());
    let text = show::text(&sweep);
    for part in ["clients", "knee (Kneedle): ", "σ, contention: 0.0", " /s at 2", "R² 0.99"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn every_pass_has_every_point_once_in_an_order_that_the_seed_repeats() {
    let calls = |seed| {
        let stub = Stub::new("");
        run(&stub, &["--clients", "1..6", "--seed", seed, "--", "tcp", "x"]).expect("measured");
        stub.calls()
    };
    let first = calls("1");
    assert_eq!(first.len(), 18);
    for pass in first.chunks(6) {
        let mut pass: Vec<_> = pass.iter().map(|call| call.split(" --seed").next()).map(Option::unwrap).collect();
        pass.sort_unstable();
        let expected: Vec<_> = (1..=6).map(|clients| format!("tcp x --clients {clients}")).collect();
        assert_eq!(pass, expected);
    }
    let seeds: std::collections::HashSet<_> = first.iter().map(|call| call.split("--seed ").nth(1)).collect();
    assert_eq!(seeds.len(), 18, "each run has arrivals of its own: {first:?}");
    assert_eq!(first, calls("1"));
    assert_ne!(first, calls("2"));
}

#[test]
fn a_sweep_over_rates_finds_the_last_that_was_served() {
    let stub = Stub::new(
        r#"rate=$asked; if [ "$asked" -gt 3000 ]; then rate=3100 time=10000 reason="the rate was not reached"; fi"#,
    );
    let sweep = run(&stub, &["--rate", "1000..5000", "--step", "1000", "--", "http", "x"]).expect("measured");
    let served = sweep.served().expect("of rates");
    assert_eq!((served.last, served.first_refused), (Some(3000.0), Some((4000.0, Refusal::NotReached))));
    let text = show::text(&sweep);
    assert!(text.contains("served up to 3,000 /s; at 4,000 /s less than 99% of it was reached"), "{text}");
    assert!(text.contains("INVALID: the rate was not reached") && text.contains("2 of 5 points are INVALID"), "{text}");
    // The answer rests on the served rates, which are valid.
    assert!(!sweep.is_invalid() && sweep.usl().is_none() && sweep.knee().is_none());
}

#[test]
fn points_that_cannot_be_believed_are_left_out_of_the_law_and_decide_the_exit() {
    let stub = Stub::new(&format!(
        r#"{LAW}
        if [ "$clients" -gt 12 ]; then rate=9999 reason="the client was busy"; fi"#
    ));
    let sweep = run(&stub, &["--clients", "1..14", "--", "grpc", "x"]).expect("measured");
    let usl = sweep.usl().expect("of clients").expect("the law fits without them");
    assert!(usl.sigma.contains(0.05), "{usl:?}");
    assert!(sweep.is_invalid() && show::text(&sweep).contains("the knee and the law leave them out"));
}

#[test]
fn too_few_points_are_said_to_be_so() {
    let sweep = run(&Stub::new(""), &["--clients", "1,2,4", "--runs", "1", "--", "grpc", "x"]).expect("measured");
    let text = show::text(&sweep);
    assert!(text.contains("there are too few points: 3 different numbers of clients, and at least 4"), "{text}");
    assert!(sweep.points[0].interval(Metric::Rate).is_none());
}

#[test]
fn json_and_csv_hold_every_point() {
    let sweep = run(&Stub::new(LAW), &["--clients", "1..8", "--runs", "2", "--", "grpc", "x"]).expect("measured");
    let json: serde_json::Value = serde_json::from_str(&show::json(&sweep).expect("JSON")).expect("JSON");
    assert_eq!((&json["format"], &json["axis"]), (&model::FORMAT.into(), &"clients".into()));
    assert_eq!(json["points"][7]["runs"].as_array().map(Vec::len), Some(2));
    assert!(json["points"][0]["runs"][0]["figures"]["p99.9"].is_number(), "{json}");
    assert!(json["usl"]["sigma"]["low"].is_number() && json["served"].is_null(), "{json}");
    let csv = show::csv(&sweep).expect("CSV");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    assert_eq!(
        reader.headers().expect("a head").iter().take(5).collect::<Vec<_>>(),
        ["clients", "runs", "rate", "rate_low", "rate_high"]
    );
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("rows");
    assert_eq!(rows.len(), 8);
    let number = |at: usize| rows[3][at].parse::<f64>().expect("a number");
    assert!(number(3) <= number(2) && number(2) <= number(4), "{csv}");
}

#[test]
fn an_interrupted_sweep_tells_what_was_measured_and_says_so() {
    let stub = Stub::new("");
    let plan = Plan::new(&args(&["--clients", "1..5", "--", "grpc", "x"])).expect("a plan");
    let interrupt = Interrupt::default();
    let mut runs = 0;
    let sweep = plan
        .run(&stub.children, &interrupt, &mut |_| {
            runs += 1;
            if runs == 7 {
                interrupt.press();
            }
        })
        .expect("seven runs");
    assert!(sweep.interrupted && sweep.points.iter().map(|point| point.runs.len()).sum::<usize>() == 7);
    assert!(show::text(&sweep).contains("interrupted: points have fewer runs"), "{}", show::text(&sweep));
}

#[test]
fn what_cannot_be_swept_is_refused_before_anything_runs() {
    for (words, expected) in [
        (vec!["--clients", "1..5", "--", "true"], "is not a load: begin it with one of grpc, http, tcp"),
        (vec!["--clients", "1..5", "--", "grpc", "x", "-c5"], "leave --clients out of the load"),
        (vec!["--clients", "1..5", "--", "grpc", "x", "-r", "5"], "clients are swept in a closed loop"),
        (vec!["--rate", "1..5", "--", "grpc", "x", "--rate=5"], "leave --rate out of the load"),
        (vec!["--rate", "1..5", "--", "grpc", "x", "--json", "f"], "leave --json out"),
        (vec!["--rate", "1..5", "--", "grpc", "x", "--slo", "p99<5ms"], "leave --slo out of the load"),
        (vec!["--clients", "0..5", "--", "grpc", "x"], "must be a number above 0"),
        (vec!["--clients", "1..5", "--runs", "0", "--", "grpc", "x"], "--runs 0: it must be between 1 and 1000"),
    ] {
        let error = format!("{:#}", Plan::new(&args(&words)).expect_err(expected));
        assert!(error.contains(expected), "{words:?}: {error}");
    }
    assert!(Line::try_parse_from(["sweep", "--", "grpc", "x"]).is_err());
    assert!(Line::try_parse_from(["sweep", "--clients", "1..2", "--rate", "1..2", "--", "grpc", "x"]).is_err());
}

#[test]
fn a_point_that_fails_ends_the_sweep_with_its_command_and_last_word() {
    let stub = Stub::new(r#"if [ "$clients" = 3 ]; then echo "no server there" >&2; exit 2; fi"#);
    let error = format!("{:#}", run(&stub, &["--clients", "1..5", "--", "grpc", "x"]).expect_err("failed"));
    assert!(error.ends_with(" failed (exit status: 2): no server there"), "{error}");
}

#[test]
fn the_page_has_every_point_the_findings_and_both_charts() {
    let sweep = run(&Stub::new(LAW), &["--clients", "1..8", "--runs", "2", "--", "grpc", "<x>"]).expect("measured");
    let page = show::page(&sweep);
    for part in ["data-figure=\"rate@8\"", "data-figure=\"p999_us@1\"", "universal scalability law", "grpc &#60;x&#62;"]
    {
        assert!(page.contains(part), "{part}");
    }
    // Both charts are drawn for wide and for narrow screens.
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(!page.contains("NaN"));
}
