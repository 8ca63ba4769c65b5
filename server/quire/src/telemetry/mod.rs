//! Logs on standard error.

mod calls;
mod lines;
mod repeats;

use anyhow::Context;
use tracing_subscriber::{
    Registry, field::MakeExt as _, filter::Targets, fmt, layer::SubscriberExt as _, reload,
    util::SubscriberInitExt as _,
};

use self::lines::Lines;
pub(crate) use self::{
    calls::{CallLog, Calls, HttpReport, Outcomes},
    lines::{flush, share_terminal, take_terminal_back},
    repeats::{show_left_out, show_left_out_now},
};

/// Log filter and format.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub filter: String,
    pub json: bool,
    pub calls: Calls,
}

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Valid filters; completes "it must be".
const WANT: &str = "error, warn, info, debug, trace or off, or a filter such as info,kv=debug";

/// Checks that [`init`] can parse a filter; the error names valid ones.
///
/// The filter parser takes a word that is no level for a module name, and then logs only that module.
pub(crate) fn check(filter: &str) -> Result<(), &'static str> {
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let mut parts = filter.split(',');
    let is_of_module = |part: &str| {
        let is_in_path = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
        part.split_once('=').is_some_and(|(module, _)| module.chars().all(is_in_path))
    };
    let known = parts.all(|part| is_level(part) || is_of_module(part));
    if known && filter.parse::<Targets>().is_ok() { Ok(()) } else { Err(WANT) }
}

/// The filter of the log, to change it.
pub(crate) struct Filter(reload::Handle<Targets, Registry>);

impl Filter {
    pub(crate) fn set(&self, filter: &str) -> anyhow::Result<()> {
        Ok(self.0.reload(parse(filter)?)?)
    }
}

fn parse(filter: &str) -> anyhow::Result<Targets> {
    filter.parse().with_context(|| format!("log.level must be {WANT}"))
}

/// Starts logging; once in a process.
pub(crate) fn init(log: &Log) -> anyhow::Result<Filter> {
    let (filter, handle) = reload::Layer::new(parse(&log.filter)?);
    let is_json = log.json;
    lines::start(is_json).context("cannot start the thread of the log")?;
    let writer = move || Lines { is_json };
    // A line that cannot be written is lost: reporting it on standard error would panic.
    let lines = fmt::layer().with_writer(writer).log_internal_errors(false);
    if is_json {
        tracing_subscriber::registry().with(filter).with(lines.json()).with(repeats::Bounded).init();
    } else {
        let fields = fmt::format::debug_fn(lines::field).delimited(" ");
        let lines = lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).fmt_fields(fields);
        tracing_subscriber::registry().with(filter).with(lines).with(repeats::Bounded).init();
    }
    Ok(Filter(handle))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_level_is_one_of_six_or_belongs_to_a_module() {
        for filter in ["error", "WARN", "off", "info,kv=debug", "quire=trace", "warn,quire_rpc::server=debug"] {
            assert_eq!(check(filter), Ok(()), "{filter}");
        }
        for filter in
            ["", "loud", "info,loud", "kv", "kv=loud", "lo=ud=er", "3", "info,", "info, kv=debug", "[call]=debug"]
        {
            assert!(check(filter).is_err(), "{filter}");
        }
    }
}
