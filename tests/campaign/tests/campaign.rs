//! The short form of the campaign, and its bugs.

use std::{fs, path::Path, process::Command};

#[test]
fn no_fault_of_the_disk_loses_an_acknowledged_write_unnoticed() {
    let rounds = std::env::var("CAMPAIGN_ROUNDS").unwrap_or_else(|_| "60".to_owned());
    let done = Command::new(env!("CARGO_BIN_EXE_campaign"))
        .args(["--rounds", &rounds, "--jobs", "2"])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
}

/// The bugs that `again.sh` puts back are still possible: each hunk's lines are in its file.
#[test]
fn the_bugs_apply_to_the_sources() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = crate_folder.parent().and_then(Path::parent).expect("the repository");
    let bugs: Vec<_> = fs::read_dir(crate_folder.join("bugs")).expect("the bugs").flatten().collect();
    assert!(bugs.len() > 10, "{bugs:?}");
    for bug in bugs.iter().map(|bug| fs::read_to_string(bug.path()).expect("a patch")) {
        let (mut source, mut hunks) = (String::new(), 0);
        for part in bug.split("\n@@ ") {
            let lines =
                part.split_once(" @@").map_or("", |(_, rest)| rest.split_once('\n').map_or("", |(_, lines)| lines));
            let (lines, next) = lines.split_once("\ndiff ").map_or((lines, part), |(lines, next)| (lines, next));
            let kept = lines.lines().filter(|line| line.starts_with([' ', '-']));
            let before = kept.flat_map(|line| [&line[1..], "\n"]).collect::<String>();
            hunks += usize::from(!before.is_empty());
            assert!(source.contains(&before), "{before}");
            if let Some((_, file)) = next.split_once("\n+++ b/") {
                let file = file.lines().next().expect("a name");
                source = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            }
        }
        assert!(hunks > 0, "{bug}");
    }
}
