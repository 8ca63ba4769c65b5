//! The settings `server.hosts` and `server.cors_origins`, which bound what web pages can do, and the host allowlist of a
//! port.

use std::net::{IpAddr, SocketAddr};

use axum::http::Uri;
use hosting::{Reader, Refused};

const HOSTS: &str = "server.hosts";

/// Expected form, for errors.
const HOSTS_WANT: &str = "names without scheme or port, as `shop.example, quire.local`, with commas between";

/// The names, in lower case.
pub(super) fn hosts(from: &mut Reader<'_>) -> Result<Vec<String>, Refused> {
    let names = from.list(HOSTS)?;
    match names.iter().find(|name| !is_name(name)) {
        Some(wrong) => Err(from.refuse(HOSTS, wrong, HOSTS_WANT)),
        None => Ok(names.into_iter().map(|name| name.to_ascii_lowercase()).collect()),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

/// Host allowlist of a port, for requests that a browser could send.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    address: IpAddr,
    names: Vec<String>,
}

impl Hosts {
    /// The allowlist of a loopback port, which this machine's browsers can reach with pages from anywhere. `None` for
    /// another port: it requires a credential, which pages do not have.
    pub(crate) fn of(address: SocketAddr, names: &[String]) -> Option<Self> {
        address.ip().is_loopback().then(|| Self { address: address.ip(), names: names.to_vec() })
    }

    /// True if `host`, given without port, is allowed.
    pub(crate) fn has(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return address.to_canonical().is_loopback() || address == self.address;
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        name == "localhost" || self.names.contains(&name)
    }
}

const ORIGINS: &str = "server.cors_origins";

/// Expected form, for errors.
const ORIGINS_WANT: &str = "`*` for every origin, or origins as a browser sends them, https://shop.example or http://localhost:5173, \
                    with commas between";

/// Reads the origins; empty if no other page may call.
pub(super) fn origins(from: &mut Reader<'_>) -> Result<Vec<String>, Refused> {
    let origins = from.list(ORIGINS)?;
    match origins.iter().find(|origin| *origin != "*" && !is_origin(origin)) {
        Some(wrong) => Err(from.refuse(ORIGINS, wrong, ORIGINS_WANT)),
        None => Ok(origins),
    }
}

/// True for a browser's `Origin`: scheme and host in lower case, a port unless it is the default one, no path.
fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return false };
    let is_usual_port = matches!((scheme, authority.port_u16()), ("http", Some(80)) | ("https", Some(443)));
    let host = authority.as_str();
    text == format!("{scheme}://{host}") && text == text.to_lowercase() && !host.contains('@') && !is_usual_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_loopback_goes_by_loopback_and_by_its_names_alone() {
        let hosts = Hosts::of(([127, 0, 0, 1], 80).into(), &["quire.local".to_owned()]).expect("a check");
        for host in ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.9.9.9", "[::1]", "quire.local"] {
            assert!(hosts.has(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]", "0"] {
            assert!(!hosts.has(host), "{host}");
        }
        assert!(Hosts::of(([0, 0, 0, 0], 80).into(), &[]).is_none());
        assert!(is_name("shop.example") && !is_name("shop.example:80") && !is_name("http://shop.example"));
    }

    #[test]
    fn an_origin_is_what_a_browser_sends_and_nothing_longer() {
        for origin in ["https://shop.example", "http://localhost:5173", "http://[::1]:8080", "capacitor://localhost"] {
            assert!(is_origin(origin), "{origin}");
        }
        for wrong in [
            "",
            "shop.example",
            "https://",
            "https://shop.example/",
            "https://shop.example/page",
            "https://Shop.example",
            "https://shop.example:443",
            "http://localhost:80",
            "https://me@shop.example",
            "null",
        ] {
            assert!(!is_origin(wrong), "{wrong}");
        }
    }
}
