//! Where a server is and how to reach it, from the flags that `quire client` and `quire kv` share.

use std::time::Duration;

use anyhow::bail;
use hosting::address::Target;
use quire_rpc::{
    Request,
    client::{Channel, Settings},
};

use crate::{cli::ConnectionArgs, config, screen, transport::tls};

/// The address, if the first word is one, and the words of the command. No command looks like an address; a word that
/// could be a host is one if a command follows.
pub(crate) fn split(words: &[String], is_command: impl Fn(&str) -> bool) -> (String, Vec<&str>) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_address = match *words.as_slice() {
        [first, ..] if is_command(first) => false,
        [first, ..] if first == "localhost" || first.contains([':', '.', '[']) => true,
        [_, second, ..] => is_command(second),
        [] | [_] => false,
    };
    if is_address { (words[0].to_owned(), words[1..].to_vec()) } else { (format!("127.0.0.1:{}", config::PORT), words) }
}

/// A channel that connects when it is first used. Needs a runtime around it.
pub(crate) fn open(args: &ConnectionArgs, address: &str, connect_timeout: Duration) -> anyhow::Result<Channel> {
    let target = Target::parse(address, config::PORT)?;
    let settings = Settings {
        connect_timeout,
        // A topic may have any number of books.
        message_bytes_max: usize::MAX,
        // A connection that has died without a word is given up, so that the next attempt has a new one.
        keepalive_interval: Some(connect_timeout / 2),
        keepalive_timeout: connect_timeout / 2,
        ..Settings::default()
    };
    let mut channel = Channel::builder(&target.url())?.settings(settings);
    if target.tls {
        let Some(ca) = &args.ca else {
            bail!("{} speaks TLS: name the certificates to trust with --ca FILE", screen::line(address))
        };
        let own = args.certificate.as_deref().zip(args.key_file.as_deref());
        channel = channel.tls(tls::client(ca, own)?)?;
    }
    let channel = channel.connect_lazy()?;
    let Some(token) = &args.token else { return Ok(channel) };
    let value = format!("Bearer {token}");
    if value.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
        bail!("--token has characters that no token has");
    }
    Ok(channel.intercepted(move |_: &str, request: &mut Request<()>| {
        // Its characters were checked.
        let _ = request.metadata_mut().insert("authorization", &value);
        Ok(())
    }))
}

/// The words of a command line that reach the same server, quoted for a shell.
pub(crate) fn flags(args: &ConnectionArgs) -> Vec<String> {
    let files = [("--ca", &args.ca), ("--certificate", &args.certificate), ("--key-file", &args.key_file)];
    let files =
        files.iter().filter_map(|(flag, file)| Some([(*flag).to_owned(), file.as_ref()?.display().to_string()]));
    let json = args.json.then(|| "--json".to_owned());
    json.into_iter().chain(files.flatten()).collect()
}

/// A command line for a shell.
pub(crate) fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted = |word| shlex::try_quote(word).map_or_else(|_| screen::line(word).into_owned(), Into::into);
    words.into_iter().map(quoted).collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_an_address_if_it_looks_like_one_or_a_command_follows() {
        let is_command = |word: &str| ["ping", "search"].contains(&word);
        let cases = [
            ("ping", "127.0.0.1:10086", 1),
            ("books ping", "books", 1),
            ("localhost", "localhost", 0),
            (":80 ping", ":80", 1),
            ("search a.b", "127.0.0.1:10086", 2),
            ("sell 1", "127.0.0.1:10086", 2),
            ("1.2.3.4 sell 1", "1.2.3.4", 2),
        ];
        for (line, address, left) in cases {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (found, rest) = split(&words, is_command);
            assert_eq!((found.as_str(), rest.len()), (address, left), "{line}");
        }
    }
}
