//! A call's place in a distributed trace, as clients and servers pass it on.
//!
//! Implements: W3C Trace Context, sections 3.2 and 3.3.

use std::fmt;

use crate::envelope::Request;

/// Most members of `tracestate`.
const MEMBERS_MAX: usize = 32;

/// A span of a trace: the one that a call came from, or the call's own.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span.
    pub span_id: [u8; 8],
    /// True if the caller may have recorded it.
    pub is_sampled: bool,
    state: String,
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({}, {:?})", self.traceparent(), self.state)
    }
}

impl TraceContext {
    /// A sampled span that begins a trace.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8]) -> Self {
        Self { trace_id, span_id, is_sampled: true, state: String::new() }
    }

    /// Another sampled span of the trace.
    #[must_use]
    pub fn child(&self, span_id: [u8; 8]) -> Self {
        Self { span_id, is_sampled: true, ..self.clone() }
    }

    /// Parses the field `traceparent`, of version 00 or what is known of a later one.
    pub fn parse(traceparent: &[u8]) -> Option<Self> {
        let (fields, rest) = traceparent.split_at_checked(55)?;
        let is_version = if fields.starts_with(b"00") { rest.is_empty() } else { matches!(rest, [] | [b'-', ..]) };
        if !is_version || [2, 35, 52].iter().any(|dash| fields[*dash] != b'-') {
            return None;
        }
        let [version] = hex(&fields[..2])?;
        let (trace_id, span_id, [flags]) = (hex(&fields[3..35])?, hex(&fields[36..52])?, hex(&fields[53..])?);
        let is_valid = version != 0xff && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then(|| Self { is_sampled: flags & 1 == 1, ..Self::new(trace_id, span_id) })
    }

    /// Reads a request's fields; `None` without one valid `traceparent`.
    pub fn of_fields<'a, I: Iterator<Item = (&'a [u8], &'a [u8])>>(fields: impl Fn() -> I) -> Option<Self> {
        Some(Self::parent(fields())?.with_state(fields()))
    }

    /// The only `traceparent`, without `tracestate`.
    pub(crate) fn parent<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Self> {
        let mut parents = fields.filter(|(name, _)| *name == b"traceparent");
        let (_, parent) = parents.next()?;
        Self::parse(parent).filter(|_| parents.next().is_none())
    }

    /// The same span with all `tracestate`, if it is valid.
    pub(crate) fn with_state<'a>(mut self, fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let states = fields.filter(|(name, _)| *name == b"tracestate").map(|(_, value)| str::from_utf8(value));
        self.state = states.collect::<Result<Vec<_>, _>>().ok().and_then(|states| joined(&states)).unwrap_or_default();
        self
    }

    /// The field `traceparent`.
    pub fn traceparent(&self) -> String {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(self.is_sampled))
    }

    /// The field `tracestate`; empty if the call has none.
    pub fn tracestate(&self) -> &str {
        &self.state
    }
}

/// Bytes of lower-case hexadecimal digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The members of all `tracestate` fields; `None` if one is invalid or repeated, or there are too many.
fn joined(states: &[&str]) -> Option<String> {
    let members = || states.iter().flat_map(|state| state.split(',')).map(|member| member.trim_matches([' ', '\t']));
    let mut keys = Vec::new();
    let mut all = Vec::new();
    for member in members().filter(|member| !member.is_empty()) {
        let (key, value) = member.split_once('=')?;
        if !is_key(key) || !is_value(value) || keys.contains(&key) || keys.len() == MEMBERS_MAX {
            return None;
        }
        keys.push(key);
        all.push(member);
    }
    Some(all.join(","))
}

fn is_key(key: &str) -> bool {
    let is_part = |part: &str, bytes_max: usize| {
        let is_legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte);
        (1..=bytes_max).contains(&part.len()) && part.bytes().all(is_legal)
    };
    let begins_with_letter = |part: &str| part.starts_with(|first: char| first.is_ascii_lowercase());
    match key.split_once('@') {
        None => begins_with_letter(key) && is_part(key, 256),
        Some((tenant, system)) => {
            let begins = begins_with_letter(tenant) || tenant.starts_with(|first: char| first.is_ascii_digit());
            begins && is_part(tenant, 241) && begins_with_letter(system) && is_part(system, 14)
        }
    }
}

fn is_value(value: &str) -> bool {
    let is_legal = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=';
    (1..=256).contains(&value.len()) && !value.ends_with(' ') && value.bytes().all(is_legal)
}

impl<T> Request<T> {
    /// The span of a received call: its own if the server's observer traces it, else the caller's.
    pub fn trace(&self) -> Option<TraceContext> {
        let own = self.extensions().get().cloned();
        own.or_else(|| TraceContext::of_fields(|| self.metadata().wire().map(|field| (field.name(), field.value()))))
    }

    /// Makes the call part of a trace, below this span.
    pub fn set_trace(&mut self, trace: &TraceContext) {
        let metadata = self.metadata_mut();
        metadata.remove("tracestate");
        // Every context is legal metadata.
        let _ = metadata.insert("traceparent", &trace.traceparent());
        if !trace.state.is_empty() {
            let _ = metadata.append("tracestate", &trace.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(fields: &[(&str, &str)]) -> Option<TraceContext> {
        TraceContext::of_fields(|| fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    #[test]
    fn a_traceparent_is_read_strictly() {
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        for (text, sampled) in [
            (format!("00-{ids}-01"), Some(true)),
            (format!("00-{ids}-00"), Some(false)),
            (format!("00-{ids}-02"), Some(false)),
            (format!("00-{ids}-ff"), Some(true)),
            (format!("01-{ids}-01"), Some(true)),
            (format!("cc-{ids}-01-what-is-later"), Some(true)),
            (format!("cc-{ids}-01."), None),
            (format!("cc-{ids}-01what-is-later"), None),
            (format!("00-{ids}-01-"), None),
            (format!("00-{ids}-01-later"), None),
            (format!("ff-{ids}-01"), None),
            (format!("00-{ids}-1"), None),
            (format!("00-{ids}-0g"), None),
            (format!("0-{ids}-01"), None),
            (format!("00-{}-01", ids.to_uppercase()), None),
            (format!("00_{ids}-01"), None),
            (format!("00-{ids}_01"), None),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None),
            (format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16)), None),
            (format!(" 00-{ids}-01"), None),
            (String::new(), None),
        ] {
            let read = read(&[("traceparent", &text)]);
            assert_eq!(read.as_ref().map(|read| read.is_sampled), sampled, "{text}");
            if let Some(read) = read {
                let passed = format!("00-{ids}-{}", if read.is_sampled { "01" } else { "00" });
                assert_eq!(read.traceparent(), passed, "{text}");
            }
        }
        assert_eq!(read(&[("traceparent", PARENT), ("traceparent", PARENT)]), None);
        assert_eq!(read(&[("tracestate", "a=1")]), None);
    }

    #[test]
    fn a_tracestate_is_passed_on_whole_or_not_at_all() {
        let many = |count: usize| (0..count).map(|number| format!("a{number}=1")).collect::<Vec<_>>().join(",");
        let (most, more) = (many(32), many(33));
        let (key, long) = (format!("{}=1", "a".repeat(256)), format!("{}=1", "a".repeat(257)));
        let value = format!("a={}", "1".repeat(257));
        for (states, passed) in [
            (&["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"][..], "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
            (&["a=1 , b=2\t,,", "", "0t@sys=x y"], "a=1,b=2,0t@sys=x y"),
            (&[&most], &most),
            (&[&key], &key),
            (&[&more], ""),
            (&[&long], ""),
            (&[&value], ""),
            (&["a=1,a=2"], ""),
            (&["a=1", "A=2"], ""),
            (&["a"], ""),
            (&["a="], ""),
            (&["a=b=c"], ""),
            (&["a=\u{e9}"], ""),
            (&["0a=1"], ""),
            (&["a@0b=1"], ""),
            (&["a@b@c=1"], ""),
        ] {
            let mut fields = vec![("traceparent", PARENT)];
            fields.extend(states.iter().map(|state| ("tracestate", *state)));
            let read = read(&fields).expect("a parent");
            assert_eq!(read.tracestate(), passed, "{states:?}");
            let mut onward = Request::new(());
            onward.set_trace(&read.child([7; 8]));
            assert_eq!(onward.trace(), Some(read.child([7; 8])));
            let shown: Vec<_> = onward.metadata().iter().collect();
            assert_eq!(shown.len(), 1 + usize::from(!passed.is_empty()), "{shown:?}");
        }
    }
}
