//! The signed size and root of a log, as <https://c2sp.org/tlog-checkpoint> has them, and the proof of an entry that rests
//! on them, as <https://c2sp.org/tlog-proof> has it.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    hash::{Hash, leaf_hash},
    note::{NoteError, Signer, Verifier},
    proof::root_of_inclusion,
    tile::decimal,
};

/// Begin of a proof.
const PROOF_HEAD: &str = "c2sp.org/tlog-proof@v1\n";

/// A log's name, size and root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name of the log.
    pub origin: String,
    /// Entries.
    pub size: u64,
    /// Root over them.
    pub root: Hash,
}

impl Checkpoint {
    /// The note of a log with this size and root, whose key has its name.
    pub fn sign(size: u64, root: Hash, by: &Signer) -> String {
        by.sign(&format!("{}\n{size}\n{}\n", by.verifier().name(), STANDARD.encode(root.0)))
    }

    /// Reads a note that `key` has signed. A checkpoint may have further lines, which are ignored.
    pub fn open(note: &str, key: &Verifier) -> Result<Self, ProofError> {
        let mut lines = key.open(note)?.lines();
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(ProofError::Checkpoint);
        };
        if origin != key.name() {
            return Err(ProofError::Origin { found: origin.to_owned(), expected: key.name().to_owned() });
        }
        let size = decimal(size).ok_or(ProofError::Checkpoint)?;
        let root = hash(root).ok_or(ProofError::Checkpoint)?;
        Ok(Self { origin: origin.to_owned(), size, root })
    }
}

/// The request of <https://c2sp.org/tlog-witness> for a cosignature of a checkpoint, by a witness that has cosigned the
/// `old` first entries; `proof` is the [`consistency`](crate::consistency) proof between both.
pub fn submission(old: u64, proof: &[Hash], checkpoint: &str) -> String {
    let hashes: String = proof.iter().map(|hash| STANDARD.encode(hash.0) + "\n").collect();
    format!("old {old}\n{hashes}\n{checkpoint}")
}

/// Reason why a proof is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The form of the text.
    #[error("the text is not a proof of the form c2sp.org/tlog-proof@v1")]
    Form,
    /// No entry in it.
    #[error("the proof is without its entry, which should be in the line that begins with 'extra'")]
    NoEntry,
    /// The signature.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The signed text.
    #[error("the signed text is not a checkpoint: name, size and root of a log")]
    Checkpoint,
    /// The name of another log.
    #[error("the checkpoint is of the log '{found}', and the key of '{expected}'")]
    Origin {
        /// The name in the checkpoint.
        found: String,
        /// The name of the key.
        expected: String,
    },
    /// The hashes.
    #[error("the hashes do not lead from the entry to the signed root: the entry or a hash was changed")]
    Root,
}

/// Proof that a log has an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryProof {
    /// The entry's bytes.
    pub entry: Vec<u8>,
    /// Its place in the log, from 0.
    pub index: u64,
    /// The proof of inclusion.
    pub hashes: Vec<Hash>,
    /// The signed checkpoint.
    pub checkpoint: String,
}

impl EntryProof {
    /// The proof as text, with the entry as its extra data.
    pub fn to_text(&self) -> String {
        let mut text = format!("{PROOF_HEAD}extra {}\nindex {}\n", STANDARD.encode(&self.entry), self.index);
        for hash in &self.hashes {
            // Writing to a text does not fail.
            _ = writeln!(text, "{}", STANDARD.encode(hash.0));
        }
        text.push('\n');
        text + &self.checkpoint
    }

    /// Reads a text, without a check of its claim.
    pub fn parse(text: &str) -> Result<Self, ProofError> {
        let rest = text.strip_prefix(PROOF_HEAD).ok_or(ProofError::Form)?;
        let (extra, rest) = match rest.strip_prefix("extra ") {
            Some(rest) => rest.split_once('\n').ok_or(ProofError::Form)?,
            None => return Err(if rest.starts_with("index ") { ProofError::NoEntry } else { ProofError::Form }),
        };
        let entry = STANDARD.decode(extra).map_err(|_| ProofError::Form)?;
        let (head, checkpoint) = rest.split_once("\n\n").ok_or(ProofError::Form)?;
        let mut lines = head.split('\n');
        let index = lines.next().and_then(|line| decimal(line.strip_prefix("index ")?)).ok_or(ProofError::Form)?;
        let hashes: Option<Vec<Hash>> = lines.map(hash).collect();
        let hashes = hashes.filter(|hashes| hashes.len() <= 64).ok_or(ProofError::Form)?;
        Ok(Self { entry, index, hashes, checkpoint: checkpoint.to_owned() })
    }

    /// The checkpoint, if `key` has signed it and its log has the entry.
    pub fn verify(&self, key: &Verifier) -> Result<Checkpoint, ProofError> {
        let checkpoint = Checkpoint::open(&self.checkpoint, key)?;
        let root = root_of_inclusion(self.index, checkpoint.size, leaf_hash(&self.entry), &self.hashes);
        if root == Some(checkpoint.root) { Ok(checkpoint) } else { Err(ProofError::Root) }
    }
}

fn hash(text: &str) -> Option<Hash> {
    STANDARD.decode(text).ok()?.try_into().ok().map(Hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frontier, note::KEY_BYTES};

    fn signer() -> Signer {
        Signer::new("shop.example/log", &[7; KEY_BYTES]).unwrap()
    }

    /// The proof of the second of three entries.
    fn proof() -> EntryProof {
        let leaves = [b"first".as_slice(), b"second", b"third"].map(leaf_hash);
        let mut tree = Frontier::default();
        tree.append_all(leaves);
        let checkpoint = Checkpoint::sign(3, tree.root(), &signer());
        EntryProof { entry: b"second".to_vec(), index: 1, hashes: vec![leaves[0], leaves[2]], checkpoint }
    }

    #[test]
    fn a_proof_is_the_text_of_the_specification() {
        let (proof, text) = (proof(), proof().to_text());
        let (first, third) = (STANDARD.encode(proof.hashes[0].0), STANDARD.encode(proof.hashes[1].0));
        let head =
            format!("c2sp.org/tlog-proof@v1\nextra c2Vjb25k\nindex 1\n{first}\n{third}\n\nshop.example/log\n3\n");
        assert!(text.starts_with(&head), "{text}");
        assert_eq!(EntryProof::parse(&text), Ok(proof));
        let alone = EntryProof { hashes: Vec::new(), index: 0, ..self::proof() };
        assert!(alone.to_text().contains("\nindex 0\n\nshop.example/log\n"));
        assert_eq!(EntryProof::parse(&alone.to_text()), Ok(alone));
    }

    #[test]
    fn a_proof_is_checked_against_the_public_key_alone() {
        let key = signer().verifier().clone();
        let checkpoint = EntryProof::parse(&proof().to_text()).unwrap().verify(&key).unwrap();
        assert_eq!((checkpoint.origin.as_str(), checkpoint.size), ("shop.example/log", 3));
        let changed = |change: fn(&mut EntryProof)| {
            let mut proof = proof();
            change(&mut proof);
            proof.verify(&key).unwrap_err()
        };
        assert_eq!(changed(|proof| proof.entry.push(b'!')), ProofError::Root);
        assert_eq!(changed(|proof| proof.index = 0), ProofError::Root);
        assert_eq!(changed(|proof| proof.index = 9), ProofError::Root);
        assert_eq!(changed(|proof| proof.hashes[0].0[0] ^= 1), ProofError::Root);
        assert!(matches!(
            changed(|proof| proof.checkpoint = proof.checkpoint.replace("\n3\n", "\n4\n")),
            ProofError::Note(NoteError::Forged(_))
        ));
        let other = Signer::new("shop.example/log", &[8; KEY_BYTES]).unwrap();
        assert!(matches!(proof().verify(other.verifier()), Err(ProofError::Note(NoteError::Unsigned(_)))));
    }

    #[test]
    fn a_checkpoint_of_another_log_is_refused_although_the_key_signed_it() {
        let note = signer().sign("shop.example/other\n3\nAAAA\n");
        let expected =
            ProofError::Origin { found: "shop.example/other".to_owned(), expected: "shop.example/log".to_owned() };
        assert_eq!(Checkpoint::open(&note, signer().verifier()), Err(expected));
        for text in [
            "shop.example/log\n",
            "shop.example/log\n3\n",
            "shop.example/log\n03\nAAAA\n",
            "shop.example/log\n3\nAAAA\n",
        ] {
            let opened = Checkpoint::open(&signer().sign(text), signer().verifier());
            assert_eq!(opened, Err(ProofError::Checkpoint), "{text:?}");
        }
    }

    #[test]
    fn texts_of_another_form_are_refused() {
        let text = proof().to_text();
        for (from, to) in [
            ("@v1", "@v2"),
            ("extra ", "extra  "),
            ("index 1", "index 01"),
            ("index 1", "index -1"),
            ("index 1\n", ""),
            ("\n\n", "\n"),
            ("index 1\n", "index 1\nAAAA\n"),
        ] {
            let changed = text.replace(from, to);
            let read = EntryProof::parse(&changed);
            assert!(matches!(read, Err(ProofError::Form)), "{from:?} to {to:?}: {read:?}");
        }
        assert_eq!(EntryProof::parse(&text.replace("extra c2Vjb25k\n", "")), Err(ProofError::NoEntry));
        let hash = format!("{}\n", STANDARD.encode([0; 32]));
        let long = text.replace("index 1\n", &format!("index 1\n{}", hash.repeat(65)));
        assert_eq!(EntryProof::parse(&long), Err(ProofError::Form));
    }
}
