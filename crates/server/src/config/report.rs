//! What is told of settings: the values that hold with their sources, and what is wrong with one. Must not know what
//! any one is for.

use figment::{Figment, error::Kind, providers::Serialized, value::Value};
use serde_json::Value as Json;

use super::{
    raw::Raw,
    sources::{self, DEFAULT, did_you_mean, known, nearest, one_of, source_of},
};

/// Never shown: it does not belong into a terminal or a bug report.
const SECRET: &str = "admin.token";

/// Every value and where it came from, as TOML with comments.
pub(super) fn print(figment: &Figment, raw: &Raw) -> anyhow::Result<String> {
    let Json::Object(sections) = serde_json::to_value(raw)? else { anyhow::bail!("settings have sections") };
    let mut parts = Vec::new();
    for (section, values) in sections {
        let mut lines = vec![format!("[{section}]")];
        for (name, value) in values.as_object().into_iter().flatten() {
            let key = format!("{section}.{name}");
            let shown = match value {
                Json::Null => format!("# {name} is not set"),
                _ if key == SECRET => format!("{name} = \"(set)\""),
                Json::Number(number) if number.is_f64() => format!("{name} = {}", number.as_f64().unwrap_or_default()),
                other => format!("{name} = {other}"),
            };
            lines.push(format!("{shown:<40} # {}", source_of(figment, &key)));
        }
        parts.push(lines.join("\n") + "\n");
    }
    Ok(parts.join("\n"))
}

/// A value that cannot be: the setting, the value, its source, and what would be right.
pub(super) fn refused(figment: &Figment, key: &str, value: &str, want: &str) -> String {
    format!("{key} is '{value}', from {}; it must be {want}", source_of(figment, key))
}

/// figment's errors, one line each.
pub(super) fn unreadable(figment: &Figment, errors: figment::Error) -> String {
    errors.into_iter().map(|error| one(figment, &error)).collect::<Vec<_>>().join("; ")
}

fn one(figment: &Figment, error: &figment::Error) -> String {
    let key = error.path.join(".");
    let value = || figment.find_value(&key).map(|value| shown(&key, &value)).unwrap_or_default();
    let bad = |want: String| refused(figment, &key, &value(), &want);
    match &error.kind {
        Kind::UnknownField(name, here) => no_such(figment, &key, name, here),
        Kind::UnknownVariant(name, variants) => {
            let meant = nearest(name, '.', variants.iter().copied());
            let meant = did_you_mean(&meant).map_or(String::new(), |question| format!("; {question}"));
            bad(format!("{}{meant}", one_of(variants)))
        }
        Kind::InvalidType(_, want) | Kind::InvalidValue(_, want) if !key.is_empty() => {
            bad(choices(figment, &key).filter(|_| want.starts_with("enum ")).unwrap_or_else(|| plain(&key, want)))
        }
        kind if !key.is_empty() => format!("{key}: {kind}, from {}", source_of(figment, &key)),
        kind => {
            let source = error.metadata.as_ref().map_or_else(|| DEFAULT.to_owned(), sources::name);
            format!("{source} cannot be read: {}", one_line(&kind.to_string()))
        }
    }
}

/// A name in the file that no setting has.
fn no_such(figment: &Figment, section: &str, name: &str, here: &[&str]) -> String {
    // figment's path may end with the name already.
    let key = match section.rsplit('.').next() {
        Some(last) if last == name || section.is_empty() => if section.is_empty() { name } else { section }.to_owned(),
        _ => format!("{section}.{name}"),
    };
    let source = source_of(figment, &key);
    let known = known().unwrap_or_default();
    if key.contains('.') || known.keys().any(|known| known.ends_with(&format!(".{key}"))) {
        let said = sources::unknown(&key, Some(&source), &known);
        let section = key.split_once('.').map(|(section, _)| format!(" [{section}] has {}", here.join(", ")));
        return said + &section.unwrap_or_default();
    }
    let meant: Vec<_> = nearest(&key, '.', here.iter().copied()).iter().map(|meant| format!("[{meant}]")).collect();
    let meant = did_you_mean(&meant).map_or(String::new(), |question| question + " ");
    format!("there is no setting {key}, from {source}; {meant}the sections are {}", here.join(", "))
}

fn shown(key: &str, value: &Value) -> String {
    match value {
        _ if key == SECRET => "(hidden)".to_owned(),
        Value::String(_, text) => text.clone(),
        Value::Bool(_, is) => is.to_string(),
        // Its kind depends on the source it came from.
        Value::Num(_, number) => {
            let whole = number.to_i128().map(|whole| whole.to_string());
            whole.or(number.to_f64().map(|real| real.to_string())).unwrap_or_default()
        }
        Value::Char(_, one) => one.to_string(),
        Value::Dict(..) => "a section".to_owned(),
        Value::Array(..) => "a list".to_owned(),
        Value::Empty(..) => String::new(),
    }
}

/// serde's words in ours.
fn plain(key: &str, want: &str) -> String {
    match want {
        "u64" | "u32" | "usize" => "a whole number, 0 or more".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "path string" => "text, in quotes".to_owned(),
        want if want.starts_with("struct ") => format!("a section, as [{key}]"),
        want => want.replace('`', ""),
    }
}

/// The names that a setting with a choice of some takes; it is asked with text that is none of them.
fn choices(figment: &Figment, key: &str) -> Option<String> {
    let asked = figment.clone().merge(Serialized::default(key, ""));
    match asked.extract::<Raw>().err()?.kind {
        Kind::UnknownVariant(_, names) => Some(one_of(names)),
        _ => None,
    }
}

/// The TOML reader draws a picture of several lines.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains('|'));
    lines.collect::<Vec<_>>().join("; ")
}
