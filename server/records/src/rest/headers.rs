//! Request headers: accepted compression, and conditional requests.
//!
//! Implements: RFC 9110 sections 12.5.3 (Accept-Encoding), 8.8.3 (`ETag`) and 13.1.2 (If-None-Match).

use axum::http::{HeaderMap, header};

use crate::packing::{Coding, Identity};

/// Response header with the number of rows in an answer.
pub const ROWS_HEADER: &str = "num-record";
/// Response header with the number of matching rows.
pub const MATCHING_HEADER: &str = "num-matching";

/// Elements of a list field, over all its lines.
fn list<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// A weight (`q`), from 0 to 1000.
fn quality(parameters: &str) -> u32 {
    let mut weight = parameters.split(';').filter_map(|parameter| {
        let (name, weight) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then_some(weight.trim())
    });
    match weight.next_back() {
        None => 1000,
        Some(weight) => match weight.split_once('.').unwrap_or((weight, "")) {
            ("1", _) => 1000,
            ("0", digits) => format!("{digits:0<3.3}").parse().unwrap_or(0),
            _ => 0,
        },
    }
}

/// The coding that the caller prefers; the cheaper one of equals.
pub(super) fn coding(headers: &HeaderMap) -> Option<Coding> {
    let wanted = |name: &str| {
        let mut found = None;
        for element in list(headers, &header::ACCEPT_ENCODING) {
            let (coding, parameters) = element.split_once(';').unwrap_or((element, ""));
            let coding = coding.trim();
            if coding.eq_ignore_ascii_case(name) || (name == "gzip" && coding.eq_ignore_ascii_case("x-gzip")) {
                return Some(quality(parameters));
            }
            if coding == "*" {
                found = Some(quality(parameters));
            }
        }
        found
    };
    // Of equals `max_by_key` takes the last.
    let weights = Coding::BUILT.iter().rev().map(|coding| (wanted(coding.name()).unwrap_or(0), *coding));
    let (most, best) = weights.max_by_key(|(weight, _)| *weight)?;
    // Unless it is named, identity is merely allowed.
    let plain = list(headers, &header::ACCEPT_ENCODING)
        .filter_map(|element| element.split_once(';'))
        .find(|(coding, _)| coding.trim().eq_ignore_ascii_case("identity"))
        .map_or(0, |(_, parameters)| quality(parameters));
    (most > 0 && most >= plain).then_some(best)
}

/// Entity tag of an answer; depends on its bytes alone.
pub(super) fn tag(identity: &Identity, coding: Option<Coding>) -> String {
    let coding = coding.map_or("", Coding::name);
    let dash = if coding.is_empty() { "" } else { "-" };
    format!("\"{:016x}{:016x}{dash}{coding}\"", identity.version, identity.digest())
}

/// True if the caller has the answer with this tag.
pub(super) fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    list(headers, &header::IF_NONE_MATCH).any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(value: &str) -> Option<Coding> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
        coding(&headers)
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn the_coding_that_is_wanted_most_is_chosen() {
        for (accepted, chosen) in [
            ("", None),
            ("identity", None),
            ("br, deflate", None),
            ("gzip", Some(Coding::Gzip)),
            ("GZIP", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("zstd;q=0.5, gzip", Some(Coding::Gzip)),
            ("zstd;q=0.50 , gzip ; q=0.499", Some(Coding::Zstd)),
            ("gzip;q=0", None),
            ("gzip;q=0, *", Some(Coding::Zstd)),
            ("*;q=0", None),
            ("*", Some(Coding::Zstd)),
            ("identity;q=1, gzip;q=0.5", None),
            ("identity;q=0, gzip;q=0.1", Some(Coding::Gzip)),
            ("gzip;q=nonsense", None),
        ] {
            assert_eq!(accepting(accepted), chosen, "{accepted}");
        }
        assert_eq!(coding(&HeaderMap::new()), None);
    }

    #[test]
    fn a_known_answer_is_found_in_lists_and_by_weak_tags() {
        let known = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, value.parse().unwrap());
            is_known(&headers, "\"a1\"")
        };
        assert!(known("\"a1\"") && known("\"b\", W/\"a1\"") && known("*"));
        assert!(!known("\"a2\"") && !known("a1") && !known(""));
        assert!(!is_known(&HeaderMap::new(), "\"a1\""));
    }
}
