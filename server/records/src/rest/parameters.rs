//! Query strings, parsed strictly: a misspelt parameter is refused.
//!
//! Implements: the URL Standard's application/x-www-form-urlencoded, decoding, in UTF-8 only.

use crate::{fault::Fault, query::Query};

const NAMES: [&str; 5] = ["headerKey", "headerValue", "result_size", "offset", "limit"];

/// The largest integer that every JSON implementation can represent.
const WHOLE_MAX: u64 = (1 << 53) - 1;

fn invalid<T>(said: String) -> Result<T, Fault> {
    Err(Fault::Invalid(said))
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
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = rest.split_first_chunk::<2>();
                let hex = digits.and_then(|([high, low], after)| Some((digit(*high)? << 4 | digit(*low)?, after)));
                let Some((byte, after)) = hex else {
                    return invalid("a % in the query string is not followed by two hexadecimal digits".to_owned());
                };
                rest = after;
                byte
            }
            byte => *byte,
        });
    }
    String::from_utf8(bytes).or_else(|_| invalid("the query string is not UTF-8 once it is decoded".to_owned()))
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
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
}
