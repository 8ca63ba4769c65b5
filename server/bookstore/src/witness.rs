//! Witnesses that the settings name, and the newest checkpoint that they have signed.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use axum::http::{Uri, uri::Scheme};
use tlog::{Hash, Verifier};

/// Most witnesses.
const WITNESSES_MAX: usize = 16;

/// Checkpoints that are kept for witnesses that are slower than others: those of 25 s at the shortest interval.
const KEPT_MAX: usize = 512;

/// A witness that the settings name.
#[derive(Clone, Debug)]
pub struct Witness {
    /// The URL before `/add-checkpoint`.
    pub(crate) url: String,
    pub(crate) key: Verifier,
}

impl Witness {
    /// Reads `URL KEY`; the error is the wanted form.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let want = |reason: &str| format!("URL KEY, such as `https://witness.example/shop NAME+ID+KEY`: {reason}");
        let (url, key) = text.split_once(' ').ok_or_else(|| want("a space is missing"))?;
        let is_http = |uri: &Uri| [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme());
        let is_plain = |uri: &Uri| {
            !url.contains('#')
                && uri.query().is_none()
                && uri.authority().is_some_and(|host| !host.as_str().contains('@'))
        };
        if !url.parse().is_ok_and(|uri| is_http(&uri) && is_plain(&uri)) {
            return Err(want("the URL begins with http:// or https://, and has no user, no query and no fragment"));
        }
        let key = Verifier::parse_witness(key).map_err(|error| want(&error.to_string()))?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), key })
    }

    /// Reads the items of a setting.
    pub(crate) fn parse_all(items: &[String]) -> Result<Vec<Self>, String> {
        if items.len() > WITNESSES_MAX {
            return Err(format!("at most {WITNESSES_MAX} witnesses"));
        }
        let witnesses = items.iter().map(|item| Self::parse(item)).collect::<Result<Vec<_>, _>>()?;
        let names: HashSet<&str> = witnesses.iter().map(|witness| witness.key.name()).collect();
        if names.len() < witnesses.len() {
            return Err("witnesses, each with a name of its own".to_owned());
        }
        Ok(witnesses)
    }
}

/// Size, root and signed note of the log.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) size: u64,
    pub(crate) root: Hash,
    pub(crate) note: String,
}

/// A checkpoint with the signatures of witnesses.
#[derive(Clone, Debug)]
pub(crate) struct Cosigned {
    pub(crate) size: u64,
    /// The signed note.
    pub(crate) note: String,
    signatures: usize,
}

/// The newest cosigned checkpoints.
#[derive(Debug)]
pub(crate) struct Newest {
    witnesses: usize,
    kept: Mutex<Vec<Cosigned>>,
}

impl Newest {
    pub(crate) fn new(witnesses: usize) -> Self {
        Self { witnesses, kept: Mutex::default() }
    }

    /// The newest; `None` before the first signature.
    pub(crate) fn get(&self) -> Option<Cosigned> {
        self.kept().last().cloned()
    }

    /// The one for a receipt of the entry with this index: the newest that all witnesses have signed, or else the
    /// newest.
    pub(crate) fn covering(&self, index: u64) -> Option<Cosigned> {
        let kept = self.kept();
        let mut covering = kept.iter().rev().filter(|cosigned| index < cosigned.size);
        let newest = covering.clone().next();
        covering.find(|cosigned| cosigned.signatures == self.witnesses).or(newest).cloned()
    }

    /// Adds a witness's line.
    pub(crate) fn add(&self, head: &Head, line: &str) {
        let mut kept = self.kept();
        let place = kept.partition_point(|cosigned| cosigned.size < head.size);
        if kept.get(place).is_none_or(|cosigned| cosigned.size > head.size) {
            kept.insert(place, Cosigned { size: head.size, note: head.note.clone(), signatures: 0 });
        }
        let cosigned = &mut kept[place];
        cosigned.note.push_str(line);
        cosigned.note.push('\n');
        cosigned.signatures += 1;
        if kept.len() > KEPT_MAX {
            // The newest that all have signed stays.
            let whole = kept.iter().rposition(|cosigned| cosigned.signatures == self.witnesses);
            kept.remove(usize::from(whole == Some(0)));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Cosigned>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const KEY: &str = "witness.example/w1+24b5d9fe+BP0XJDhaoMdbZPt4zWAvodmR/ev3axPFjtcC6sg16fYY";

    #[test]
    fn a_witness_is_a_url_and_a_key() {
        let witness = Witness::parse(&format!("https://witness.example/shop/ {KEY}")).unwrap();
        assert_eq!((witness.url.as_str(), witness.key.name()), ("https://witness.example/shop", "witness.example/w1"));
        for (text, reason) in [
            (KEY.to_owned(), "a space is missing"),
            (format!("witness.example {KEY}"), "begins with http://"),
            (format!("ftp://witness.example {KEY}"), "begins with http://"),
            (format!("http://[ {KEY}"), "begins with http://"),
            (format!("http://me:secret@witness.example {KEY}"), "no user"),
            (format!("http://witness.example/#shop {KEY}"), "no fragment"),
            ("http://a b".to_owned(), "NAME+ID+KEY"),
            (
                "http://a PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW".to_owned(),
                "cosignatures of a witness",
            ),
        ] {
            let error = Witness::parse(&text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let one = format!("http://a {KEY}");
        assert!(Witness::parse_all(&[one.clone(), one.clone()]).unwrap_err().contains("a name of its own"));
        assert!(Witness::parse_all(&vec![one; WITNESSES_MAX + 1]).unwrap_err().contains("at most 16"));
    }

    #[test]
    fn the_newest_that_all_have_signed_is_kept_for_receipts() {
        let newest = Newest::new(2);
        let head = |size| Head { size, root: Hash([0; 32]), note: format!("log {size}\n") };
        newest.add(&head(10), "a");
        newest.add(&head(20), "a");
        newest.add(&head(10), "b");
        assert_eq!(newest.get().unwrap().note, "log 20\na\n");
        assert_eq!(newest.covering(9).unwrap().note, "log 10\na\nb\n");
        assert_eq!(newest.covering(10).unwrap().size, 20);
        assert!(newest.covering(20).is_none());
        for size in 21..=1000 {
            newest.add(&head(size), "a");
        }
        assert_eq!((newest.covering(9).unwrap().size, newest.covering(10).unwrap().size), (10, 1000));
        newest.add(&head(601), "b");
        assert_eq!(newest.covering(10).unwrap().note, "log 601\na\nb\n", "the slower one came 20 s later");
        assert_eq!(newest.kept().len(), KEPT_MAX);
    }
}
