//! Alternatives for comparison: nginx with the finished answer as a file, and databases queried through Python.
//!
//! A missing one is reported with the reason. `load/peers/records/install.sh` installs them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use kit::Server;
use kit::server::free_address;
use serde::Deserialize;

use super::page::{ENGINES, NGINX};
use crate::lab::{Lab, Progress};
use crate::results::{Observed, Results};

const INSTALL: &str = "load/peers/records/install.sh installs it";
const QUERIES: &str = include_str!("../../../peers/records/queries.py");
/// Path of the answer on nginx.
pub(super) const ANSWER: &str = "/answer.json";

/// nginx, one process, serving `answer` as a file from the page cache.
pub(super) fn nginx(lab: &mut Lab, answer: &[u8]) -> anyhow::Result<Server> {
    let version = match Command::new("nginx").arg("-v").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("it is not installed; {INSTALL}"),
        output => String::from_utf8_lossy(&output?.stderr).trim().replace("nginx version:", "nginx"),
    };
    let folder = lab.new_folder(NGINX)?;
    std::fs::write(folder.join(&ANSWER[1..]), answer)?;
    let address = free_address()?;
    std::fs::write(folder.join("nginx.conf"), configuration(&folder, address))?;
    let mut command = Command::new("nginx");
    let server = Server::start_at(NGINX, command.arg("-p").arg(&folder).args(["-c", "nginx.conf"]), address)?;
    lab.versions.push(version);
    Ok(server)
}

fn configuration(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n access_log off;\n sendfile on;\n tcp_nopush on;\n keepalive_requests 1000000000;\n\
         client_body_temp_path body;\n proxy_temp_path proxy;\n fastcgi_temp_path fastcgi;\n\
         uwsgi_temp_path uwsgi;\n scgi_temp_path scgi;\n default_type application/json;\n\
         server {{ listen {address}; root {folder}; }}\n}}\n"
    )
}

/// The databases, filled.
#[derive(Debug, Default)]
pub(super) struct Engines {
    python: PathBuf,
    script: PathBuf,
    folder: PathBuf,
    /// Available engines.
    there: Vec<&'static str>,
}

#[derive(Deserialize)]
struct Loaded {
    python: String,
    versions: BTreeMap<String, String>,
    missing: BTreeMap<String, String>,
}

/// Measurements of an engine in one round.
#[derive(Deserialize)]
struct Asked {
    rows: f64,
    json_bytes: f64,
    /// CPU time of the Python process per query, including writing JSON.
    cpu_ms: f64,
    /// Time until Python has the rows, for each query.
    rows_ms: Vec<f64>,
    /// Time until the rows are written as JSON, for the same queries.
    json_ms: Vec<f64>,
}

impl Engines {
    /// Loads the file into each available database.
    pub(super) fn load(lab: &mut Lab, csv: &Path) -> anyhow::Result<Self> {
        // The peers' programs are in load/peers/target/release; their Python is beside it.
        let own = lab.options.peers.parent().map(|target| target.join("venv/bin/python")).filter(|path| path.is_file());
        let python = own.unwrap_or_else(|| "python3".into());
        let folder = lab.folder().to_owned();
        let script = folder.join("queries.py");
        std::fs::write(&script, QUERIES)?;
        let mut engines = Self { python, script, folder, there: Vec::new() };
        let loaded: Loaded = engines.run(&["load".as_ref(), csv.as_os_str(), engines.folder.as_os_str()])?;
        lab.missing.extend(loaded.missing.iter().map(|(name, reason)| format!("{name}: {reason}; {INSTALL}")));
        let versions = loaded.versions.into_iter().chain([("python".to_owned(), loaded.python)]);
        lab.versions.extend(versions.map(|(name, version)| format!("{name} {version}")));
        // An engine's name may have a variant after an underscore.
        let is_there = |engine: &&str| !loaded.missing.contains_key(engine.split('_').next().unwrap_or(engine));
        engines.there = ENGINES.map(|(engine, _)| engine).into_iter().filter(is_there).collect();
        Ok(engines)
    }

    /// Number of available engines.
    pub(super) fn count(&self) -> usize {
        self.there.len()
    }

    /// Queries each repeatedly for this long; each query is a run.
    pub(super) fn ask_all(
        &self,
        progress: &mut Progress,
        round: usize,
        duration: Duration,
        into: &mut Results,
    ) -> anyhow::Result<()> {
        let seconds = duration.as_secs_f64().to_string();
        for engine in &self.there {
            progress.begin(format!("round {}, {engine}", round + 1), Some(duration));
            let asked: Asked =
                self.run(&["ask".as_ref(), self.folder.as_os_str(), engine.as_ref(), seconds.as_ref()])?;
            progress.end(&format!("{} queries", asked.rows_ms.len()));
            let mut query = 0.0;
            for (rows_ms, json_ms) in asked.rows_ms.iter().zip(&asked.json_ms) {
                let times = [("query", query), ("rows_ms", *rows_ms), ("json_ms", *json_ms), ("cpu_ms", asked.cpu_ms)];
                let sizes = [("rows", asked.rows), ("megabytes", asked.json_bytes / 1e6)];
                into.push("", engine, round, Observed::new(times.into_iter().chain(sizes)));
                query += 1.0;
            }
        }
        Ok(())
    }

    fn run<T: for<'de> Deserialize<'de>>(&self, words: &[&OsStr]) -> anyhow::Result<T> {
        let python = self.python.display();
        let done = Command::new(&self.python).arg(&self.script).args(words).output();
        let done = done.with_context(|| format!("cannot start {python}"))?;
        let errors = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "{python} ended ({}): {}",
            done.status,
            errors.lines().last().unwrap_or_default()
        );
        serde_json::from_slice(&done.stdout).with_context(|| format!("{python} printed nothing that can be read"))
    }
}
