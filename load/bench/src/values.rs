//! Addresses and sizes as people write them: `:8080`, `localhost:8080`, `1 GiB`.

use std::net::{SocketAddr, ToSocketAddrs as _};

/// Default host of an address.
const OWN_HOST: &str = "127.0.0.1";

/// Host and port of `HOST:PORT`, or of `:PORT` on this machine. The port is not 0.
pub(crate) fn host_and_port(text: &str) -> anyhow::Result<(String, u16)> {
    let whole = with_host(text);
    let parts = whole.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if !host.is_empty() && !host.contains('/') && port != 0 => Ok((host.to_owned(), port)),
        _ => anyhow::bail!("`{text}` is not an address: write HOST:PORT or :PORT, as in 127.0.0.1:8080"),
    }
}

/// The scheme before `://`, if any, and the rest.
pub(crate) fn scheme_and_rest(text: &str) -> (Option<&str>, &str) {
    let is_scheme = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    match text.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
        _ => (None, text),
    }
}

/// Adds this machine as the host of an address or URL without one: `:PORT`.
pub(crate) fn with_host(text: &str) -> String {
    let (scheme, rest) = scheme_and_rest(text);
    let own = if rest.starts_with(':') { OWN_HOST } else { "" };
    scheme.map_or_else(|| format!("{own}{rest}"), |scheme| format!("{scheme}://{own}{rest}"))
}

/// An address to listen on; port 0 picks a free one. For `clap`.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let wrong = |why: &str| format!("{why}; write HOST:PORT or :PORT, as in 127.0.0.1:8080 or localhost:0");
    let mut found = with_host(text).to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
    found.next().ok_or_else(|| wrong("the host has no address"))
}

/// A number of bytes: `1000`, `64 KiB`, `1GiB`, `2 MB`. For `clap`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let wrong =
        || format!("`{text}` is not a size: write bytes or a number with a unit, as in 4096, 64 KiB, 2 MB or 1 GiB");
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.parse::<usize>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_its_host() {
        for (text, host, port) in [
            (":8080", "127.0.0.1", 8080),
            ("localhost:1", "localhost", 1),
            ("[::1]:65535", "[::1]", 65535),
            ("example.net:80", "example.net", 80),
        ] {
            assert_eq!(host_and_port(text).expect(text), (host.to_owned(), port));
        }
        for text in ["", ":", "8080", "localhost", "localhost:", ":0", ":65536", "http://localhost:80", "a/b:80"] {
            let error = host_and_port(text).expect_err(text).to_string();
            assert!(error.contains("is not an address: write HOST:PORT or :PORT"), "{error}");
        }
    }

    #[test]
    fn a_url_may_leave_out_its_host() {
        for (text, whole) in [
            (":8080/x?a=:1", "127.0.0.1:8080/x?a=:1"),
            ("http://:8080/", "http://127.0.0.1:8080/"),
            ("https://a:1/:2", "https://a:1/:2"),
            ("a:1/?to=http://:2/", "a:1/?to=http://:2/"),
        ] {
            assert_eq!(with_host(text), whole);
        }
    }

    #[test]
    fn an_address_to_listen_on_may_be_a_name() {
        assert_eq!(listen(":0"), Ok("127.0.0.1:0".parse().expect("an address")));
        assert!(listen("localhost:0").is_ok_and(|address| address.ip().is_loopback()));
        for text in ["", "8080", "localhost", ":65536"] {
            assert!(listen(text).is_err_and(|error| error.contains("write HOST:PORT")), "{text}");
        }
    }

    #[test]
    fn a_size_has_a_unit_or_is_in_bytes() {
        for (text, size) in
            [("0", 0), ("4096", 4096), ("64 KiB", 65_536), ("1GiB", 1 << 30), ("2 mb", 2_000_000), ("7 B", 7)]
        {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5 MiB", "1 Gibi", "99999999999 GiB", "١"] {
            assert!(bytes(text).is_err_and(|error| error.contains("as in 4096, 64 KiB")), "{text}");
        }
    }
}
