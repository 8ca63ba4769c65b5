//! Receipts: proofs that the shop's log has a purchase, which anyone can check without the server, and the signed tree that
//! they rest on.

use tlog::{EntryProof, Hash, ProofError, Tile};
pub use tlog::{NoteError, Verifier};

use crate::{
    Bookstore, Fault, IdempotencyKey,
    domain::EntryKind,
    fault::Unavailable,
    store::{Decoded, Page, SignedLog, kind},
    witness::Head,
};

/// Answer over a store without a tree.
const NO_TREE: &str = "receipts and the signed log need the SQLite store, and this server keeps its books in PostgreSQL, \
                       by the setting ledger.url";

impl Bookstore {
    /// True if purchases have receipts.
    pub fn has_receipts(&self) -> bool {
        self.inner.store.signed_log().is_some()
    }

    fn signed_log(&self) -> Result<&dyn SignedLog, Fault> {
        self.inner.store.signed_log().ok_or(Fault::Unsupported(NO_TREE))
    }

    /// The public key of the log.
    pub async fn log_key(&self) -> Result<Verifier, Fault> {
        self.signed_log()?.key().await
    }

    /// The log's newest signed size and root.
    pub async fn checkpoint(&self) -> Result<String, Fault> {
        Ok(self.head().await?.note)
    }

    /// True if the settings name witnesses.
    pub(crate) fn has_witnesses(&self) -> bool {
        !self.inner.settings.witnesses.is_empty()
    }

    /// The newest checkpoint that witnesses have signed.
    pub fn cosigned_checkpoint(&self) -> Result<String, Fault> {
        let cosigned = self.inner.cosigned.get().ok_or(Fault::Unavailable(Unavailable::Unwitnessed))?;
        Ok(cosigned.note)
    }

    pub(crate) async fn head(&self) -> Result<Head, Fault> {
        self.signed_log()?.head().await
    }

    /// The proof that this log begins with its first `old` entries; `None` if it has fewer, or the file fewer than it.
    pub(crate) async fn consistency(&self, old: u64, new: &Head) -> Result<Option<Vec<Hash>>, Fault> {
        self.signed_log()?.consistency(old, new.size, new.root).await
    }

    /// The hashes of a tile; `None` if the tree does not have all of them.
    pub async fn tile(&self, tile: Tile) -> Result<Option<Vec<u8>>, Fault> {
        self.signed_log()?.tile(tile).await
    }

    /// The entries of a tile of level 0, each after its length in two bytes; `None` as for [`Self::tile`].
    pub async fn entry_bundle(&self, tile: Tile) -> Result<Option<Vec<u8>>, Fault> {
        self.signed_log()?.entries(tile).await
    }

    /// The receipt of the purchase with this number and key; `None` if there is none.
    pub async fn receipt(&self, number: i64, key: &IdempotencyKey) -> Result<Option<String>, Fault> {
        let log = self.signed_log()?;
        let Some(index) = number.checked_sub(1).and_then(|index| u64::try_from(index).ok()) else { return Ok(None) };
        let found = self.inner.store.log(Page::After(number - 1), 1).await?.pop();
        if found.is_none_or(|entry| entry.number != number || entry.key.as_ref() != Some(key)) {
            return Ok(None);
        }
        let proof = log
            .proof(number, self.inner.cosigned.covering(index))
            .await?
            .ok_or(Fault::Unavailable(Unavailable::Unsigned))?;
        Ok(Some(proof.to_text()))
    }
}

/// Contents of a receipt that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Name of the log.
    pub origin: String,
    /// Entries of the log when the receipt was made.
    pub log_size: u64,
    /// Number of the entry.
    pub number: i64,
    /// Milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The kind; `None` for one of a later release.
    pub kind: Option<EntryKind>,
    /// The book's id.
    pub book: i64,
    /// Copies.
    pub quantity: Option<i64>,
    /// Copies, or cents for a price.
    pub before: Option<i64>,
    /// As `before`.
    pub after: Option<i64>,
    /// SHA-256 of the idempotency key.
    pub key_sha256: Option<[u8; 32]>,
    /// The operator.
    pub actor: Option<String>,
}

/// Reason why a receipt proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// The proof.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// The signature of a witness.
    #[error("the log has this entry, but a witness has not signed that: {0}; get the receipt again a minute later")]
    Witness(NoteError),
    /// The entry.
    #[error("the log has this entry, but it is not of a form that this release knows; use a newer quire")]
    Entry,
    /// Entry and place.
    #[error("the entry has the number {number}, and the log has it in the place of number {place}")]
    Place {
        /// The number in the entry.
        number: i64,
        /// The number of its place.
        place: u64,
    },
}

/// Checks a receipt against the public keys of the log and of the witnesses that must have signed its checkpoint.
pub fn check(receipt: &str, key: &Verifier, witnesses: &[Verifier]) -> Result<Checked, ReceiptError> {
    let proof = EntryProof::parse(receipt)?;
    let checkpoint = proof.verify(key)?;
    for witness in witnesses {
        witness.open(&proof.checkpoint).map_err(ReceiptError::Witness)?;
    }
    let entry = Decoded::of(&proof.entry).ok_or(ReceiptError::Entry)?;
    let place = proof.index + 1;
    if u64::try_from(entry.number) != Ok(place) {
        return Err(ReceiptError::Place { number: entry.number, place });
    }
    Ok(Checked {
        origin: checkpoint.origin,
        log_size: checkpoint.size,
        number: entry.number,
        time_ms: entry.time_ms,
        kind: kind(entry.kind, entry.quantity, entry.before, entry.after),
        book: entry.book,
        quantity: entry.quantity,
        before: entry.before,
        after: entry.after,
        key_sha256: entry.key,
        actor: entry.actor.map(|actor| String::from_utf8_lossy(&actor).into_owned()),
    })
}
