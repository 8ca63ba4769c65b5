//! A program that takes the arguments of a load and prints a report, for tests of commands that run loads.

use std::path::PathBuf;

use tempfile::TempDir;

use super::child::Children;
use crate::measurement::Report;
use crate::measurement::{self, Distribution, Load, Machine, Run, Verdict};

/// The stub's folder, with a log of the arguments of every call.
pub(super) struct Stub {
    folder: TempDir,
    pub(super) children: Children,
}

impl Stub {
    /// `body` is a shell script that sets `rate`, `time` (the median in microseconds), `errors` (of 1,000 requests)
    /// and `reason` (why the run is INVALID) from the flags `$clients` and `$asked`; all of them may be left unset.
    pub(super) fn new(body: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        // A shell cannot make a histogram, so one is ready for each of these times.
        for time_us in [100, 200, 400, 10_000] {
            let json = serde_json::to_string(&report(time_us)).expect("a report is JSON");
            std::fs::write(at(&format!("{time_us}.json")), json).expect("written");
        }
        let script = format!(
            r#"dir='{dir}'
echo "$@" >> "$dir/log"
clients=1 asked=0
for word in "$@"; do
    case "$before" in --clients) clients=$word;; --rate) asked=$word;; esac
    before=$word
done
rate=1000 time=100 errors=0 reason=
turn=$(wc -l < "$dir/log")
{body}
reasons=${{reason:+\"$reason\"}}
sed -e 's/"rate":4711.0/"rate":'"$rate"'/' -e 's/"errors":4711/"errors":'"$errors"'/' \
    -e 's/"reasons":\[\]/"reasons":['"$reasons"']/' "$dir/$time.json"
"#,
            dir = folder.path().display()
        );
        let path = at("stub.sh");
        std::fs::write(&path, script).expect("written");
        Self { children: Children::with_program("sh", [path]), folder }
    }

    /// The arguments of every call, in order.
    pub(super) fn calls(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn report(time_us: u64) -> Report {
    let mut response = Distribution::default();
    response.histogram.record_n(time_us * 1_000, 1_000).expect("within bounds");
    let run = Run {
        seconds: 1.0,
        requests: 1_000,
        errors: 4711,
        rate: 4711.0,
        response,
        client_cpu_seconds: 0.01,
        verdict: Verdict::default(),
        ..Run::default()
    };
    Report {
        format: measurement::FORMAT.into(),
        tool: "stub".into(),
        machine: Machine::default(),
        load: Load::default(),
        runs: vec![run],
    }
}
