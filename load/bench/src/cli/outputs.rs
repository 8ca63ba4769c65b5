//! Output files of a load, opened before the run: a file that cannot be written is reported then, and not after an
//! hour.

use std::collections::HashSet;
use std::io::{self, Write as _};

use anyhow::{Context as _, bail};

use super::load::LoadArgs;
use crate::measurement::Report;
use crate::report::pending::Pending;
use crate::report::{html, json, summary};

#[derive(Debug)]
pub(crate) struct Outputs {
    /// For a row per request, written by the run.
    pub(crate) rows: Option<Pending>,
    json: Option<Pending>,
    html: Option<Pending>,
}

/// Opens the files that the flags name; an error is one line with the flag.
pub(crate) fn prepare_outputs(args: &LoadArgs) -> anyhow::Result<Outputs> {
    let paths = [("--json", &args.json), ("--csv", &args.csv), ("--html", &args.html)];
    let mut taken = HashSet::new();
    for (flag, path) in paths.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
        if !taken.insert(path) {
            bail!("{flag} {}: another flag already names this file", path.display());
        }
    }
    let open = |flag: &'static str, path: &Option<std::path::PathBuf>| {
        path.as_deref().map(|path| Pending::create(path).context(flag)).transpose()
    };
    let [json, rows, html] = [open("--json", &args.json)?, open("--csv", &args.csv)?, open("--html", &args.html)?];
    for (flag, output) in [("--csv", &rows), ("--html", &html)] {
        if output.as_ref().is_some_and(Pending::is_standard_output) {
            bail!("{flag} -: only --json can write to standard output; name a file");
        }
    }
    Ok(Outputs { rows, json, html })
}

impl Outputs {
    /// Writes the page and the JSON and prints the summary, to standard error if the JSON goes to standard output.
    pub(crate) fn write(self, report: &Report) -> anyhow::Result<()> {
        let summary = summary::text(report);
        let json_is_printed = self.json.as_ref().is_some_and(Pending::is_standard_output);
        if let Some(into) = self.html {
            into.write_whole(html::page(report).as_bytes())?;
        }
        if let Some(into) = self.json {
            json::write(report, into)?;
        }
        let printed = if json_is_printed {
            io::stderr().write_all(summary.as_bytes())
        } else {
            io::stdout().write_all(summary.as_bytes())
        };
        match printed {
            // A reader like `head` closes the pipe when it has enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed.context("cannot print the summary"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::report::fixtures;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn prepared(flags: &[&str]) -> anyhow::Result<Outputs> {
        let flags = ["load"].iter().chain(flags);
        prepare_outputs(&Flags::try_parse_from(flags).expect("flags that there are").load)
    }

    fn wrong(flags: &[&str]) -> String {
        format!("{:#}", prepared(flags).expect_err("not writable"))
    }

    #[test]
    fn an_output_that_cannot_be_written_is_named_with_its_flag() {
        assert_eq!(wrong(&["--html", "/"]), "--html: cannot write /: it does not name a file");
        assert!(
            wrong(&["--csv", "/no/such/rows.csv"])
                .starts_with("--csv: cannot write /no/such/rows.csv: there is no folder")
        );
        assert!(wrong(&["--csv", "-"]).starts_with("--csv -: only --json can write to standard output"));
        assert!(wrong(&["--html", "-"]).starts_with("--html -: "));
        assert_eq!(wrong(&["--json", "a", "--html", "a"]), "--html a: another flag already names this file");
    }

    #[test]
    fn outputs_are_there_when_they_are_whole_and_not_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let [json, html] = ["report.json", "report.html"].map(|name| folder.path().join(name));
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        let outputs = prepared(&["--json", &text(&json), "--html", &text(&html)]).expect("writable");
        assert!(!json.exists() && !html.exists());
        outputs.write(&fixtures::report(vec![fixtures::busy()])).expect("written");
        assert_eq!(json::read(&json).expect("a report").runs.len(), 1);
        assert!(std::fs::read_to_string(&html).expect("there").starts_with("<!DOCTYPE html>"));
    }
}
