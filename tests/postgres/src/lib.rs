//! A `PostgreSQL` server for tests: Debian's programs with their own folder and socket, ended with the test process
//! however that ends. Must not know what is kept in it.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Owner of every database.
const USER: &str = "quire";

/// Far longer than a start takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_mins(1);

/// Script that forwards signals to the server. When its input ends, as it does when the test process has gone, it ends
/// the server and removes the folder.
const KEEPER: &str = r#"
folder=$1; shift
"$@" & server=$!
end() { kill -s QUIT $server 2>/dev/null; wait $server 2>/dev/null; }
while read -r signal; do
    [ "$signal" = END ] && { end; exit 0; }
    kill -s "$signal" $server
    [ "$signal" = KILL ] && { wait $server; exit 0; }
done
end
rm -rf "$folder"
"#;

/// A server with its own folder.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    port: u16,
    keeper: Option<Child>,
}

impl Server {
    /// Creates an empty server and starts it. `settings` are added to its configuration.
    pub fn start(settings: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("quire-postgres").tempdir().expect("a folder").keep();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let mut server = Self { folder, port, keeper: None };
        if let Some((user, group)) = other_user() {
            chown(&server.folder, Some(user), Some(group)).expect("the folder can be given away");
        }
        let made = server.program("initdb", ["--auth=trust", "--no-sync", "--no-locale", "-E", "UTF8", "-U", USER]);
        assert!(made.status.success(), "{made:?}");
        // Tests kill processes, not machines, so nothing has to reach the disk.
        let fast = "fsync = off\nfull_page_writes = off\nmax_connections = 200\nshared_buffers = 64MB\n";
        let place = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n",
            server.folder.display()
        );
        let mut file =
            fs::OpenOptions::new().append(true).open(server.data().join("postgresql.conf")).expect("its file");
        writeln!(file, "{fast}{place}{settings}").expect("its settings are written");
        server.run();
        server
    }

    /// Starts the server again after it has ended.
    pub fn run(&mut self) {
        self.spawn();
        let deadline = Instant::now() + PATIENCE;
        while !self.psql("postgres", "SELECT 1").status.success() {
            let log = self.log();
            assert!(Instant::now() < deadline, "the server does not start: {log}");
            // Processes of a killed server take a moment to notice it.
            if log.contains("is still in use") {
                self.end();
                self.spawn();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn spawn(&mut self) {
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(&self.folder).args(as_other_user("postgres")).arg("-D").arg(self.data());
        let log = fs::File::create(self.folder.join("log")).expect("a log");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        self.keeper = Some(command.spawn().expect("a server starts"));
    }

    /// Enables TLS, with a certificate and its key in PEM.
    pub fn secure(&self, certificate: &str, key: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.data().join(name);
            fs::write(&path, text).expect("a file of the server");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
            if let Some((user, group)) = other_user() {
                chown(&path, Some(user), Some(group)).expect("the file can be given away");
            }
        }
        for sql in ["ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"] {
            let done = self.psql("postgres", sql);
            assert!(done.status.success(), "{done:?}");
        }
        let deadline = Instant::now() + PATIENCE;
        while self.psql("postgres", "SHOW ssl").stdout != b"on\n" {
            assert!(Instant::now() < deadline, "the server does not take its certificate");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends the server's first process a signal by its name, without `SIG`.
    pub fn signal(&mut self, name: &str) {
        let input = self.keeper.as_mut().and_then(|keeper| keeper.stdin.as_mut()).expect("the server runs");
        writeln!(input, "{name}").expect("the keeper reads");
    }

    /// Kills the server at once, with its child processes.
    pub fn kill(&mut self) {
        self.signal("KILL");
        self.keeper.take().expect("the server runs").wait().expect("the keeper ends");
        // Files that a killed server leaves would prevent the next start.
        for left in [self.data().join("postmaster.pid"), self.folder.join(format!(".s.PGSQL.{}.lock", self.port))] {
            fs::remove_file(left).expect("a server's file");
        }
    }

    /// Creates an empty database; returns its URL.
    pub fn database(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("test{}", NUMBER.fetch_add(1, Relaxed));
        let made = self.psql("postgres", &format!("CREATE DATABASE {name}"));
        assert!(made.status.success(), "{made:?}");
        self.url(&name)
    }

    /// URL of a database, over TCP.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs SQL as another program would.
    pub fn psql(&self, database: &str, sql: &str) -> Output {
        let mut command = Command::new(program("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database, "-c", sql]);
        command.arg("-h").arg(&self.folder).args(["-p", &self.port.to_string()]);
        command.output().expect("psql runs")
    }

    /// A separate `psql` session, which may have its own transaction.
    pub fn session(&self, database: &str) -> Psql {
        let mut command = Command::new(program("psql"));
        command.args(["-X", "-q", "-A", "-t", "-U", USER, "-d", database]);
        command.arg("-h").arg(&self.folder).args(["-p", &self.port.to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = child.expect("psql runs");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Psql { child, answers }
    }

    /// A program that receives the log as a replica does.
    pub fn receiver(&self) -> Receiver {
        let mut command = Command::new(program("pg_receivewal"));
        command.args(["--synchronous", "--no-password", "-U", USER]).arg("-D").arg(&self.folder);
        command.arg("-h").arg(&self.folder).args(["-p", &self.port.to_string()]);
        Receiver { child: command.spawn().expect("pg_receivewal runs") }
    }

    /// Log since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn end(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            // It may have ended already.
            let _ = keeper.stdin.take().map(|mut input| writeln!(input, "END"));
            let _ = keeper.wait();
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn program<'a>(&self, name: &str, arguments: impl IntoIterator<Item = &'a str>) -> Output {
        let words = as_other_user(name);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments).arg("-D").arg(self.data()).current_dir(&self.folder);
        command.output().expect("the program runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program that receives the log, which a COMMIT waits for if `synchronous_standby_names` counts it in.
#[derive(Debug)]
pub struct Receiver {
    child: Child,
}

impl Receiver {
    /// Stops it: from now on it confirms nothing.
    pub fn freeze(&self) {
        self.signal("STOP");
        let state = format!("/proc/{}/stat", self.child.id());
        let is_stopped = || fs::read_to_string(&state).expect("it runs").contains(") T ");
        let deadline = Instant::now() + PATIENCE;
        while !is_stopped() {
            assert!(Instant::now() < deadline, "pg_receivewal does not stop");
            thread::yield_now();
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A session of `psql`, ended on drop.
#[derive(Debug)]
pub struct Psql {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Psql {
    /// Runs SQL to its end; returns the output.
    pub fn run(&mut self, sql: &str) -> String {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{sql}\n\\echo -- done").expect("psql reads");
        let (mut answer, mut line) = (String::new(), String::new());
        while self.answers.read_line(&mut line).expect("psql writes") > 0 && line.trim_end() != "-- done" {
            answer.push_str(&line);
            line.clear();
        }
        answer.trim_end().to_owned()
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server shared by the tests of a process, each with its own databases. It ends with the process.
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(""))
}

/// Database name at the end of a URL.
pub fn database_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

/// The newest release's program of that name, as Debian installs them.
fn program(name: &str) -> PathBuf {
    let releases = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = releases.map(|release| release.path().join("bin").join(name)).filter(|path| path.exists());
    found.max().unwrap_or_else(|| PathBuf::from(name))
}

/// Command line that runs a program as a user other than root, which the server refuses to run as.
fn as_other_user(name: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if let Some((user, group)) = other_user() {
        let ids = [format!("--reuid={user}"), format!("--regid={group}")];
        words.extend(["setpriv", &ids[0], &ids[1], "--clear-groups"].map(Into::into));
    }
    words.push(program(name).into());
    words
}

/// The system user for the server, if this process is root.
fn other_user() -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    is_root.then(|| {
        let ids = |flag: &str| {
            let told = Command::new("id").args([flag, "postgres"]).output().expect("id runs");
            String::from_utf8_lossy(&told.stdout).trim().parse().expect("a user named postgres")
        };
        (ids("-u"), ids("-g"))
    })
}
