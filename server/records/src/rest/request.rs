//! Requests: query strings, parsed strictly, so that a misspelt parameter is refused; accepted compression; conditions.

use axum::http::{HeaderMap, header};
use percent_encoding::percent_decode_str;

use crate::{
    cache::{Coding, Identity},
    fault::Fault,
    query::Query,
};

const NAMES: [&str; 5] = ["headerKey", "headerValue", "result_size", "offset", "limit"];

/// The largest integer that every JSON implementation can represent.
const WHOLE_MAX: u64 = (1 << 53) - 1;

fn invalid<T>(text: String) -> Result<T, Fault> {
    Err(Fault::Invalid(text))
}

/// Parses a query string.
pub(super) fn read(query: &str) -> Result<Query, Fault> {
    let mut values: [Option<String>; NAMES.len()] = Default::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name)?;
        let Some(place) = NAMES.iter().position(|known| *known == name) else {
            let name: String = name.chars().take(100).collect();
            return invalid(format!("there is no parameter '{name}'; the parameters are {}", NAMES.join(", ")));
        };
        if values[place].replace(decode(value)?).is_some() {
            return invalid(format!("the parameter {name} is there twice; give it once"));
        }
    }
    let [column, value, share, offset, limit] = values;
    let wanted = |name: &str, what: &str| Fault::Invalid(format!("the parameter {name} is missing; it must be {what}"));
    Ok(Query {
        column: column.ok_or_else(|| wanted("headerKey", "a column's name"))?,
        value: value.ok_or_else(|| wanted("headerValue", "the value to look for in that column"))?,
        share: share.map(|text| number(&text)).transpose()?,
        offset: whole("offset", offset.as_deref())?.unwrap_or(0),
        limit: whole("limit", limit.as_deref())?,
    })
}

/// A number as in JSON, so not `NaN` or `inf`.
fn number(text: &str) -> Result<f64, Fault> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    match text.parse::<f64>() {
        Ok(number) if plain => Ok(number),
        _ => {
            let text: String = text.chars().take(100).collect();
            invalid(format!("result_size is '{text}'; it must be a number from 0 to 1"))
        }
    }
}

fn whole(name: &str, text: Option<&str>) -> Result<Option<u64>, Fault> {
    let Some(text) = text else { return Ok(None) };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits && number <= WHOLE_MAX => Ok(Some(number)),
        _ => {
            let text: String = text.chars().take(100).collect();
            invalid(format!("{name} is '{text}'; it must be a whole number from 0 to {WHOLE_MAX}"))
        }
    }
}

fn decode(text: &str) -> Result<String, Fault> {
    let is_escape =
        |after: &str| after.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(is_escape) {
        return invalid("a % in the query string is not followed by two hexadecimal digits".to_owned());
    }
    match percent_decode_str(&text.replace('+', " ")).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => invalid("the query string is not UTF-8 once it is decoded".to_owned()),
    }
}

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

    #[test]
    fn names_and_values_are_decoded() {
        let query =
            read("headerKey=a+b%26c&headerValue=%F0%9F%98%80%00%3D=&result_size=2.5e-1&offset=3&limit=0").unwrap();
        let wanted = Query {
            column: "a b&c".to_owned(),
            value: "😀\0==".to_owned(),
            share: Some(0.25),
            offset: 3,
            limit: Some(0),
        };
        assert_eq!(query, wanted);
        assert_eq!(read("&headerValue&headerKey=x&").unwrap().value, "");
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let both = "headerKey=a&headerValue=b";
        for (query, parts) in [
            ("", vec!["headerKey is missing", "a column's name"]),
            ("headerKey=a", vec!["headerValue is missing"]),
            ("headerkey=a", vec!["no parameter 'headerkey'", "headerKey, headerValue, result_size, offset, limit"]),
            ("headerKey=a&headerKey=b", vec!["headerKey is there twice"]),
            ("headerKey=%zz", vec!["two hexadecimal digits"]),
            ("headerKey=%f", vec!["two hexadecimal digits"]),
            ("headerKey=%ff", vec!["not UTF-8"]),
            (&format!("{both}&result_size=NaN"), vec!["'NaN'", "from 0 to 1"]),
            (&format!("{both}&result_size=inf"), vec!["'inf'"]),
            (&format!("{both}&result_size="), vec!["''"]),
            (&format!("{both}&offset=-1"), vec!["offset is '-1'", "from 0 to 9007199254740991"]),
            (&format!("{both}&limit=9007199254740992"), vec!["limit"]),
            (&format!("{both}&limit=%2B1"), vec!["limit is '+1'"]),
        ] {
            let said = read(query).unwrap_err().to_string();
            for part in parts {
                assert!(said.contains(part), "{query}: {said}");
            }
        }
    }

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
