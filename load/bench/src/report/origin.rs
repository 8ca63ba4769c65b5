//! Time, tool and machine of a measurement.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::measurement::Machine;

/// Version of this program, with its commit if known.
pub const TOOL: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_COMMIT"), ")");

/// A time as text, to the second.
pub fn moment(unix_ms: u64) -> String {
    // Times beyond the year 9999 have no such text, and no run began there.
    let seconds = (unix_ms / 1000).min(253_402_300_799);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds))
        .to_string()
        .replace('T', " ")
        .replace('Z', " UTC")
}

/// The machine that this process runs on.
pub fn this_machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    Machine {
        cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
        cores: crate::cores::cores().len(),
        system: format!("{} {}", std::env::consts::OS, release.trim()),
    }
}

/// Time, tool and machine in one line.
pub fn line(began: Option<String>, tool: &str, machine: &Machine) -> String {
    let tool = if tool.contains("quire-bench") { tool.to_owned() } else { format!("quire-bench {tool}") };
    let cores = format!("{} core{}", machine.cores, if machine.cores == 1 { "" } else { "s" });
    let parts = began.map(|began| format!("Measured {began}")).into_iter().chain([tool, machine.cpu.clone(), cores]);
    let parts: Vec<String> = parts.chain([machine.system.clone()]).filter(|part| !part.is_empty()).collect();
    parts.join(" · ")
}

/// The line for a measurement made here and now by this program.
pub fn here_and_now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    line(Some(moment(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))), TOOL, &this_machine())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_date_version_and_machine_and_leaves_out_what_is_not_known() {
        let machine = Machine { cpu: "Example 9000".to_owned(), cores: 2, system: "linux 6.1".to_owned() };
        assert_eq!(
            line(Some(moment(1_770_000_000_000)), "0.1.0 (abc)", &machine),
            "Measured 2026-02-02 02:40:00 UTC · quire-bench 0.1.0 (abc) · Example 9000 · 2 cores · linux 6.1"
        );
        let unknown = Machine { cores: 1, ..Machine::default() };
        assert_eq!(line(None, "quire-bench 0.1.0", &unknown), "quire-bench 0.1.0 · 1 core");
        assert!(here_and_now().contains(TOOL));
    }
}
