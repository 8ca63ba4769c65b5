use proptest::prelude::{prop_assert, proptest};

use super::*;

fn times(profile: &str, arrivals: Arrivals, workers: usize) -> Vec<f64> {
    let profile: Profile = profile.parse().expect("a profile");
    let mut all: Vec<f64> =
        (0..workers).flat_map(|worker| DueTimes::new(profile.clone(), arrivals, worker, workers, 7)).collect();
    all.sort_by(f64::total_cmp);
    all
}

#[test]
fn constant_arrivals_are_equally_spaced_whatever_the_number_of_workers() {
    for workers in [1, 2, 3] {
        let times = times("100x1s", Arrivals::Constant, workers);
        assert_eq!(times.len(), 100);
        for (index, at) in times.iter().enumerate() {
            assert!((at - f64::from(u32::try_from(index).unwrap()) / 100.0).abs() < 1e-9, "{index} at {at}");
        }
    }
}

#[test]
fn a_ramp_is_due_as_its_integral_says() {
    let times = times("0..100x10s", Arrivals::Constant, 1);
    assert_eq!(times.len(), 500);
    // Half of the time, a quarter of the requests.
    assert_eq!(times.iter().filter(|at| **at < 5.0).count(), 125);
}

#[test]
fn steps_follow_each_other() {
    let times = times("10x1s,100x1s,10x1s", Arrivals::Constant, 2);
    let within = |begin: f64, end: f64| times.iter().filter(|at| (begin..end).contains(*at)).count();
    assert_eq!([within(0.0, 1.0), within(1.0, 2.0), within(2.0, 3.0)], [10, 100, 10]);
}

#[test]
fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
    let times = times("10000x10s", Arrivals::Poisson, 2);
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let count = f64::from(u32::try_from(gaps.len()).unwrap());
    let mean = gaps.iter().sum::<f64>() / count;
    let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count).sqrt();
    assert!((mean * 10_000.0 - 1.0).abs() < 0.02, "mean {mean}");
    assert!((deviation / mean - 1.0).abs() < 0.02, "deviation {deviation}");
}

#[test]
fn a_seed_makes_the_same_arrivals() {
    assert_eq!(times("100x1s", Arrivals::Poisson, 2), times("100x1s", Arrivals::Poisson, 2));
}

#[test]
fn a_rate_that_is_none_says_why() {
    for (text, why) in [
        ("0", "no request would be due"),
        ("-5", "it is below 0 or above a billion"),
        ("fast", "it is not a number"),
        ("1000x", "the time after x cannot be read"),
        ("1000x0s", "a step or a ramp must last longer than 0s"),
        ("1..1000", "a step or a ramp needs a time, as in 1000x10s"),
        ("1000,2000x1s", "a step or a ramp needs a time, as in 1000x10s"),
        ("inf", "it is below 0 or above a billion"),
        ("", "it is not a number"),
    ] {
        let error = text.parse::<Profile>().expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn due_times_never_go_back_and_agree_with_the_integral(from in 0.0..5e3_f64, to in 1.0..5e3_f64, seconds in 0.1..3.0_f64) {
        let profile = Profile { phases: vec![Phase { from, to, seconds }, Phase { from: to, to, seconds }] };
        let mut last = 0.0;
        for (index, at) in DueTimes::new(profile.clone(), Arrivals::Constant, 0, 1, 0).enumerate() {
            prop_assert!(at >= last);
            last = at;
            let due = profile.due_between(0.0, at);
            prop_assert!((due - f64::from(u32::try_from(index).unwrap())).abs() < 1e-3, "{index} due {due}");
        }
    }
}
