//! The setting `server.hosts`, and the host allowlist of a port.

use std::net::{IpAddr, SocketAddr};

use hosting::{Reader, Refused};

const KEY: &str = "server.hosts";

/// Expected form, for errors.
const WANT: &str = "names without scheme or port, as `shop.example, quire.local`, with commas between";

/// The names, in lower case.
pub(super) fn read(from: &mut Reader<'_>) -> Result<Vec<String>, Refused> {
    let names = from.list(KEY)?;
    match names.iter().find(|name| !is_name(name)) {
        Some(wrong) => Err(from.refuse(KEY, wrong, WANT)),
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

#[cfg(test)]
mod tests {
    use super::{Hosts, is_name};

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
}
