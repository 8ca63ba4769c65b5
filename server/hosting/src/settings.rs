//! Settings: each is read in one line with its name, default and bounds. Sizes and times have units: `64 MiB`, `500ms`,
//! or a plain number of bytes or seconds.

use std::{
    collections::BTreeMap,
    fmt,
    fmt::Display,
    ops::RangeInclusive,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use quire_net::Live;

use crate::{
    access::Scope,
    address,
    names::{did_you_mean, nearest, one_of},
    ports::{Port, Wanted},
};

/// A value from a file, a variable or a flag.
#[derive(Clone, Debug)]
pub struct Given {
    /// The value as written.
    pub text: String,
    /// The source gave text, or does not distinguish text from numbers.
    pub is_text: bool,
    /// The value's source, for errors.
    pub source: String,
}

/// Given values by setting name: `section.key`.
pub type Layers = BTreeMap<String, Given>;

/// The source of default values.
const DEFAULT: &str = "default";

/// An invalid value.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    /// The setting to change.
    pub key: String,
    /// The setting, the value, its source and a valid form.
    pub text: String,
}

/// Numbers that a SIGHUP changes, by the name of their setting.
pub type Numbers = BTreeMap<&'static str, Live>;

/// Names of settings, each with its meaning in the reference.
pub type Meanings = &'static [(&'static str, &'static str)];

/// A setting as declared by the code that reads it.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The effective value as TOML; `None` for a setting without a value.
    pub value: Option<String>,
    /// Type, unit and bounds, in Markdown.
    pub kind: String,
    /// True if it, or the file that it names, is read again at each SIGHUP.
    pub is_reloaded: bool,
}

/// A setting of a running server.
#[derive(Clone, Debug)]
pub struct InForce {
    /// Its name, `section.key`.
    pub key: &'static str,
    /// The effective value as TOML, secrets masked; `None` for a setting without a value.
    pub value: Option<String>,
    /// The value's source.
    pub source: String,
    /// Type, unit and bounds, in Markdown.
    pub kind: String,
    /// Its meaning in the reference, in Markdown.
    pub meaning: &'static str,
    /// True if it, or the file that it names, is read again at each SIGHUP.
    pub is_reloaded: bool,
}

/// Every setting of a running server, in the order of names; clones see the same changes.
#[derive(Clone, Debug, Default)]
pub struct SettingsInForce(Arc<RwLock<Arc<[InForce]>>>);

impl SettingsInForce {
    /// The settings now.
    pub fn now(&self) -> Arc<[InForce]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the values of `read` for which `takes` returns true; returns all that differ, with whether they were
    /// taken.
    pub fn change(&self, read: &Self, takes: impl Fn(&str) -> bool) -> Vec<(InForce, bool)> {
        let (before, read) = (self.now(), read.now());
        let mut changes = Vec::new();
        let change = |(old, new): (&InForce, &InForce)| {
            let is_taken = old.value == new.value || takes(new.key);
            if old.value != new.value {
                changes.push((new.clone(), is_taken));
            }
            if is_taken { new.clone() } else { old.clone() }
        };
        let now = before.iter().zip(read.iter()).map(change).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = now;
        changes
    }
}

/// Settings that are read together.
pub trait Settings: Sized + Send + 'static {
    /// Meaning of each setting.
    const MEANINGS: Meanings;

    /// Reads every setting.
    fn read(from: &mut Reader<'_>) -> Result<Self, Refused>;
}

/// The default settings.
pub fn defaults<S: Settings>() -> S {
    match S::read(&mut Reader::new(&Layers::new())) {
        Ok(settings) => settings,
        Err(refused) => panic!("a default is out of bounds: {refused}"),
    }
}

/// Reads settings, and records each with its effective value.
#[derive(Debug)]
pub struct Reader<'a> {
    given: &'a Layers,
    declared: BTreeMap<&'static str, Setting>,
    meanings: BTreeMap<&'static str, &'static str>,
    ports: Vec<(&'static str, Port)>,
    connections: Wanted,
    live: Numbers,
    is_tls: bool,
    has_tokens: bool,
    /// Memory limit of the process.
    memory_bytes: usize,
    open: Vec<Scope>,
    /// A service that other machines could use without a credential.
    exposed: Option<Refused>,
    warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    /// A reader of these values.
    pub fn new(given: &'a Layers) -> Self {
        Self {
            given,
            declared: BTreeMap::new(),
            meanings: BTreeMap::new(),
            ports: Vec::new(),
            connections: Vec::new(),
            live: Numbers::new(),
            is_tls: false,
            has_tokens: false,
            memory_bytes: usize::MAX,
            open: Vec::new(),
            exposed: None,
            warnings: Vec::new(),
        }
    }

    /// Every setting read so far.
    pub fn declared(&self) -> &BTreeMap<&'static str, Setting> {
        &self.declared
    }

    /// Every setting read so far, with its value and source.
    pub fn in_force(&self) -> SettingsInForce {
        let shown = |(key, setting): (&&'static str, &Setting)| InForce {
            key,
            value: setting.value.clone(),
            source: self.source(key).to_owned(),
            kind: setting.kind.clone(),
            meaning: self.meanings.get(key).copied().unwrap_or_default(),
            is_reloaded: setting.is_reloaded,
        };
        SettingsInForce(Arc::new(RwLock::new(self.declared.iter().map(shown).collect())))
    }

    /// Adds meanings of settings.
    pub fn describe(&mut self, meanings: Meanings) {
        self.meanings.extend(meanings.iter().copied());
    }

    /// Every meaning added so far.
    pub fn meanings(&self) -> &BTreeMap<&'static str, &'static str> {
        &self.meanings
    }

    /// Sets TLS, for readers of later settings.
    pub fn set_tls(&mut self, is_tls: bool) {
        self.is_tls = is_tls;
    }

    /// True if the server serves TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Sets `limits.memory_bytes`, for readers of later settings.
    pub fn set_memory(&mut self, bytes: usize) {
        self.memory_bytes = bytes;
    }

    /// A line for each value that is not used as given.
    pub fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// The source of a value.
    pub fn source(&self, key: &str) -> &str {
        self.given.get(key).map_or(DEFAULT, |given| &given.source)
    }

    /// Error for an invalid value. `want` completes "it must be".
    pub fn refuse(&self, key: &str, value: impl Display, want: impl Display) -> Refused {
        let text = format!("{key} is '{value}', from {}; it must be {want}", self.source(key));
        Refused { key: key.to_owned(), text }
    }

    /// Sets whether every scope has credentials, for readers of later settings.
    pub fn set_tokens(&mut self, has_tokens: bool) {
        self.has_tokens = has_tokens;
    }

    /// Reads the setting that opens `scope` to everyone.
    pub fn read_open(&mut self, scope: Scope) -> Result<bool, Refused> {
        self.meanings.extend(scope.open_setting().map(|key| (key, OPEN)));
        let is_open = scope.open_setting().map_or(Ok(false), |key| self.switch(key, false))?;
        self.open.extend(is_open.then_some(scope));
        Ok(is_open)
    }

    /// True if `scope` is open to everyone.
    pub fn is_open(&self, scope: Scope) -> bool {
        self.open.contains(&scope)
    }

    /// The scopes that are open to everyone.
    pub fn open_scopes(&self) -> Vec<Scope> {
        self.open.clone()
    }

    /// Notes a service that other machines could use without a credential. Its ports were read since `before`; the main
    /// port was read first.
    pub(crate) fn note_if_exposed(&mut self, before: (usize, usize), on_main: bool, scope: Scope) {
        if self.exposed.is_some() || self.has_tokens || self.open.contains(&scope) {
            return;
        }
        let main = self.ports.first().filter(|_| on_main && before.0 > 0);
        let reached =
            main.into_iter().chain(&self.ports[before.0..]).find(|(_, port)| !port.address.ip().is_loopback());
        let Some((key, port)) = reached else { return };
        let open = scope.open_setting().unwrap_or_default();
        let text = format!(
            "{key} is '{}', from {}, so that other machines could use {scope} without a credential: name a file of \
             credentials in server.tokens (`quire token new --scope {scope}` makes its lines), or set {open}=true to let \
             everyone in",
            port.address,
            self.source(key)
        );
        self.exposed = Some(Refused { key: (*key).to_owned(), text });
    }

    /// Refuses services that other machines could use without a credential.
    pub fn refuse_exposed(&mut self) -> Result<(), Refused> {
        self.exposed.take().map_or(Ok(()), Err)
    }

    /// Number of ports and connection limits read so far.
    pub(crate) fn taken(&self) -> (usize, usize) {
        (self.ports.len(), self.connections.len())
    }

    /// Rolls back to these numbers: the service is off.
    pub(crate) fn roll_back_to(&mut self, (ports, connections): (usize, usize)) {
        self.ports.truncate(ports);
        self.connections.truncate(connections);
    }

    /// A port's connection limit; see [`Connections`](crate::Connections) for the granted number.
    pub fn connections(&mut self, key: &'static str, default: usize) -> Result<Live, Refused> {
        let most = self.live(key, default, 1..=1 << 20)?;
        self.connections.push((key, most.get()));
        Ok(most)
    }

    /// Applies the main port's limit to another port; `name` is for [`Connections`](crate::Connections) and logs.
    pub fn connections_again(&mut self, name: &'static str) {
        let most = self.connections.first().map(|(_, most)| (name, *most));
        self.connections.extend(most);
    }

    /// The connection limits that are set. The others are defaults, which may adapt silently.
    pub fn connections_set(&self) -> Wanted {
        // A port that shares a setting has its own name after the setting's.
        let setting = |name: &'static str| name.split(',').next().unwrap_or(name);
        self.connections.iter().filter(|(name, _)| self.given.get(setting(name)).is_some()).copied().collect()
    }

    /// All connection limits.
    pub fn connections_wanted(&self) -> Wanted {
        self.connections.clone()
    }

    /// Refuses two services on one port. A default port may collide: the service then goes without it.
    pub fn ports_differ(&self) -> Result<(), Refused> {
        for (place, (later, there)) in self.ports.iter().enumerate() {
            for (earlier, here) in &self.ports[..place] {
                let (one, other) = (here.address, there.address);
                let meet = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
                if one.port() == other.port() && one.port() != 0 && meet && there.is_named {
                    let want = format!("a port of its own: {earlier} is '{one}', from {}", self.source(earlier));
                    return Err(self.refuse(later, other, want));
                }
            }
        }
        Ok(())
    }

    /// The given value, or the default; an error of `parse` is the valid form.
    fn read<T>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl FnOnce(&Given) -> Result<T, String>,
        toml: impl FnOnce(&T) -> Option<String>,
    ) -> Result<T, Refused> {
        let value = match self.given.get(key) {
            None => default,
            Some(given) => parse(given).map_err(|want| self.refuse(key, &given.text, want))?,
        };
        self.declared.entry(key).or_default().value = toml(&value);
        Ok(value)
    }

    /// Records type, unit and bounds of a setting.
    fn declare(&mut self, key: &'static str, kind: impl Into<String>) {
        self.declared.entry(key).or_default().kind = kind.into();
    }

    /// `true` or `false`.
    pub fn switch(&mut self, key: &'static str, default: bool) -> Result<bool, Refused> {
        self.declare(key, "`true` or `false`");
        let parse = |given: &Given| given.text.parse().map_err(|_| "true or false".to_owned());
        self.read(key, default, parse, |value| Some(value.to_string()))
    }

    /// A whole number within bounds.
    pub fn whole(&mut self, key: &'static str, default: usize, bounds: RangeInclusive<u64>) -> Result<usize, Refused> {
        let want = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        self.declare(key, format!("whole number, {} to {}", bounds.start(), bounds.end()));
        let parse = |given: &Given| given.text.trim().parse().map_err(|_| want.clone());
        let value = self.read(key, wide(default), parse, |value| Some(value.to_string()))?;
        fitting(value, &bounds).ok_or_else(|| self.refuse(key, value, want))
    }

    /// As [`Reader::whole`], of a number that a SIGHUP changes.
    pub fn live(&mut self, key: &'static str, default: usize, bounds: RangeInclusive<u64>) -> Result<Live, Refused> {
        let number = Live::from(self.whole(key, default, bounds)?);
        self.mark_reloaded(key);
        self.live.insert(key, number.clone());
        Ok(number)
    }

    /// Every number read so far that a SIGHUP changes.
    pub fn live_numbers(&self) -> Numbers {
        self.live.clone()
    }

    /// A whole number without a default.
    pub fn whole_if_set(&mut self, key: &'static str) -> Result<Option<u64>, Refused> {
        self.declare(key, "whole number");
        let parse = |given: &Given| given.text.trim().parse().map(Some).map_err(|_| "a whole number".to_owned());
        self.read(key, None, parse, |value: &Option<u64>| value.map(|value| value.to_string()))
    }

    /// As [`Reader::whole`] with 0, the default, for the number of cores.
    pub fn cores(&mut self, key: &'static str) -> Result<usize, Refused> {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let number = self.whole(key, 0, 0..=1024)?;
        self.declare(key, "whole number, 0 to 1024; 0 is the number of cores");
        Ok(match number {
            0 => cores(),
            number => number,
        })
    }

    /// A size within bounds, in bytes.
    pub fn bytes(&mut self, key: &'static str, default: usize, bounds: RangeInclusive<u64>) -> Result<usize, Refused> {
        let parse = |given: &Given| {
            let want = || "a size, as 64 MiB, 512 kB or a whole number of bytes".to_owned();
            Bytes::parse(&given.text).ok_or_else(want)
        };
        let toml = |value: &Bytes| {
            let shown = value.to_string();
            Some(if shown.ends_with('B') { quoted(&shown) } else { shown })
        };
        let value = self.read(key, Bytes(wide(default)), parse, toml)?;
        let want = || format!("a size from {} to {}", Bytes(*bounds.start()), Bytes(*bounds.end()));
        self.declare(key, format!("size, {} to {}", Bytes(*bounds.start()), Bytes(*bounds.end())));
        fitting(value.0, &bounds).ok_or_else(|| self.refuse(key, value, want()))
    }

    /// As [`Reader::bytes`], for data that a service keeps in memory: at most `1 / parts` of what the process may hold,
    /// so that the other services have the rest. The default follows silently, a value that is given with a warning.
    pub fn bytes_of_memory(
        &mut self,
        key: &'static str,
        default: usize,
        bounds: RangeInclusive<u64>,
        parts: usize,
    ) -> Result<usize, Refused> {
        let part = self.memory_bytes / parts;
        let value = self.bytes(key, default.min(part).max(fitting(*bounds.start(), &bounds).unwrap_or(0)), bounds)?;
        if value <= part || !self.given.contains_key(key) {
            return Ok(value);
        }
        self.warnings.push(format!(
            "{key} is {}, from {}, but it may have one part in {parts} of limits.memory_bytes, which is {}: {} are used; \
             lower the setting or raise limits.memory_bytes",
            Bytes(wide(value)),
            self.source(key),
            Bytes(wide(self.memory_bytes)),
            Bytes(wide(part))
        ));
        self.declared.entry(key).or_default().value = Some(part.to_string());
        Ok(part)
    }

    /// A time above 0, in seconds or with a unit.
    pub fn seconds(&mut self, key: &'static str, default: Duration) -> Result<Duration, Refused> {
        self.declare(key, "time above 0, up to 86400 s");
        let parse = |given: &Given| seconds(&given.text).ok_or_else(|| "a time, as 10, 0.5, 500ms or 2min".to_owned());
        let value = self.read(key, default.as_secs_f64(), parse, |value| Some(value.to_string()))?;
        duration(value).ok_or_else(|| self.refuse(key, value, TIME))
    }

    /// A time within bounds, in milliseconds.
    pub fn milliseconds(
        &mut self,
        key: &'static str,
        default: usize,
        bounds: RangeInclusive<u64>,
    ) -> Result<Duration, Refused> {
        let value = self.whole(key, default, bounds.clone())?;
        self.declare(key, format!("milliseconds, {} to {}", bounds.start(), bounds.end()));
        Ok(Duration::from_millis(wide(value)))
    }

    /// A share, from 0 to 1.
    pub fn share(&mut self, key: &'static str, default: f64) -> Result<f64, Refused> {
        self.declare(key, "0 to 1");
        let parse = |given: &Given| {
            let share = given.text.trim().parse().ok().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or_else(|| "a number from 0 to 1".to_owned())
        };
        self.read(key, default, parse, |value| Some(value.to_string()))
    }

    /// One of these names; the first is the default.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Result<T, Refused> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        self.declare(key, one_of(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>()));
        let parse = |given: &Given| {
            let found = names.iter().position(|name| *name == given.text);
            let meant = did_you_mean(&nearest(&given.text, '.', names.iter().copied()));
            found.ok_or_else(|| one_of(&names) + &meant.map_or(String::new(), |question| format!("; {question}")))
        };
        let place = self.read(key, 0, parse, |place| Some(quoted(names[*place])))?;
        Ok(choices[place].1)
    }

    /// Text.
    pub fn text(&mut self, key: &'static str, default: &str) -> Result<String, Refused> {
        self.declare(key, "text");
        self.read(key, default.to_owned(), text, |value| Some(quoted(value)))
    }

    /// Items separated by commas; none by default.
    pub fn list(&mut self, key: &'static str) -> Result<Vec<String>, Refused> {
        let items = |written: &str| written.split(',').map(str::trim).map(str::to_owned).collect::<Vec<_>>();
        let parse = |given: &Given| {
            let written = text(given).map_err(|_| LIST.to_owned())?;
            Ok(if written.trim().is_empty() { Vec::new() } else { items(&written) })
        };
        self.declare(key, "list, with commas between items");
        self.read(key, Vec::new(), parse, |items| (!items.is_empty()).then(|| quoted(&items.join(", "))))
    }

    /// Text or digits without a default. Never shown.
    pub fn secret(&mut self, key: &'static str) -> Result<Option<String>, Refused> {
        let given = self.given.get(key);
        let is_wrong = |given: &Given| !given.is_text && !given.text.bytes().all(|byte| byte.is_ascii_digit());
        if given.is_some_and(is_wrong) {
            return Err(self.refuse(key, HIDDEN, TEXT));
        }
        let value = given.map(|given| given.text.clone());
        self.declare(key, "text, never shown");
        self.declared.entry(key).or_default().value = value.as_ref().map(|_| quoted("(set)"));
        Ok(value)
    }

    /// As [`Reader::path`], of a file that is read again at each SIGHUP.
    pub fn reloaded_path(&mut self, key: &'static str) -> Result<Option<PathBuf>, Refused> {
        self.mark_reloaded(key);
        self.path(key)
    }

    /// Marks a setting that a SIGHUP reads again.
    pub fn mark_reloaded(&mut self, key: &'static str) {
        self.declared.entry(key).or_default().is_reloaded = true;
    }

    /// A path without a default.
    pub fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>, Refused> {
        self.declare(key, "path");
        let value = self.read(key, None, |given| text(given).map(Some), |value| value.as_deref().map(quoted))?;
        Ok(value.map(PathBuf::from))
    }

    /// A listening address; the default is a loopback port.
    pub fn port(&mut self, key: &'static str, usual: u16) -> Result<Port, Refused> {
        let written = self.text(key, &format!("127.0.0.1:{usual}"))?;
        self.declare(key, "address");
        let address = address::listening(&written, usual).map_err(|wrong| self.refuse(key, &written, wrong.want))?;
        let port = Port { address, is_named: self.given.contains_key(key) };
        self.ports.push((key, port));
        Ok(port)
    }

    /// As [`Reader::port`]; `None` if empty.
    pub fn port_or_none(&mut self, key: &'static str, usual: u16) -> Result<Option<Port>, Refused> {
        if self.given.get(key).is_some_and(|given| given.text.is_empty()) {
            return self.text(key, "").map(|_| None);
        }
        let port = self.port(key, usual).map(Some);
        self.declare(key, "address, or empty for none");
        port.map_err(|refused| Refused { text: format!("{refused}, or empty for no port"), ..refused })
    }
}

/// Meaning of the setting that opens a scope.
const OPEN: &str = "`true`: everyone is admitted without a credential";

/// Shown instead of a secret.
const HIDDEN: &str = "(hidden)";

const TEXT: &str = "text, in quotes";
const LIST: &str = "text, in quotes, with commas between items";

fn text(given: &Given) -> Result<String, String> {
    if given.is_text { Ok(given.text.clone()) } else { Err(TEXT.to_owned()) }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn fitting(value: u64, bounds: &RangeInclusive<u64>) -> Option<usize> {
    usize::try_from(value).ok().filter(|_| bounds.contains(&value))
}

/// Units of sizes, the largest first; each pair has the binary and the decimal unit.
const UNITS: [(&str, u64); 10] = [
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Parses a size; `None` if invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale = match unit.trim_start() {
            "" | "B" | "b" => 1,
            unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1,
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Self);
        }
        // A fraction is valid if it makes whole bytes.
        let (whole, fraction) = number.split_once('.')?;
        let places = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let parts = scale.checked_mul(fraction.parse().ok()?)?;
        let rest = parts.is_multiple_of(places).then_some(parts / places)?;
        whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(rest).map(Self)
    }
}

/// In the largest binary unit without a fraction.
impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, scale): &&(&str, u64)| scale.is_power_of_two() && self.0 > 0 && self.0.is_multiple_of(*scale);
        match UNITS.iter().find(fits) {
            Some((name, scale)) => write!(f, "{} {name}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Longest time in settings and flags.
const SECONDS_MAX: f64 = 86_400.0;

/// Valid times, for errors.
const TIME: &str = "a time above 0 and up to 86400 s, as 5, 0.5, 500ms or 2min";

/// Parses seconds, as a number or with a unit.
fn seconds(text: &str) -> Option<f64> {
    let plain = text.trim().parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    plain.or_else(|| humantime::parse_duration(text.trim()).ok().map(|time| time.as_secs_f64()))
}

/// A time above 0 and up to the limit.
fn duration(seconds: f64) -> Option<Duration> {
    (seconds > 0.0 && seconds <= SECONDS_MAX).then(|| Duration::from_secs_f64(seconds))
}

/// Parses a flag's time above 0.
pub fn time(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(duration).ok_or_else(|| format!("'{text}' is no time; it must be {TIME}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(key: &str, text: &str) -> Layers {
        Layers::from([(key.to_owned(), Given { text: text.to_owned(), is_text: true, source: "--set".to_owned() })])
    }

    #[track_caller]
    fn refused<T: fmt::Debug>(read: Result<T, Refused>, said: &str) {
        assert_eq!(read.expect_err("a refusal").to_string(), said);
    }

    #[test]
    fn what_is_not_given_has_its_default_and_is_shown_with_that_source() {
        let nothing = Layers::new();
        let mut from = Reader::new(&nothing);
        assert_eq!(from.bytes("a.size", 64 << 20, 1..=1 << 30).unwrap(), 64 << 20);
        assert_eq!(from.seconds("a.time", Duration::from_millis(1500)).unwrap(), Duration::from_millis(1500));
        assert_eq!(from.choice("a.mode", &[("one", 1), ("two", 2)]).unwrap(), 1);
        assert_eq!(from.path("a.file").unwrap(), None);
        assert_eq!(from.list("a.names").unwrap(), [""; 0]);
        let shown: Vec<_> =
            from.declared().values().map(|setting| setting.value.as_deref().unwrap_or("none")).collect();
        assert_eq!((shown, from.source("a.size")), (vec!["none", "\"one\"", "none", "\"64 MiB\"", "1.5"], "default"));
    }

    #[test]
    fn a_value_out_of_bounds_or_of_another_kind_is_refused_with_what_would_be_right() {
        let whole = |text| Reader::new(&given("a.b", text)).whole("a.b", 1, 1..=9);
        assert_eq!((whole("1").unwrap(), whole("9").unwrap()), (1, 9));
        for text in ["0", "10", "many"] {
            refused(whole(text), &format!("a.b is '{text}', from --set; it must be a whole number from 1 to 9"));
        }
        let modes = [("group", 1), ("each", 2)];
        let said = "a.b is 'grup', from --set; it must be group or each; did you mean group?";
        refused(Reader::new(&given("a.b", "grup")).choice("a.b", &modes), said);
        let said = "a.b is '2 KiB', from --set; it must be a size from 0 to 1 KiB";
        refused(Reader::new(&given("a.b", "2048")).bytes("a.b", 1, 0..=1024), said);
    }

    #[test]
    fn data_in_memory_has_a_part_of_what_the_process_may_hold() {
        let read = |layers: &Layers| {
            let mut from = Reader::new(layers);
            from.set_memory(200);
            let bytes = from.bytes_of_memory("a.b", 1000, 1..=9999, 2).unwrap();
            (bytes, from.declared()["a.b"].value.clone().unwrap(), from.warnings().concat())
        };
        assert_eq!(read(&Layers::new()), (100, "100".to_owned(), String::new()));
        assert_eq!(read(&given("a.b", "70")), (70, "70".to_owned(), String::new()));
        let said = "a.b is 500, from --set, but it may have one part in 2 of limits.memory_bytes, which is 200: 100 are \
                    used; lower the setting or raise limits.memory_bytes";
        assert_eq!(read(&given("a.b", "500")), (100, "100".to_owned(), said.to_owned()));
    }

    #[test]
    fn a_list_has_commas_between_its_items() {
        let list = |text| Reader::new(&given("a.b", text)).list("a.b").unwrap();
        assert_eq!(list(" one,two , three"), ["one", "two", "three"]);
        assert_eq!((list(""), list("one,")), (vec![], vec!["one".to_owned(), String::new()]));
    }

    #[test]
    fn two_named_services_on_one_port_are_refused_and_a_default_port_is_not() {
        let (named, nothing) = (given("b.listen", ":80"), Layers::new());
        let mut from = Reader::new(&named);
        from.port("a.listen", 80).unwrap();
        assert_eq!(from.port_or_none("b.listen", 81).unwrap().map(|port| port.is_named), Some(true));
        assert!(from.ports_differ().unwrap_err().to_string().contains("a port of its own: a.listen is '127.0.0.1:80'"));
        let mut from = Reader::new(&nothing);
        from.port("a.listen", 80).unwrap();
        from.port("b.listen", 80).unwrap();
        from.ports_differ().unwrap();
        assert_eq!(Reader::new(&given("b.listen", "")).port_or_none("b.listen", 81).unwrap(), None);
    }

    #[test]
    fn sizes_are_read_with_units_of_1024_and_of_1000_and_without() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096 B", 4096),
            ("1 GiB", 1 << 30),
            ("64MiB", 64 << 20),
            ("64mib", 64 << 20),
            ("512 kB", 512_000),
            ("1.5 KiB", 1536),
            (" 2 GB ", 2_000_000_000),
        ] {
            assert_eq!(Bytes::parse(text), Some(Bytes(bytes)), "{text}");
        }
        for text in ["", "MiB", "64M", "-1", "1.0001 KiB", "1 . 5 KiB", "one", "99999999 PiB", "1e3", "."] {
            assert_eq!(Bytes::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_is_shown_as_it_can_be_read() {
        for (bytes, shown) in [(0, "0"), (256, "256"), (16_384, "16 KiB"), (4 << 20, "4 MiB"), (60_000, "60000")] {
            assert_eq!(Bytes(bytes).to_string(), shown);
            assert_eq!(Bytes::parse(shown), Some(Bytes(bytes)));
        }
    }

    #[test]
    fn times_are_read_in_seconds_or_with_a_unit() {
        for (text, time) in
            [("10", 10.0), ("0.5", 0.5), ("500ms", 0.5), ("2min", 120.0), ("1m 30s", 90.0), ("10 s", 10.0)]
        {
            assert_eq!(seconds(text), Some(time), "{text}");
        }
        for text in ["", "soon", "NaN", "inf", "5 parsecs"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        assert!(time("0").is_err() && time("-1").is_err() && time("25h").is_err() && time("24h").is_ok());
    }

    #[test]
    fn a_share_is_from_0_to_1() {
        let shares = [("0", Some(0.0)), ("1", Some(1.0)), ("0.25", Some(0.25)), ("1.1", None), ("-0.1", None)];
        for (text, expected) in shares.into_iter().chain([("NaN", None), ("half", None)]) {
            assert_eq!(Reader::new(&given("a.b", text)).share("a.b", 0.5).ok(), expected, "{text}");
        }
    }
}
