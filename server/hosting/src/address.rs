//! Parses addresses: where to listen, and where a server is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The text is not an address.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    text: String,
    /// A valid form; completes "it must be".
    pub want: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}' is no address; it must be {}", self.text.escape_debug(), self.want)
    }
}

impl std::error::Error for Wrong {}

/// Parses a listening address: an IP address and a port, `localhost:PORT`, or `:PORT` for every address of this
/// machine. Port 0 is any free one.
pub fn listening(text: &str, usual_port: u16) -> Result<SocketAddr, Wrong> {
    let want = || {
        format!(
            "IP:PORT, as 127.0.0.1:{usual_port} or [::1]:{usual_port}; localhost:{usual_port}; or :{usual_port} for \
             all addresses"
        )
    };
    let wrong = |want| Wrong { text: text.to_owned(), want };
    // The system resolves scopes of IPv6 addresses, as [fe80::1%2]:80.
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    // For another machine's name the hint would not help.
    let is_name = text.starts_with(|first: char| first.is_ascii_alphabetic()) && !text.contains("localhost");
    let hinted = |hint: Option<String>| hint.filter(|_| !is_name || text.contains("://"));
    let parts = Parts::of(text, usual_port).map_err(|hint| wrong(hinted(hint).unwrap_or_else(want)))?;
    let Parts { scheme, host, port } = parts;
    let port =
        port.ok_or_else(|| wrong(hinted(Some(format!("with a port: {host}:{usual_port}"))).unwrap_or_else(want)))?;
    let ip = match host {
        _ if scheme.is_some() => return Err(wrong(format!("without a scheme: {host}:{port}"))),
        "" => Ipv4Addr::UNSPECIFIED.into(),
        name if name.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST.into(),
        _ => host.trim_matches(['[', ']']).parse::<IpAddr>().map_err(|_| wrong(want()))?,
    };
    Ok((ip, port).into())
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// True for TLS.
    pub tls: bool,
    /// A name or an IP address, IPv6 in brackets.
    host: String,
    port: u16,
}

impl Target {
    /// Parses `HOST:PORT`, a host with the default port, or `:PORT` for this machine, optionally after `http://` or
    /// `https://`.
    pub fn parse(text: &str, usual_port: u16) -> Result<Self, Wrong> {
        let usual = || format!("HOST:PORT, as 127.0.0.1:{usual_port} or [::1]:{usual_port}");
        let wrong = |want| Wrong { text: text.to_owned(), want };
        let Parts { scheme, host, port } =
            Parts::of(text, usual_port).map_err(|hint| wrong(hint.unwrap_or_else(usual)))?;
        let port = port.unwrap_or(usual_port);
        if port == 0 {
            return Err(wrong(format!("HOST:PORT with a port from 1 to 65535, as {host}:{usual_port}")));
        }
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        Ok(Self { tls: scheme == Some("https"), host: host.to_owned(), port })
    }

    /// The name or IP address, as in a certificate.
    pub fn host(&self) -> &str {
        self.host.trim_matches(['[', ']'])
    }

    /// `HOST:PORT`.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// `http://HOST:PORT`, or `https://…` with TLS.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

/// Parts of an address.
struct Parts<'a> {
    /// `http` or `https`.
    scheme: Option<&'static str>,
    /// Empty for none; IPv6 in brackets.
    host: &'a str,
    port: Option<u16>,
}

impl<'a> Parts<'a> {
    /// Splits an address; the error is a valid form, if known.
    fn of(text: &'a str, usual_port: u16) -> Result<Self, Option<String>> {
        let (scheme, rest) = match text.split_once("://") {
            None => (None, text),
            Some(("http", rest)) => (Some("http"), rest),
            Some(("https", rest)) => (Some("https"), rest),
            Some((_, rest)) => return Err(Some(format!("http://{rest} or https://{rest}"))),
        };
        let before = scheme.map_or(String::new(), |scheme| format!("{scheme}://"));
        let bare = rest.strip_suffix('/').unwrap_or(rest);
        if let Some((host, _)) = bare.split_once('/') {
            return Err(Some(format!("without a path: {before}{host}")));
        }
        if bare.parse::<Ipv6Addr>().is_ok() {
            return Err(Some(format!("in brackets and with a port: {before}[{bare}]:{usual_port}")));
        }
        if !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Some(format!("with a colon before the port: {before}:{bare} or {before}127.0.0.1:{bare}")));
        }
        if is_host(bare) && !bare.is_empty() {
            return Ok(Self { scheme, host: bare, port: None });
        }
        let (host, port) = bare.rsplit_once(':').filter(|(host, _)| is_host(host)).ok_or(None)?;
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|_| digits);
        let port =
            port.ok_or_else(|| Some(format!("HOST:PORT with a port up to 65535, as {before}{host}:{usual_port}")))?;
        Ok(Self { scheme, host, port: Some(port) })
    }
}

/// True for a name, an IPv4 address, an IPv6 address in brackets, or nothing.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Target, listening};

    #[test]
    fn a_place_to_listen_is_an_ip_address_and_a_port_or_short_for_it() {
        for (text, address) in [
            ("127.0.0.1:10086", "127.0.0.1:10086"),
            ("localhost:80", "127.0.0.1:80"),
            ("LocalHost:80", "127.0.0.1:80"),
            (":80", "0.0.0.0:80"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:80", "[::1]:80"),
            ("[::]:80", "[::]:80"),
        ] {
            assert_eq!(listening(text, 10086).map(|address| address.to_string()), Ok(address.to_owned()), "{text}");
        }
    }

    const USUAL: &str = "IP:PORT, as 127.0.0.1:10086 or [::1]:10086; localhost:10086; or :10086 for all addresses";

    #[test]
    fn a_place_that_cannot_be_listened_at_is_answered_with_one_that_can() {
        for (text, want) in [
            ("here", USUAL),
            ("here:80", USUAL),
            ("", USUAL),
            ("127.0.0.1", "with a port: 127.0.0.1:10086"),
            ("localhost", "with a port: localhost:10086"),
            ("8080", "with a colon before the port: :8080 or 127.0.0.1:8080"),
            ("::1", "in brackets and with a port: [::1]:10086"),
            ("http://127.0.0.1:80", "without a scheme: 127.0.0.1:80"),
            ("127.0.0.1:80/", "127.0.0.1:80"),
            ("127.0.0.1:99999", "HOST:PORT with a port up to 65535, as 127.0.0.1:10086"),
            ("127.0.0.1:", "HOST:PORT with a port up to 65535, as 127.0.0.1:10086"),
            (" 127.0.0.1:80", USUAL),
        ] {
            match listening(text, 10086) {
                Ok(address) => assert_eq!(address.to_string(), want, "{text}"),
                Err(wrong) => assert_eq!(wrong.want, want, "{text}"),
            }
        }
    }

    #[test]
    fn a_server_is_at_a_host_and_a_port_with_a_scheme_or_without() {
        for (text, url) in [
            ("localhost:10086", "http://localhost:10086"),
            (":10086", "http://127.0.0.1:10086"),
            ("shop.example:80", "http://shop.example:80"),
            ("shop.example", "http://shop.example:10086"),
            ("https://[::1]/", "https://[::1]:10086"),
            ("[::1]:80", "http://[::1]:80"),
            ("http://10.0.0.1:80/", "http://10.0.0.1:80"),
            ("https://shop.example:443", "https://shop.example:443"),
        ] {
            assert_eq!(Target::parse(text, 10086).map(|target| target.url()), Ok(url.to_owned()), "{text}");
        }
        assert_eq!(Target::parse("http://[::1]:80", 1).map(|target| target.authority()), Ok("[::1]:80".to_owned()));
    }

    #[test]
    fn what_is_no_server_is_named_with_what_would_be_right() {
        for (text, want) in [
            ("ftp://there:1", "http://there:1 or https://there:1"),
            ("there:", "HOST:PORT with a port up to 65535, as there:10086"),
            ("there:+80", "HOST:PORT with a port up to 65535, as there:10086"),
            ("there:0", "HOST:PORT with a port from 1 to 65535, as there:10086"),
            ("http://there:80/search", "without a path: http://there:80"),
            ("me@there:80", "HOST:PORT, as 127.0.0.1:10086 or [::1]:10086"),
            ("::1", "in brackets and with a port: [::1]:10086"),
            ("fe80::1:80", "in brackets and with a port: [fe80::1:80]:10086"),
            ("", "HOST:PORT, as 127.0.0.1:10086 or [::1]:10086"),
            ("http://", "HOST:PORT, as 127.0.0.1:10086 or [::1]:10086"),
            ("[::1", "HOST:PORT, as 127.0.0.1:10086 or [::1]:10086"),
        ] {
            let wrong = Target::parse(text, 10086).expect_err(text);
            assert_eq!(wrong.to_string(), format!("'{text}' is no address; it must be {want}"));
        }
    }
}
