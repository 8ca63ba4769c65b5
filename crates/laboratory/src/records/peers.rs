//! What a user would pick instead: nginx with the finished answer as a file, and databases asked through Python.
//!
//! Each may be missing; then the reason is told. `peers/records/install.sh` installs them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::NGINX;
use super::loads::{self, Load, origin};
use crate::Options;
use crate::progress::Progress;
use crate::server::Server;
use bench::measurement::Run;

const INSTALL: &str = "peers/records/install.sh installs it";
const QUERIES: &str = include_str!("../../../../peers/records/queries.py");
/// What the script calls them.
pub(super) const ENGINES: [&str; 3] = ["sqlite", "sqlite_indexed", "duckdb"];
/// How long nginx may take until it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// nginx, one process, serving one file from the page cache.
#[derive(Debug)]
pub(super) struct Nginx {
    server: Server,
    pub(super) version: String,
}

impl Nginx {
    /// Serves `answer` as a file in `folder`.
    pub(super) fn start(folder: &Path, answer: &[u8]) -> anyhow::Result<Self> {
        let version = match Command::new("nginx").arg("-v").output() {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!("it is not installed; {INSTALL}"),
            said => String::from_utf8_lossy(&said?.stderr).trim().trim_start_matches("nginx version: ").to_owned(),
        };
        let folder = folder.join("nginx");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        std::fs::write(folder.join("answer.json"), answer)?;
        // The system chooses the port; it is free again until nginx takes it.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        std::fs::write(folder.join("nginx.conf"), configuration(&folder, address))?;
        // As the other servers do it says where it listens; and its process is the one whose CPU time is read.
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo \"listening on $0\"; exec nginx -p \"$1\" -c nginx.conf", &address.to_string()])
            .arg(&folder);
        let server = Server::start(NGINX, &mut command)?;
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = first_line(server.address) {
            ensure!(Instant::now() < deadline, "it does not answer: {error:#}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { server, version })
    }

    pub(super) fn measure(&self, load: &Load) -> anyhow::Result<(Run, Duration)> {
        loads::measure_url(&self.server, load, format!("{}/answer.json", origin(self.server.address)))
    }
}

/// Asks for the file and reads the first line of the answer.
fn first_line(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /answer.json HTTP/1.0\r\n\r\n")?;
    let mut line = [0; 15];
    stream.read_exact(&mut line)?;
    ensure!(line == *b"HTTP/1.1 200 OK", "{}", line.escape_ascii());
    Ok(())
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
#[derive(Debug)]
pub(super) struct Engines {
    python: PathBuf,
    script: PathBuf,
    folder: PathBuf,
    pub(super) versions: Vec<(String, String)>,
    /// Those that cannot be asked, and why.
    pub(super) missing: Vec<String>,
    there: Vec<&'static str>,
}

#[derive(Deserialize)]
struct Loaded {
    python: String,
    versions: std::collections::BTreeMap<String, String>,
    missing: std::collections::BTreeMap<String, String>,
}

/// What an engine took in one round.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Asked {
    pub(super) engine: String,
    #[serde(skip)]
    pub(super) round: usize,
    pub(super) rows: u64,
    pub(super) json_bytes: f64,
    /// Of the Python process, a query, with the JSON written.
    pub(super) cpu_ms: f64,
    /// Until Python has the rows, each query.
    pub(super) rows_ms: Vec<f64>,
    /// Until the rows are written as JSON, the same queries.
    pub(super) json_ms: Vec<f64>,
}

impl Engines {
    /// Puts the file into each database that there is.
    pub(super) fn load(options: &Options, folder: &Path, csv: &Path) -> anyhow::Result<Self> {
        // peers/target/release is where the peers' programs are; their Python is beside it.
        let own = options.peers.parent().map(|target| target.join("venv/bin/python")).filter(|path| path.is_file());
        let python = own.unwrap_or_else(|| "python3".into());
        let script = folder.join("queries.py");
        std::fs::write(&script, QUERIES)?;
        let mut engines = Self {
            python,
            script,
            folder: folder.to_owned(),
            versions: Vec::new(),
            missing: Vec::new(),
            there: Vec::new(),
        };
        let loaded: Loaded = engines.run(&["load".as_ref(), csv.as_os_str(), folder.as_os_str()])?;
        engines.missing = loaded.missing.iter().map(|(name, reason)| format!("{name}: {reason}; {INSTALL}")).collect();
        engines.there = ENGINES.into_iter().filter(|name| !loaded.missing.contains_key(base(name))).collect();
        engines.versions = loaded.versions.into_iter().chain([("python".to_owned(), loaded.python)]).collect();
        Ok(engines)
    }

    /// How many there are to ask.
    pub(super) fn count(&self) -> usize {
        self.there.len()
    }

    /// Asks each again and again for this long.
    pub(super) fn ask_all(&self, progress: &Progress, round: usize, duration: Duration) -> anyhow::Result<Vec<Asked>> {
        let seconds = duration.as_secs_f64().to_string();
        let ask = |engine: &&str| {
            let words = ["ask".as_ref(), self.folder.as_os_str(), engine.as_ref(), seconds.as_ref()];
            progress.begin(format!("round {}, {engine}", round + 1), Some(duration));
            let asked: Asked = self.run(&words)?;
            progress.end(&format!("{} queries", asked.rows_ms.len()));
            Ok(Asked { round, ..asked })
        };
        self.there.iter().map(ask).collect()
    }

    fn run<T: for<'de> Deserialize<'de>>(&self, words: &[&std::ffi::OsStr]) -> anyhow::Result<T> {
        let python = self.python.display();
        let done = Command::new(&self.python).arg(&self.script).args(words).output();
        let done = done.with_context(|| format!("cannot start {python}"))?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{python} ended ({}): {}", done.status, said.lines().last().unwrap_or_default());
        serde_json::from_slice(&done.stdout).with_context(|| format!("{python} said nothing that can be read"))
    }
}

/// An engine's name without the way it is asked.
fn base(engine: &str) -> &str {
    engine.split('_').next().unwrap_or(engine)
}
