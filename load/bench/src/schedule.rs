//! Due times of requests: a rate over time, and arrivals at that rate with equal or exponential gaps.
//!
//! Both kinds of arrivals use time rescaling (Brown, Barbieri, Ventura, Kass and Frank, 2002): a process of unit rate
//! is mapped to the clock by the integral of the rate, so ramps need no approximation.
//!
//! Sans-IO: times are seconds from the beginning.

use std::fmt;
use std::str::FromStr;

use anyhow::anyhow;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Gaps between due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// Equal
    Constant,
    /// Exponential: independent users
    Poisson,
}

/// The rate over time: phases one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    phases: Vec<Phase>,
}

/// A phase in which the rate changes linearly, or not at all.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Phase {
    /// Requests a second at its beginning.
    from: f64,
    /// Requests a second at its end.
    to: f64,
    /// Length in seconds; infinite only in the last.
    seconds: f64,
}

/// Highest rate: a request a nanosecond is beyond any machine.
const RATE_MAX: f64 = 1e9;

impl FromStr for Profile {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.split(',').collect();
        let is_last = |index: usize| index + 1 == parts.len();
        let phases =
            parts.iter().enumerate().map(|(index, part)| Phase::parse(part, parts.len() == 1 && is_last(index)));
        Ok(Self { phases: phases.collect::<Result<_, _>>()? })
    }
}

impl Phase {
    fn parse(part: &str, may_be_endless: bool) -> anyhow::Result<Self> {
        let part = part.trim();
        let wrong = |wrong| {
            anyhow!(
                "'{part}' is not a rate: {wrong}; write requests a second, as 1000, or steps and ramps, as \
                 1000x10s,1000..9000x30s"
            )
        };
        let (rates, time) = part.split_once('x').map_or((part, None), |(rates, time)| (rates, Some(time)));
        let rate = |text: &str| {
            let rate: f64 = text.trim().parse().map_err(|_| wrong("it is not a number"))?;
            let is_possible = rate.is_finite() && (0.0..=RATE_MAX).contains(&rate);
            if is_possible { Ok(rate) } else { Err(wrong("it is below 0 or above a billion")) }
        };
        let (from, to) = match rates.split_once("..") {
            Some((from, to)) => (rate(from)?, rate(to)?),
            None => (rate(rates)?, rate(rates)?),
        };
        if from == 0.0 && to == 0.0 {
            return Err(wrong("no request would be due"));
        }
        let seconds = match time {
            Some(time) => humantime::parse_duration(time.trim())
                .map_err(|_| wrong("the time after x cannot be read"))?
                .as_secs_f64(),
            None if may_be_endless && from.total_cmp(&to).is_eq() => f64::INFINITY,
            None => return Err(wrong("a step or a ramp needs a time, as in 1000x10s")),
        };
        if seconds > 0.0 {
            Ok(Self { from, to, seconds })
        } else {
            Err(wrong("a step or a ramp must last longer than 0s"))
        }
    }

    /// Requests due up to `seconds` into the phase.
    fn due_by(&self, seconds: f64) -> f64 {
        let change = if self.seconds.is_finite() { (self.to - self.from) / self.seconds } else { 0.0 };
        seconds * (self.from + change * seconds / 2.0)
    }

    fn due(&self) -> f64 {
        if self.seconds.is_finite() { self.from.midpoint(self.to) * self.seconds } else { f64::INFINITY }
    }

    /// Time into the phase by which `count` requests are due: the inverse of [`Self::due_by`], in a form that loses no
    /// digits if the rate hardly changes.
    fn time_of(&self, count: f64) -> f64 {
        let change = if self.seconds.is_finite() { (self.to - self.from) / self.seconds } else { 0.0 };
        let root = (self.from * self.from + 2.0 * change * count).max(0.0).sqrt();
        if count > 0.0 { 2.0 * count / (self.from + root) } else { 0.0 }
    }
}

impl Profile {
    /// Total length of its phases in seconds; infinite for a single rate without a time.
    pub fn seconds(&self) -> f64 {
        self.phases.iter().map(|phase| phase.seconds).sum()
    }

    /// Requests due between two times, in seconds from the beginning.
    pub fn due_between(&self, begin: f64, end: f64) -> f64 {
        self.due_by(end) - self.due_by(begin)
    }

    /// Mean rate up to a time in seconds from the beginning.
    pub fn mean_rate(&self, seconds: f64) -> f64 {
        self.due_by(seconds) / seconds
    }

    fn due_by(&self, seconds: f64) -> f64 {
        let mut left = seconds;
        let mut due = 0.0;
        for phase in &self.phases {
            due += phase.due_by(left.min(phase.seconds));
            left -= phase.seconds;
            if left <= 0.0 {
                break;
            }
        }
        due
    }

    /// The profile, preceded by `seconds` at its first rate.
    #[must_use]
    pub fn preceded_by(mut self, seconds: f64) -> Self {
        let first = self.phases[0];
        if seconds > 0.0 && first.seconds.is_finite() {
            self.phases.insert(0, Phase { from: first.from, to: first.from, seconds });
        }
        self
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Phase { from, to, seconds }) in self.phases.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let to = if from.total_cmp(to).is_eq() { String::new() } else { format!("..{to}") };
            let time = if seconds.is_finite() { format!("x{seconds}s") } else { String::new() };
            write!(f, "{comma}{from}{to}{time}")?;
        }
        Ok(())
    }
}

/// Due times of one worker's share of the requests, ascending, in seconds from the beginning.
///
/// With constant arrivals each of n workers takes every n-th request. With Poisson arrivals each has its own process at
/// its share of the rate; together they are one process of the whole rate.
#[derive(Clone, Debug)]
pub struct DueTimes {
    profile: Profile,
    phase: usize,
    phase_began_at: f64,
    phase_began_count: f64,
    count: f64,
    gap: Gap,
}

#[derive(Clone, Debug)]
enum Gap {
    Equal(f64),
    Exponential(f64, Box<Xoshiro256PlusPlus>),
}

impl Gap {
    #[expect(clippy::cast_precision_loss, reason = "53 random bits are what a double holds")]
    fn next(&mut self) -> f64 {
        match self {
            Self::Equal(gap) => *gap,
            Self::Exponential(mean, random) => {
                let uniform = ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
                -uniform.ln() * *mean
            }
        }
    }
}

impl DueTimes {
    /// The share of worker `worker` of `workers`.
    #[expect(clippy::cast_precision_loss, reason = "workers are few")]
    pub fn new(profile: Profile, arrivals: Arrivals, worker: usize, workers: usize, seed: u64) -> Self {
        let workers_real = workers as f64;
        let (gap, first) = match arrivals {
            Arrivals::Constant => (Gap::Equal(workers_real), worker as f64),
            Arrivals::Poisson => {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                // Streams that cannot overlap, one per worker.
                (0..worker).for_each(|_| random.jump());
                let mut gap = Gap::Exponential(workers_real, Box::new(random));
                let first = gap.next();
                (gap, first)
            }
        };
        Self { profile, phase: 0, phase_began_at: 0.0, phase_began_count: 0.0, count: first, gap }
    }
}

impl Iterator for DueTimes {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        loop {
            let phase = self.profile.phases.get(self.phase)?;
            let within = self.count - self.phase_began_count;
            if within < phase.due() {
                let at = self.phase_began_at + phase.time_of(within);
                self.count += self.gap.next();
                return Some(at);
            }
            self.phase += 1;
            self.phase_began_at += phase.seconds;
            self.phase_began_count += phase.due();
        }
    }
}

#[cfg(test)]
mod tests {
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
}
