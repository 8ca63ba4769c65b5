//! Signed notes, as <https://c2sp.org/signed-note> has them, with Ed25519, and the cosignatures of
//! <https://c2sp.org/tlog-cosignature>.

use std::{fmt, io};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::{SecureRandom as _, SystemRandom},
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};

use crate::hash::sha256;

/// Signatures that a key makes; its number is the first byte of the key in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Of the text.
    Plain = 1,
    /// Of a time and the text.
    Cosignature = 4,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Plain, Self::Cosignature].into_iter().find(|kind| *kind as u8 == byte)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "signatures of a log (type 1)",
            Self::Cosignature => "cosignatures of a witness (type 4)",
        }
    }
}

/// Signatures that a reader looks at.
const SIGNATURES_MAX: usize = 64;

/// Begin of a line with a signature.
const DASH: &str = "\u{2014} ";

/// Bytes of a public key, and of the seed of a private one.
pub const KEY_BYTES: usize = 32;

/// Reason why a note or a key is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The name of a key.
    #[error("'{0}' cannot name a key: a name has no spaces, no control characters and no plus sign, and is not empty")]
    Name(String),
    /// The text of a key.
    #[error("the key is not of the form NAME+ID+KEY, with eight digits as its ID and an Ed25519 key in base64")]
    Key,
    /// A key of a log in the place of a witness's, or the other way round.
    #[error("this is a key for {found}, not for {expected}")]
    Kind {
        /// The use of this key.
        found: &'static str,
        /// The right one.
        expected: &'static str,
    },
    /// The ID of a key.
    #[error("the key has the ID {found}, but its name and its bytes give {expected}: a part of it was changed")]
    KeyId {
        /// The ID in the text.
        found: String,
        /// The right one.
        expected: String,
    },
    /// Not a note.
    #[error("the text is not a signed note: lines of text, an empty line, and lines with signatures")]
    Form,
    /// No signature of the key.
    #[error("the note has no signature of the key {0}")]
    Unsigned(String),
    /// A signature that is not the key's.
    #[error(
        "the note has a signature of the key {0} that is not for this text: the note was changed, or signed by another key"
    )]
    Forged(String),
}

/// A key that signs notes.
pub struct Signer {
    pair: Ed25519KeyPair,
    verifier: Verifier,
}

impl Signer {
    /// The key with this name and private seed.
    pub fn new(name: &str, seed: &[u8; KEY_BYTES]) -> Result<Self, NoteError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| NoteError::Key)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| NoteError::Key)?;
        Ok(Self { verifier: Verifier::new(name, public)?, pair })
    }

    /// The public key.
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// The note of a text that ends with a newline.
    pub fn sign(&self, text: &str) -> String {
        let signature = [&self.verifier.id[..], self.pair.sign(text.as_bytes()).as_ref()].concat();
        format!("{text}\n{DASH}{} {}\n", self.verifier.name, STANDARD.encode(signature))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("verifier", &self.verifier).finish_non_exhaustive()
    }
}

/// A public key, of a log or of a witness. Its text is `NAME+ID+KEY`, as Go's `sumdb/note` reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    name: String,
    id: [u8; 4],
    kind: Kind,
    public: [u8; KEY_BYTES],
}

impl Verifier {
    /// The key of a log with this name.
    pub fn new(name: &str, public: [u8; KEY_BYTES]) -> Result<Self, NoteError> {
        Self::of_kind(name, Kind::Plain, public)
    }

    fn of_kind(name: &str, kind: Kind, public: [u8; KEY_BYTES]) -> Result<Self, NoteError> {
        if !is_name(name) {
            return Err(NoteError::Name(name.to_owned()));
        }
        let sum = sha256(&[name.as_bytes(), b"\n", &[kind as u8], &public]).0;
        let id = [sum[0], sum[1], sum[2], sum[3]];
        Ok(Self { name: name.to_owned(), id, kind, public })
    }

    /// Reads the text of a log's key.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        Self::parse_kind(text, Kind::Plain)
    }

    /// Reads the text of a witness's key: its signatures are cosignatures.
    pub fn parse_witness(text: &str) -> Result<Self, NoteError> {
        Self::parse_kind(text, Kind::Cosignature)
    }

    fn parse_kind(text: &str, kind: Kind) -> Result<Self, NoteError> {
        let mut parts = text.trim().splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteError::Key);
        };
        let bytes = STANDARD.decode(key).map_err(|_| NoteError::Key)?;
        let (Some((first, public)), 8) = (bytes.split_first(), id.len()) else { return Err(NoteError::Key) };
        let found = Kind::of(*first).ok_or(NoteError::Key)?;
        if found != kind {
            return Err(NoteError::Kind { found: found.name(), expected: kind.name() });
        }
        let key = Self::of_kind(name, kind, public.try_into().map_err(|_| NoteError::Key)?)?;
        let expected = hex(&key.id);
        if expected == id { Ok(key) } else { Err(NoteError::KeyId { found: id.to_owned(), expected }) }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text that the key has signed.
    pub fn open<'n>(&self, note: &'n str) -> Result<&'n str, NoteError> {
        let (text, signatures) = split(note).ok_or(NoteError::Form)?;
        let mut is_signed = false;
        for line in signatures.lines().take(SIGNATURES_MAX) {
            let (name, signature) =
                line.strip_prefix(DASH).and_then(|line| line.split_once(' ')).ok_or(NoteError::Form)?;
            let bytes = STANDARD.decode(signature).map_err(|_| NoteError::Form)?;
            let (id, signature) = bytes.split_first_chunk().ok_or(NoteError::Form)?;
            if name == self.name && *id == self.id {
                if !self.has_signed(text, signature) {
                    return Err(NoteError::Forged(self.short()));
                }
                is_signed = true;
            }
        }
        if is_signed { Ok(text) } else { Err(NoteError::Unsigned(self.short())) }
    }

    fn has_signed(&self, text: &str, signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.public);
        match self.kind {
            Kind::Plain => key.verify(text.as_bytes(), signature).is_ok(),
            Kind::Cosignature => signature.split_first_chunk().is_some_and(|(time, signature)| {
                let signed = format!("cosignature/v1\ntime {}\n{text}", u64::from_be_bytes(*time));
                key.verify(signed.as_bytes(), signature).is_ok()
            }),
        }
    }

    /// Name and ID.
    fn short(&self) -> String {
        format!("{}+{}", self.name, hex(&self.id))
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = [&[self.kind as u8], &self.public[..]].concat();
        write!(f, "{}+{}", self.short(), STANDARD.encode(key))
    }
}

/// A seed of a new key, from the system's random numbers.
pub fn new_seed() -> io::Result<[u8; KEY_BYTES]> {
    let mut seed = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut seed).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(seed)
}

/// True if a key may have this name.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|letter| letter.is_whitespace() || letter.is_control() || letter == '+')
}

/// The text of a note, with its last newline, and the lines of signatures.
pub(crate) fn split(note: &str) -> Option<(&str, &str)> {
    let is_text = |byte: u8| byte >= b' ' || byte == b'\n';
    if !note.ends_with('\n') || !note.bytes().all(is_text) {
        return None;
    }
    let end = note.rfind("\n\n")?;
    Some((&note[..=end], &note[end + 2..])).filter(|(_, signatures)| !signatures.is_empty())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key, text and note of the documentation of Go's `golang.org/x/mod/sumdb/note`.
    const SEED: &str = "gQoUAtUUbI2E8kQzMPVAgOv5juF9nHT2JS/F1ccoMXM=";
    const KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const NOTE: &str = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n\
        \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    fn signer() -> Signer {
        Signer::new("PeterNeumann", &STANDARD.decode(SEED).unwrap().try_into().unwrap()).unwrap()
    }

    #[test]
    fn key_and_note_are_those_of_go() {
        assert_eq!(signer().verifier().to_string(), KEY);
        let (text, _) = split(NOTE).unwrap();
        assert_eq!(signer().sign(text), NOTE);
        assert_eq!(Verifier::parse(KEY).unwrap().open(NOTE), Ok(text));
    }

    /// Key and cosigned note, made by `formats/note` of transparency-dev.
    const WITNESS: &str = "witness.example/w1+24b5d9fe+BP0XJDhaoMdbZPt4zWAvodmR/ev3axPFjtcC6sg16fYY";
    const COSIGNED: &str = "shop.example/log\n3\nf+7CoKgXKE/tNys9TTXcr/ad6U/K3xvznmzew9y6SP0=\n\n\
        \u{2014} witness.example/w1 \
        JLXZ/gAAAABrCKpuKlZOW9S/DwNipV2F9YvQ8yfw96914Ek6uAqVEMu3UNfZ2fXg9rjHgXcQtom+3VVWNznkMJQE7fCwzS4Ac1A1DA==\n";

    #[test]
    fn a_cosignature_is_one_of_its_time_and_text() {
        let key = Verifier::parse_witness(WITNESS).unwrap();
        assert_eq!(key.to_string(), WITNESS);
        assert_eq!(key.open(COSIGNED).map(|text| text.lines().count()), Ok(3));
        for (from, to) in [("log\n3", "log\n4"), ("AAAABrCKpu", "AAAABrCKpv")] {
            let changed = COSIGNED.replace(from, to);
            assert!(matches!(key.open(&changed), Err(NoteError::Forged(_))), "{from}");
        }
        assert!(matches!(Verifier::parse(WITNESS), Err(NoteError::Kind { .. })));
        assert!(matches!(Verifier::parse_witness(KEY), Err(NoteError::Kind { .. })));
    }

    #[test]
    fn signatures_of_unknown_keys_are_ignored() {
        let (key, (text, _)) = (Verifier::parse(KEY).unwrap(), split(NOTE).unwrap());
        let other = Signer::new("other", &[7; KEY_BYTES]).unwrap();
        assert_eq!(key.open(&other.sign(text)), Err(NoteError::Unsigned("PeterNeumann+c74f20a3".to_owned())));
        let both = other.sign(text) + &NOTE[text.len() + 1..];
        assert_eq!(key.open(&both), Ok(text));
        assert_eq!(other.verifier().open(&both), Ok(text));
        let namesake = Signer::new("PeterNeumann", &[7; KEY_BYTES]).unwrap();
        assert!(matches!(key.open(&namesake.sign(text)), Err(NoteError::Unsigned(_))));
    }

    #[test]
    fn a_text_that_was_changed_is_refused() {
        let key = Verifier::parse(KEY).unwrap();
        assert!(matches!(key.open(&NOTE.replace("answer", "anger")), Err(NoteError::Forged(_))));
        let twice = NOTE.replace("x08go/ZJ", "x08go/ZK") + &NOTE[NOTE.find(DASH).unwrap()..];
        assert!(matches!(key.open(&twice), Err(NoteError::Forged(_))));
        for note in
            ["", "\n", "text\n", "text\n\n", "text\n\nname x\n", "text\n\n\u{2014} name\n", "a\tb\n\n\u{2014} a b\n"]
        {
            assert_eq!(key.open(note), Err(NoteError::Form), "{note:?}");
        }
        assert_eq!(key.open(NOTE.trim_end()), Err(NoteError::Form));
    }

    #[test]
    fn a_key_that_was_changed_is_refused() {
        for text in ["", "a", "a+b", "PeterNeumann+c74f20a3+", "PeterNeumann+c74f20a3+AAAA"] {
            assert_eq!(Verifier::parse(text), Err(NoteError::Key), "{text}");
        }
        let renamed = KEY.replace("Peter", "Paul");
        assert!(matches!(Verifier::parse(&renamed), Err(NoteError::KeyId { .. })));
        for name in ["", "a b", "a+b", "a\u{2003}b", "a\nb"] {
            assert_eq!(Signer::new(name, &[7; KEY_BYTES]).unwrap_err(), NoteError::Name(name.to_owned()));
        }
    }
}
