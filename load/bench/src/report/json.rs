//! A measurement as a JSON file: written whole or not at all; errors of reading name the cause.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::pending::Pending;
use crate::measurement::{FORMAT, Report};

/// Maximum size of a file to read.
pub const REPORT_BYTES_MAX: u64 = 256 << 20;

/// Writes the report and a final newline.
pub fn write(report: &Report, into: Pending) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(report).context("the report cannot be written as JSON")?;
    text.push(b'\n');
    into.write_whole(&text)
}

/// Reads a report that [`write`] wrote.
pub fn read(path: &Path) -> anyhow::Result<Report> {
    let read = || {
        let mut text = String::new();
        let length = File::open(path)?.take(REPORT_BYTES_MAX + 1).read_to_string(&mut text)?;
        ensure!(length as u64 <= REPORT_BYTES_MAX, "it is longer than {} MiB", REPORT_BYTES_MAX >> 20);
        parse(&text)
    };
    read().with_context(|| format!("cannot read the report {}", path.display()))
}

pub fn parse(text: &str) -> anyhow::Result<Report> {
    #[derive(Deserialize)]
    struct Head {
        format: Option<String>,
    }
    let head: Head = serde_json::from_str(text).context("it is not a report that --json wrote")?;
    match head.format {
        Some(format) if format == FORMAT => {}
        Some(format) => bail!("format: it is {format:?}, and this version reads {FORMAT:?}"),
        None => bail!("format: missing, should be {FORMAT:?}"),
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| anyhow::anyhow!("{}: {}", error.path(), error.inner()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    fn written(report: &Report) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.json");
        write(report, Pending::create(&path).expect("writable")).expect("written");
        std::fs::read_to_string(&path).expect("there")
    }

    #[test]
    fn a_report_that_was_read_is_the_one_that_was_written() {
        for report in [
            fixtures::report(vec![]),
            fixtures::report(vec![fixtures::empty()]),
            fixtures::report(vec![fixtures::busy(), fixtures::all_errors()]),
        ] {
            let text = written(&report);
            let read = parse(&text).expect("it was written by us");
            assert_eq!(written(&read), text);
            for (one, other) in report.runs.iter().zip(&read.runs) {
                assert_eq!(one.response.histogram, other.response.histogram);
                assert_eq!(
                    one.server.as_ref().map(|server| &server.latency),
                    other.server.as_ref().map(|server| &server.latency)
                );
            }
        }
    }

    fn wrong(change: impl FnOnce(&mut serde_json::Value)) -> String {
        let text = written(&fixtures::report(vec![fixtures::busy()]));
        let mut value = serde_json::from_str(&text).expect("JSON");
        change(&mut value);
        format!("{:#}", parse(&value.to_string()).expect_err("changed to be wrong"))
    }

    #[test]
    fn another_version_is_named_beside_the_one_that_is_read() {
        let error = wrong(|report| report["format"] = "quire-bench/2".into());
        assert_eq!(error, "format: it is \"quire-bench/2\", and this version reads \"quire-bench/1\"");
        let error = wrong(|report| drop(report.as_object_mut().expect("an object").remove("format")));
        assert_eq!(error, "format: missing, should be \"quire-bench/1\"");
    }

    #[test]
    fn an_error_names_the_field() {
        let error = wrong(|report| report["runs"][0]["rate"] = "fast".into());
        assert!(error.starts_with("runs[0].rate: invalid type: string \"fast\""), "{error}");
        let error = wrong(|report| report["runs"][0]["response"]["histogram"] = "?".into());
        assert!(error.starts_with("runs[0].response: histogram is not base64"), "{error}");
    }
}
