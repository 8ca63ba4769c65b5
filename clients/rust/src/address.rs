//! Parsing of server addresses.

use std::net::Ipv6Addr;

use crate::error::Error;

/// Default port.
const PORT: u16 = 10_086;
const USUAL: &str = "HOST:PORT, as 127.0.0.1:10086 or [::1]:10086";

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) is_tls: bool,
    /// `HOST:PORT`; an IPv6 address is in brackets.
    authority: String,
}

impl Address {
    /// Parses addresses separated by commas.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Self>, Error> {
        text.split(',').map(Self::parse).collect()
    }

    fn parse(text: &str) -> Result<Self, Error> {
        Self::read(text).map_err(|want| Error::Argument(format!("'{text}' is no address; it must be {want}")))
    }

    /// The error describes a valid address.
    fn read(text: &str) -> Result<Self, String> {
        let (is_tls, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((_, rest)) => return Err(format!("http://{rest} or https://{rest}")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('/') {
            let before = text.len() - rest.len();
            let end = before + rest.find('/').unwrap_or_default();
            return Err(format!("without a path: {}", &text[..end]));
        }
        let (host, port) = match rest.rsplit_once(':') {
            _ if is_host(rest) && !rest.is_empty() => (rest, PORT),
            Some((host, port)) if is_host(host) => {
                let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
                let number = port.parse().ok().filter(|_| is_number);
                (host, number.ok_or_else(|| format!("HOST:PORT with a port up to 65535, as {host}:{PORT}"))?)
            }
            _ => return Err(USUAL.to_owned()),
        };
        if port == 0 {
            return Err(format!("HOST:PORT with a port from 1 to 65535, as {host}:{PORT}"));
        }
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        Ok(Self { is_tls, authority: format!("{host}:{port}") })
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.authority)
    }
}

/// True for a name, an IPv4 address, an IPv6 address in brackets, or an empty string.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn an_address_is_a_host_and_a_port_with_a_scheme_or_without() {
        for (text, url) in [
            ("localhost:10086", "http://localhost:10086"),
            (":80", "http://127.0.0.1:80"),
            ("shop.example", "http://shop.example:10086"),
            ("https://[::1]/", "https://[::1]:10086"),
            ("http://10.0.0.1:80/", "http://10.0.0.1:80"),
        ] {
            assert_eq!(Address::read(text).map(|address| address.url()), Ok(url.to_owned()), "{text}");
        }
        let both = Address::parse_all("a:1,https://b").expect("two addresses");
        assert_eq!(both.iter().map(Address::url).collect::<Vec<_>>(), ["http://a:1", "https://b:10086"]);
    }

    #[test]
    fn what_is_no_address_is_named_with_what_would_be_right() {
        for (text, want) in [
            ("ftp://there:1", "http://there:1 or https://there:1"),
            ("there:", "HOST:PORT with a port up to 65535, as there:10086"),
            ("there:+80", "HOST:PORT with a port up to 65535, as there:10086"),
            ("there:0", "HOST:PORT with a port from 1 to 65535, as there:10086"),
            ("http://there:80/search", "without a path: http://there:80"),
            ("me@there:80", super::USUAL),
            ("::1", super::USUAL),
            ("", super::USUAL),
            ("[::1", super::USUAL),
        ] {
            assert_eq!(Address::read(text), Err(want.to_owned()), "{text}");
        }
    }
}
