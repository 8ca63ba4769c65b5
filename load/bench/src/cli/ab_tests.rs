use clap::Parser;

use super::*;
use crate::cli::stub::Stub;
use crate::stats::compare::Verdict;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: AbArgs,
}

fn args(words: &[&str]) -> AbArgs {
    Line::try_parse_from([&["ab"], words].concat()).expect("arguments").args
}

fn run(stub: &Stub, words: &[&str]) -> anyhow::Result<Comparison> {
    Plan::new(&args(words))?.run(&stub.children, &Interrupt::default(), &mut |_| {})
}

fn page(effects: &Comparison) -> String {
    let mut page = Vec::new();
    effects.write(false, &mut page).expect("written");
    String::from_utf8(page).expect("text")
}

#[test]
fn loads_are_compared_round_by_round() {
    // Each call is a little slower than the last; tcp is also twice as fast.
    let stub = Stub::new(r#"rate=$((10000 - turn * 100)); case "$1" in tcp) rate=$((rate * 2)) time=200;; esac"#);
    let effects = run(&stub, &["grpc x a.B/C", "quire-bench tcp y", "--rounds", "8"]).expect("compared");
    let seen: Vec<_> = effects.effects.iter().map(|effect| (effect.metric, effect.verdict)).collect();
    let different = Verdict::Different;
    assert_eq!(seen, [(Metric::Rate, different), (Metric::P50, different), (Metric::P99, different)]);
    let rate = &effects.effects[0];
    assert!(rate.low.is_some_and(|low| low > 1.9) && rate.high.is_some_and(|high| high < 2.1), "{rate:?}");
    assert!(page(&effects).contains("8 rounds, paired by round"), "{}", page(&effects));
    assert_eq!(stub.calls().len(), 16);
}

#[test]
fn the_order_within_rounds_is_random_and_the_seed_repeats_it() {
    let order = |seed| {
        let stub = Stub::new("");
        run(&stub, &["grpc x", "tcp y", "--rounds", "12", "--seed", seed]).expect("compared");
        let calls = stub.calls();
        for round in calls.chunks(2) {
            let mut sides: Vec<_> = round.iter().map(|call| call.split(' ').next()).collect();
            sides.sort_unstable();
            assert_eq!(sides, [Some("grpc"), Some("tcp")], "{round:?}");
        }
        calls
    };
    let first = order("1");
    assert_eq!(first, order("1"));
    assert_ne!(first, order("2"));
    let begun_by_a = first.chunks(2).filter(|round| round[0].starts_with("grpc")).count();
    assert!((1..12).contains(&begun_by_a), "{first:?}");
}

#[test]
fn the_same_load_twice_is_not_seen_to_differ() {
    let stub = Stub::new("rate=$((100000 + turn * 7919 % 1000))");
    let effects = run(&stub, &["grpc x", "grpc x", "--rounds", "6"]).expect("compared");
    assert!(effects.effects.iter().all(|effect| effect.verdict == Verdict::NoDifferenceSeen), "{}", page(&effects));
}

#[test]
fn other_commands_are_measured_as_a_whole() {
    let busy = "sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done'";
    let effects = run(&Stub::new(""), &["true", busy, "--rounds", "5"]).expect("compared");
    let metrics: Vec<_> = effects.effects.iter().map(|effect| effect.metric).collect();
    assert_eq!(metrics, [Metric::Wall, Metric::Cpu]);
    assert!(effects.effects.iter().all(|effect| effect.runs_a == 5 && effect.runs_b == 5));
}

#[test]
fn one_round_is_said_to_be_too_few() {
    let effects = run(&Stub::new(""), &["grpc x", "tcp y", "--rounds", "1"]).expect("compared");
    assert!(page(&effects).contains("too few runs to tell"), "{}", page(&effects));
}

#[test]
fn runs_that_cannot_be_believed_are_counted_and_decide_the_exit() {
    let stub = Stub::new(r#"case "$1" in tcp) reason="the client was busy";; esac"#);
    let effects = run(&stub, &["grpc x", "tcp y", "--rounds", "3"]).expect("compared");
    let expected = "warning: 3 of 3 rounds of B are INVALID, the first since: the client was busy";
    assert!(page(&effects).contains(expected), "{}", page(&effects));
    assert_eq!(effects.exit(), Exit::Invalid);
}

#[test]
fn a_command_before_each_side_is_run_before_each_side() {
    let stub = Stub::new("");
    let marks = stub.path("marks");
    let before = format!("sh -c 'echo mark >> {}'", marks.display());
    run(&stub, &["grpc x", "tcp y", "--rounds", "3", "--before", &before]).expect("compared");
    assert_eq!(std::fs::read_to_string(marks).expect("marks").lines().count(), 6);
    let error = format!("{:#}", run(&stub, &["grpc x", "tcp y", "--before", "false"]).expect_err("failed"));
    assert!(error.starts_with("--before: \"false\" failed"), "{error}");
}

#[test]
fn an_interrupted_comparison_tells_of_complete_rounds_and_says_so() {
    let stub = Stub::new("");
    let plan = Plan::new(&args(&["grpc x", "tcp y", "--rounds", "9"])).expect("a plan");
    let interrupt = Interrupt::default();
    let mut rounds = 0;
    let effects = plan
        .run(&stub.children, &interrupt, &mut |_| {
            rounds += 1;
            if rounds == 2 {
                interrupt.press();
            }
        })
        .expect("two rounds");
    assert!(effects.interrupted && effects.effects[0].runs_a == 2);
    assert!(page(&effects).contains("interrupted: only 2 of 9 rounds are complete"), "{}", page(&effects));
    let at_once = plan.run(&stub.children, &interrupt, &mut |_| {}).expect_err("nothing measured").to_string();
    assert!(at_once.contains("nothing was measured"), "{at_once}");
}

#[test]
fn what_cannot_be_compared_is_refused_before_anything_runs() {
    let stub = Stub::new("");
    for (words, expected) in [
        (vec!["grpc x", "tcp y", "--rounds", "0"], "--rounds 0: it must be between 1 and 10000"),
        (vec!["grpc x", "tcp y", "--rounds", "10001"], "between 1 and 10000"),
        (vec!["grpc x", "true", "--metric", "rate"], "only loads of this program report it"),
        (vec!["grpc x", "tcp y", "--metric", "p50,p50"], "names p50 twice"),
        (vec!["", "true"], "a command is empty"),
        (vec!["true", "true", "--before", ""], "--before: a command is empty"),
    ] {
        let error = format!("{:#}", run(&stub, &words).expect_err(expected));
        assert!(error.contains(expected), "{words:?}: {error}");
    }
    assert!(stub.calls().is_empty());
    let error = format!("{:#}", run(&stub, &["grpc x", "tcp y", "--metric", "server-cpu"]).expect_err("not measured"));
    assert!(error.contains("did not measure server-cpu"), "{error}");
    assert!(Line::try_parse_from(["ab", "x", "y", "--metric", "p95"]).is_err());
}
