//! The command line: flags and their help, nothing else.

mod verbs;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use anyhow::bail;
use clap::{Args, Parser, Subcommand, ValueEnum};
use hosting::time;
use quire_client::cli::Connection;

pub(crate) use self::verbs::{By, COMMANDS, Choice, VerbArgs, VerbLine};
use crate::services::SERVICES;

const TRUSTED: &str =
    "Certificates in PEM that vouch for the server's [default: the system's, or those in SSL_CERT_FILE]";

/// A setting given by a flag: the flag, the setting, the value.
pub(crate) type Flag = (&'static str, &'static str, String);

/// A server with a bookstore that never oversells, a key-value store, tasks, record queries and an RPC game.
#[derive(Debug, Parser)]
#[command(name = "quire", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the server, with the operator's console on standard input
    Serve(ServeArgs),
    /// Buys books: one command as arguments, or a prompt; see quire client --help
    Client(ClientArgs),
    /// Runs the shop: books, log, sales, connections; one command as arguments, or a prompt
    Admin(AdminArgs),
    /// Reads and writes the key-value service
    Kv(KvArgs),
    /// Runs chains of tasks on a server, each task with the last reply as its seed, and reports the time
    Tasks(ChainArgs),
    /// Plays the RPC game: sends the lines of a file as numbered messages and compares the checksums of both sides
    Game(GameArgs),
    /// Adds the books of a CSV file (id,title,topic,stock,price) to the store, all or none
    Import(ImportArgs),
    /// Writes the books of the store as CSV, which import reads; or the log, or the sales
    Export(ExportArgs),
    /// Writes the data folder's contents to one file, also while a server sells from it
    Backup(BackupArgs),
    /// Restores a backup file to a new data folder
    Restore(RestoreArgs),
    /// Verifies a store or a backup: the log against its head, the books' stock and the index of keys
    Verify(VerifyArgs),
    /// Copies a store from its file into a database that several servers can share
    Migrate(MigrateArgs),
    /// Checks a file of settings, shows the settings, or prints their reference
    Config(ConfigCommandArgs),
    /// Requests a server's health; the exit code is for probes
    Health(HealthArgs),
    /// Shows a server's figures in the terminal: purchases, failures, levels, times of each method
    Top(TopArgs),
    /// Makes a token for a client, and its line for the file server.tokens
    Token(TokenArgs),
    /// Checks a receipt against the shop's public key, without the server
    Receipt(ReceiptArgs),
    /// Generates data of any size
    Generate(GenerateArgs),
}

/// Sources of settings, for every command that uses the data folder.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration in TOML [default: quire.toml if it is there]
    #[arg(long, value_name = "FILE", env = "QUIRE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Folder that holds bookstore.db; made with the sample catalogue if absent [default: quire-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Any setting by its name in the configuration, as ledger.commit=each; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Address to listen on: IP:PORT, localhost:PORT, or :PORT for all addresses [default: 127.0.0.1:10086]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Address of the task server [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub tasks_listen: Option<String>,
    /// CSV file with a header row for the record queries
    #[arg(long, value_name = "FILE")]
    pub records_csv: Option<PathBuf>,
    /// Least important messages to log: error, warn, info, debug, trace, off, or a filter such as info,kv=debug
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Format of log lines: text or json
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Stop when a first RPC game has ended
    #[arg(long)]
    pub once: bool,
    /// Run only these services, with commas between: bookstore, kv, records, rpcgame, tasks, web
    #[arg(long, value_name = "SERVICES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Start although exactly so many entries of the bookstore's log are lost, as a refused start says
    #[arg(long, value_name = "ENTRIES")]
    pub accept_loss: Option<u64>,
    /// Print the effective configuration and the source of each value, as `quire config show`, and stop
    #[arg(long)]
    pub print_config: bool,
}

impl ServeArgs {
    /// The flags that stand for a setting.
    pub(crate) fn settings(&self) -> anyhow::Result<Vec<Flag>> {
        let records_csv = self.records_csv.as_ref().map(|path| path.to_string_lossy().into_owned());
        let flags = [
            ("--listen", "server.listen", self.listen.clone()),
            ("--tasks-listen", "tasks.listen", self.tasks_listen.clone()),
            ("--records-csv", "records.csv", records_csv),
            ("--log-level", "log.level", self.log_level.clone()),
            ("--log-format", "log.format", self.log_format.clone()),
            ("--accept-loss", "ledger.accept_loss", self.accept_loss.map(|entries| entries.to_string())),
            ("--once", "rpcgame.once", self.once.then(|| "true".to_owned())),
        ];
        let flags = flags.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?)));
        Ok(flags.chain(self.services()?).collect())
    }

    /// The settings that `--only` stands for.
    fn services(&self) -> anyhow::Result<Vec<Flag>> {
        let keys = SERVICES.iter().filter_map(|entry| entry.enabled);
        let named: Vec<_> = keys.map(|key| (key, key.strip_suffix(".enabled").unwrap_or(key))).collect();
        if let Some(wrong) = self.only.iter().find(|only| named.iter().all(|(_, name)| name != only)) {
            let names: Vec<&str> = named.iter().map(|(_, name)| *name).collect();
            bail!("--only: there is no service '{wrong}'; the services are {}", names.join(", "));
        }
        let named = named.into_iter().filter(|_| !self.only.is_empty());
        Ok(named.map(|(key, name)| ("--only", key, self.only.iter().any(|only| only == name).to_string())).collect())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ConfigCommandArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Checks what `quire serve --config FILE` would read; the exit code is 0 if it is valid, else 2
    Check {
        /// The file
        file: PathBuf,
    },
    /// Prints every setting with its value and its source; secrets are masked
    Show(ConfigArgs),
    /// Prints the page docs/settings.md
    Reference,
    /// Prints a file to edit: every setting with its meaning and default, commented out
    Template,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 healthy; 1 not healthy, and the reason is printed; 2 usage; 3 no answer.")]
pub(crate) struct HealthArgs {
    /// The server: HOST:PORT, a host, or :PORT, with https:// before it for TLS
    #[arg(default_value = "127.0.0.1:10086")]
    pub address: String,
    /// Longest time for the answer
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    pub timeout: Duration,
    #[command(flatten)]
    pub access: AccessArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Keys: q or Escape ends it.

Exit codes: 0 done; 1 refused, for example without a token of the scope admin; 2 usage; 3 unreachable.")]
pub(crate) struct TopArgs {
    /// The server: HOST:PORT, a host, or :PORT, with https:// before it for TLS
    #[arg(default_value = "127.0.0.1:10086")]
    pub address: String,
    /// Print one sample and stop
    #[arg(long)]
    pub once: bool,
    /// Print it as JSON, with the names of proto/operator.proto
    #[arg(long, requires = "once")]
    pub json: bool,
    #[command(flatten)]
    pub access: AccessArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, or with --dry-run possible or done already; 1 not, and the reasons are printed; 2 usage."
)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// The store to copy, as sqlite:quire-data/bookstore.db; no server may have it open
    #[arg(long, value_name = "sqlite:PATH")]
    pub from: String,
    /// The database to copy it into, with no books in it; better in the variable if the URL holds a password
    #[arg(
        long,
        value_name = "postgres://USER@HOST/DATABASE",
        env = "QUIRE_LEDGER_URL",
        hide_env_values = true,
        required_unless_present = "dry_run"
    )]
    pub to: Option<String>,
    /// Print what would be copied, and all that is in the way, or without --to what the next start would migrate;
    /// changes nothing, and a server may sell meanwhile
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub what: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Prints a new token, once, and its line for the file
    New {
        /// Its scopes: shop, kv, records, play, tasks, metrics, admin, with commas between
        #[arg(long, value_name = "SCOPES")]
        scope: String,
        /// Its holder's name, for logs
        #[arg(long, value_name = "NAME", default_value = "client")]
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the log has the entry, and the witnesses have signed it; 1 the receipt does not prove that, and the reason is printed; 2 usage."
)]
pub(crate) struct ReceiptArgs {
    /// The receipt, as `quire client receipt` prints it; - is standard input
    pub file: PathBuf,
    /// The log's public key, NAME+ID+KEY, as the shop publishes it; or a file that holds it
    #[arg(long, value_name = "KEY")]
    pub key: String,
    /// The public key of a witness that must have signed the log with this entry, or a file with it. May be repeated
    #[arg(long, value_name = "KEY")]
    pub witness: Vec<String>,
    /// Print what the receipt shows as JSON
    #[arg(long)]
    pub json: bool,
}

/// Parsed by the client itself, as in its own program.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ClientArgs {
    #[arg(value_name = "WORDS", allow_hyphen_values = true, trailing_var_arg = true)]
    _words: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Commands:
  get KEY            the value; on a terminal escaped, elsewhere as it is
  put KEY [VALUE]    sets the value of a key, new or not
  create KEY [VALUE] sets the value of a new key
  update KEY [VALUE] replaces the value of a key that exists
  delete KEY         removes a key; done as well if there is none
  scan [PREFIX]      keys with a prefix and their values, in the order of the keys
  watch [PREFIX]     changes of keys with a prefix, from now on
A VALUE that is left out comes from --file, or from standard input.
Flags may stand anywhere; what follows -- is no flag.

Exit codes: 0 done; 1 refused by the store, no such key included; 2 usage; 3 unreachable, nothing was sent; 4 the outcome
of a write is unknown: get the key to learn it.")]
pub(crate) struct KvArgs {
    #[command(flatten)]
    pub connection: Connection,
    /// Keys and values are given and printed in hexadecimal
    #[arg(long, conflicts_with = "base64")]
    pub hex: bool,
    /// Keys and values are given and printed in base64
    #[arg(long)]
    pub base64: bool,
    /// File that holds the value, as it is; - is standard input
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Time until the entry expires
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub ttl: Option<Duration>,
    /// Update or delete only an entry with this version
    #[arg(long, value_name = "VERSION")]
    pub expected_version: Option<u64>,
    /// Most entries that a scan shows
    #[arg(long, value_name = "ENTRIES")]
    pub limit: Option<u64>,
    /// Scan keys only
    #[arg(long)]
    pub keys_only: bool,
    /// ADDRESS (as for `quire client`; may be left out), then COMMAND and its arguments
    #[arg(value_name = "ADDRESS COMMAND", required = true, allow_negative_numbers = true)]
    pub words: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = verbs::help())]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub verb: VerbArgs,
}

/// Credentials and TLS for a server that requires them.
#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    /// Token for a server that requires one; the variable hides it from other users of the machine
    #[arg(long, value_name = "TOKEN", env = "QUIRE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Certificates in PEM that vouch for the server's.
    #[arg(long, value_name = "FILE", help = TRUSTED)]
    pub ca: Option<PathBuf>,
    /// Client certificate in PEM, for a server that requires one
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub certificate: Option<PathBuf>,
    /// Private key of --certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ChainArgs {
    /// The task server: HOST:PORT, a host, or :PORT, with https:// before it if it speaks TLS
    #[arg(default_value = "127.0.0.1:8080")]
    pub address: String,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Clients at the same time, each with a connection and a chain
    #[arg(long, value_name = "NUMBER", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub clients: u64,
    /// Requests in a chain
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub requests: u64,
    /// The same seed makes the same chains
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the checksums match; 1 they do not, or the game was not played to its end; 2 usage."
)]
pub(crate) struct GameArgs {
    /// Address of the game: HOST:PORT, a host, or :PORT, with https:// before it for TLS
    /// [default: 127.0.0.1:29381, and 127.0.0.1:29382 for --transport lean]
    #[arg(value_name = "ADDRESS")]
    pub address: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Text file of lines: the name up to the first comma, then the digits of the count; other lines are skipped
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// Number of messages; the lines repeat from the first
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub messages: u64,
    /// Transport of the messages
    #[arg(long, value_name = "HOW", value_enum, default_value = "windowed")]
    pub transport: GameTransport,
    /// Messages in flight at once, 1 for unary [default: windowed grows it from 1 while that raises the rate, up to
    /// 1024 with Quire and 8 with other servers; 65536 stream and lean]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub window: Option<u64>,
    /// Longest time for the whole game
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum GameTransport {
    /// A call for each, one at a time
    Unary,
    /// A call for each, many at a time
    Windowed,
    /// Many per frame of one gRPC stream
    Stream,
    /// The lean protocol over TCP
    Lean,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct ImportArgs {
    /// The file, with the header id,title,topic,stock,price; - is standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Change books that exist, too; shows the changes first; a server may run meanwhile
    #[arg(long, conflicts_with = "no_sample")]
    pub update: bool,
    /// Update without asking; without it, off a terminal nothing is changed
    #[arg(long, requires = "update")]
    pub yes: bool,
    /// Report bad rows and leave them out, instead of importing nothing
    #[arg(long)]
    pub skip_bad: bool,
    /// If the store does not exist yet, create it without the sample catalogue
    #[arg(long)]
    pub no_sample: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Exported {
    /// The catalogue, which import reads
    Books,
    /// The transaction log, newest first
    Log,
    /// Sales by day and book
    Sales,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Contents of the file
    #[arg(value_enum, default_value = "books")]
    pub what: Exported,
    #[command(flatten)]
    pub choice: Choice,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the log or sales as JSON, an object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is acknowledged before the command begins is in the file: every purchase, and every key-value entry that is on
disk. While it is made there must be room for it twice beside it.")]
pub(crate) struct BackupArgs {
    /// The file to write: a tar that only its owner can read
    pub file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Server to take key-value entries from [default: the one that uses the data folder, if there is one]
    #[arg(long, value_name = "ADDRESS")]
    pub server: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The file that backup wrote
    pub file: PathBuf,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A server may sell from the store meanwhile. Nothing is changed; a backup is unpacked beside it, which needs the room.

Exit codes: 0 nothing is wrong; 1 something is, and it is named with what to do; 2 usage; 3 it cannot be read.")]
pub(crate) struct VerifyArgs {
    /// A data folder, a file bookstore.db, or a file that backup wrote [default: the data folder of the settings]
    #[arg(value_name = "FILE|BACKUP")]
    pub file: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    pub what: Generate,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// A catalogue in CSV for `quire import`, on standard output unless --out is given
    Catalogue {
        /// Number of books
        #[arg(long)]
        rows: u64,
        /// The same seed makes the same file
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The first book's id; ids grow from there
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i32).range(1..))]
        first_id: i32,
        /// The file to write
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// A city's parking tickets in CSV, on standard output unless --out is given; locations1 is Jacobs in 0.5% of them
    Records {
        /// Number of tickets
        #[arg(long)]
        rows: u64,
        /// The same seed makes the same file
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The file to write
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}
