//! The tree over the log, for others to verify: signed checkpoints, tiles, entries and proofs of them, in the formats of
//! <https://c2sp.org>.
//!
//! A purchase does none of this work. A checkpoint signs the size and root in the head's mark, which a transaction
//! leaves there once it is on disk; nodes are computed from the rows on request.

mod key;
mod nodes;

use std::{
    collections::HashMap,
    fmt, io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rusqlite::{Connection, Transaction};
use tlog::{
    Checkpoint, EntryProof, Frontier, Hash, Node, Signer, Tile, Verifier, consistency, inclusion, is_consistent,
    leaf_hash, root,
};
use tokio::sync::Semaphore;

use self::{
    key::Secret,
    nodes::{HEIGHT, Nodes, UNIT},
};
use super::{
    super::interface::{ReadFuture, SignedLog},
    errors::OpenError,
    log::{
        check::log_id,
        head::{LogId, Record, Records, beside, head_path},
        tree::{Gaps, each_leaf},
    },
    read::Readers,
};
use crate::{
    fault::{Fault, Unavailable},
    settings::Settings,
    witness::{Cosigned, Head},
};

/// Units that are added before others may use the nodes, and the steps that one request waits for.
const STEP: u64 = 256;
const STEPS: usize = 4;

/// Reads of a mark that another thread may be writing.
const MARK_TRIES: usize = 8;

/// Most numbers without an entry; each costs as much as an entry.
const GAPS_MAX: u64 = 1 << 24;

/// The tree over a file's log.
#[derive(Debug)]
pub(super) struct SignedTree(Arc<Inner>);

struct Inner {
    database: PathBuf,
    readers: Arc<Readers>,
    /// Half of the reading connections, so that strangers who read tiles leave some to others.
    turns: Semaphore,
    secret: Secret,
    /// The log's name in checkpoints; `None` for one that its random name gives.
    origin: Option<String>,
    nodes: Mutex<Nodes>,
    /// The longest log that a mark was of, because another server's mark may replace a newer one.
    longest: Mutex<Option<Record>>,
    /// True while nodes are computed beside requests.
    is_catching_up: AtomicBool,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("database", &self.database).finish_non_exhaustive()
    }
}

/// Reason why a request is not answered.
enum Trouble {
    Database(rusqlite::Error),
    Fault(Fault),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The log as it is on disk: its size and root, and the rows.
struct Snapshot<'c> {
    record: Record,
    file: Transaction<'c>,
    gaps: Gaps,
}

impl<'c> Snapshot<'c> {
    fn new(inner: &Inner, file: &'c Connection) -> Result<Self, Trouble> {
        // Before the rows: what the mark is of is there.
        let record = inner.newest()?;
        let file = file.unchecked_transaction()?;
        if log_id(&file)? != Some(record.id) {
            return Err(inner.failed("its head is that of another log").into());
        }
        let gaps = Gaps::read(&file)?;
        if gaps.count() > GAPS_MAX {
            return Err(inner.failed("too many numbers of its log are without an entry").into());
        }
        Ok(Self { record, file, gaps })
    }

    /// The leaves from `first` on, `count` of them.
    fn leaves<T>(&self, first: u64, count: u64, mut of: impl FnMut(&[u8]) -> T) -> Result<Vec<T>, Trouble> {
        let mut leaves = Vec::new();
        each_leaf(&self.file, &self.gaps, numbers(first, count), |bytes| {
            leaves.push(of(bytes));
            Ok::<_, Trouble>(())
        })?;
        Ok(leaves)
    }
}

/// The numbers of leaves.
fn numbers(first: u64, count: u64) -> RangeInclusive<i64> {
    let number = |leaf: u64| i64::try_from(leaf).unwrap_or(i64::MAX);
    number(first + 1)..=number(first + count)
}

impl Inner {
    fn failed(&self, reason: impl fmt::Display) -> Fault {
        Fault::Failed(format!("the tree over the log of {}: {reason}", self.database.display()))
    }

    /// Size and root of the longest log that is known to be on disk.
    fn newest(&self) -> Result<Record, Fault> {
        let path = head_path(&self.database);
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MARK_TRIES {
            let records = Records::read(&path).map_err(|reason| self.failed(reason))?;
            if let Some(mark) = records.and_then(|records| records.mark) {
                let known = longest.filter(|known| known.id == mark.id && known.size > mark.size);
                return Ok(*longest.insert(known.unwrap_or(mark)));
            }
        }
        Err(self.failed(format!("{} has no mark; start the server again", path.display())))
    }

    fn signer(&self, id: &LogId) -> Result<Signer, Fault> {
        let name = || id.iter().fold("quire/".to_owned(), |name, byte| name + &format!("{byte:02x}"));
        let signer = self.secret.signer(id, &self.origin.clone().unwrap_or_else(name));
        signer.map_err(|reason| self.failed(reason))
    }

    /// Adds nodes of full units, at most `most` of them; returns how many are missing then.
    fn extend(&self, snapshot: &Snapshot<'_>, nodes: &mut Nodes, most: u64) -> Result<u64, Trouble> {
        let unusable = |reason: io::Error| self.failed(format!("cannot use its file of nodes: {reason}"));
        nodes.open_for(snapshot.record.id).map_err(unusable)?;
        let (known, all) = (nodes.units(), snapshot.record.size / UNIT);
        let end = all.min(known + most);
        if end <= known {
            return Ok(0);
        }
        let mut unit = Frontier::default();
        each_leaf(&snapshot.file, &snapshot.gaps, numbers(known * UNIT, (end - known) * UNIT), |bytes| {
            unit.append(leaf_hash(bytes));
            if unit.size() == UNIT {
                nodes.push(unit.root()).map_err(unusable)?;
                unit = Frontier::default();
            }
            Ok::<_, Trouble>(())
        })?;
        Ok(all - end)
    }

    /// Reads from the log as it is on disk.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self, &Snapshot<'_>) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Fault> {
        let _turn = self.turns.acquire().await.map_err(|_| Fault::Unavailable(Unavailable::Closing))?;
        let inner = Arc::clone(self);
        let read =
            self.readers.with(move |file| match Snapshot::new(&inner, file).and_then(|log| work(&inner, &log)) {
                Ok(answer) => Ok(Ok(answer)),
                Err(Trouble::Fault(fault)) => Ok(Err(fault)),
                Err(Trouble::Database(error)) => Err(error),
            });
        read.await?
    }

    /// Adds some nodes; returns how many units are missing then.
    async fn step(self: &Arc<Self>) -> Result<u64, Fault> {
        self.read(|inner, log| inner.extend(log, &mut inner.nodes(), STEP)).await
    }

    /// Computes the nodes of a log that has grown, here or beside requests if that takes long.
    async fn catch_up(self: &Arc<Self>) -> Result<(), Fault> {
        if !self.is_catching_up.load(Relaxed) {
            for _ in 0..STEPS {
                if self.step().await? == 0 {
                    return Ok(());
                }
            }
            if !self.is_catching_up.swap(true, Relaxed) {
                let inner = Arc::clone(self);
                tokio::spawn(async move {
                    while matches!(inner.step().await, Ok(missing) if missing > 0) {}
                    inner.is_catching_up.store(false, Relaxed);
                });
            }
        }
        Err(Fault::Unavailable(Unavailable::Hashing))
    }

    /// Reads with the nodes of all full units.
    async fn with_nodes<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self, &Snapshot<'_>, &Nodes) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Fault> {
        self.catch_up().await?;
        let read = self.read(move |inner, log| {
            let mut nodes = inner.nodes();
            if inner.extend(log, &mut nodes, STEP)? > 0 {
                return Err(Fault::Unavailable(Unavailable::Hashing).into());
            }
            work(inner, log, &nodes)
        });
        read.await
    }

    fn nodes(&self) -> std::sync::MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The proof of the entry with this number, compared with the root before anyone gets it.
    fn prove(
        &self,
        number: i64,
        cosigned: Option<Cosigned>,
        log: &Snapshot<'_>,
        nodes: &Nodes,
    ) -> Result<Option<EntryProof>, Trouble> {
        let Record { id, size, root, .. } = log.record;
        let index = u64::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let Some(index) = index.filter(|index| *index < size) else { return Ok(None) };
        let signer = self.signer(&id)?;
        let (size, checkpoint) = match cosigned.filter(|cosigned| index < cosigned.size) {
            Some(cosigned) => (cosigned.size, cosigned.note),
            None => (size, Checkpoint::sign(size, root, &signer)),
        };
        let hashes = inclusion(index, size, self.reader(log, nodes))?;
        let entry = log.leaves(index, 1, <[u8]>::to_vec)?.pop().unwrap_or_default();
        let proof = EntryProof { entry, index, hashes, checkpoint };
        if let Err(reason) = proof.verify(signer.verifier()) {
            return Err(self
                .unproven(nodes, &format!("entry {number} does not lead to the root in its head ({reason})"))
                .into());
        }
        Ok(Some(proof))
    }

    /// The proof between two sizes, compared with the newer root before anyone gets it.
    fn between(
        &self,
        old: u64,
        (new, new_root): (u64, Hash),
        log: &Snapshot<'_>,
        nodes: &Nodes,
    ) -> Result<Option<Vec<Hash>>, Trouble> {
        if old > new || new > log.record.size {
            return Ok(None);
        }
        let mut read = self.reader(log, nodes);
        let hashes = consistency(old, new, &mut read)?;
        let old_root = root(old.max(1), &mut read)?;
        if root(new, &mut read)? != new_root || old > 0 && !is_consistent(old, old_root, new, new_root, &hashes) {
            return Err(self.unproven(nodes, &format!("{old} entries do not lead to the root of {new}")).into());
        }
        Ok(Some(hashes))
    }

    fn unproven(&self, nodes: &Nodes, what: &str) -> Fault {
        let nodes = nodes.path().display();
        self.failed(format!(
            "{what}: stop the server, delete {nodes} and start it; if that does not help, a row of the log was changed"
        ))
    }

    /// Reads nodes of every height.
    fn reader<'r>(
        &'r self,
        log: &'r Snapshot<'_>,
        nodes: &'r Nodes,
    ) -> impl FnMut(Node) -> Result<Hash, Trouble> + use<'r> {
        let mut leaves = Leaves { log, units: HashMap::new() };
        move |node| {
            if node.height < HEIGHT {
                return leaves.get(node);
            }
            nodes.get(node).map_err(|reason| self.failed(reason).into())
        }
    }
}

/// Nodes below the units, from the rows of their units.
struct Leaves<'s, 'c> {
    log: &'s Snapshot<'c>,
    units: HashMap<u64, Vec<Hash>>,
}

impl Leaves<'_, '_> {
    fn get(&mut self, node: Node) -> Result<Hash, Trouble> {
        let first = node.index << node.height;
        let unit = first / UNIT;
        if !self.units.contains_key(&unit) {
            let start = unit * UNIT;
            let count = UNIT.min(self.log.record.size - start);
            self.units.insert(unit, self.log.leaves(start, count, leaf_hash)?);
        }
        let from = usize::try_from(first % UNIT).unwrap_or_default();
        let leaves = self.units.get(&unit).and_then(|leaves| leaves.get(from..from + (1 << node.height)));
        let mut tree = Frontier::default();
        tree.append_all(leaves.unwrap_or_default().iter().copied());
        Ok(tree.root())
    }
}

impl SignedTree {
    /// The tree over the log of this file, which was opened.
    pub(super) fn open(database: &Path, readers: Arc<Readers>, settings: &Settings) -> Result<Self, OpenError> {
        Ok(Self(Arc::new(Inner {
            database: database.to_owned(),
            readers,
            turns: Semaphore::new(settings.read_pool.div_ceil(2).max(1)),
            secret: Secret::of(database)?,
            origin: settings.origin.clone(),
            nodes: Mutex::new(Nodes::new(beside(database, "-nodes"))),
            longest: Mutex::default(),
            is_catching_up: AtomicBool::default(),
        })))
    }
}

impl SignedLog for SignedTree {
    fn key(&self) -> ReadFuture<'_, Verifier> {
        Box::pin(self.0.read(|inner, log| Ok(inner.signer(&log.record.id)?.verifier().clone())))
    }

    fn head(&self) -> ReadFuture<'_, Head> {
        Box::pin(self.0.read(|inner, log| {
            let Record { id, size, root, .. } = log.record;
            Ok(Head { size, root, note: Checkpoint::sign(size, root, &inner.signer(&id)?) })
        }))
    }

    fn tile(&self, tile: Tile) -> ReadFuture<'_, Option<Vec<u8>>> {
        if tile.level == 0 {
            return Box::pin(self.0.read(move |_, log| {
                if !tile.is_within(log.record.size) {
                    return Ok(None);
                }
                let leaves = log.leaves(tile.index * Tile::WIDTH, tile.width, leaf_hash)?;
                Ok(Some(leaves.into_iter().flat_map(|hash| hash.0).collect()))
            }));
        }
        Box::pin(self.0.with_nodes(move |inner, log, nodes| {
            if !tile.is_within(log.record.size) {
                return Ok(None);
            }
            let mut hashes = Vec::new();
            for node in tile.nodes() {
                hashes.extend(nodes.get(node).map_err(|reason| inner.failed(reason))?.0);
            }
            Ok(Some(hashes))
        }))
    }

    fn entries(&self, tile: Tile) -> ReadFuture<'_, Option<Vec<u8>>> {
        Box::pin(self.0.read(move |inner, log| {
            if tile.level != 0 || !tile.is_within(log.record.size) {
                return Ok(None);
            }
            let mut bundle = Vec::new();
            each_leaf(&log.file, &log.gaps, numbers(tile.index * Tile::WIDTH, tile.width), |bytes| {
                let length = u16::try_from(bytes.len());
                bundle.extend(length.map_err(|_| inner.failed("an entry has an actor of over 64 KiB"))?.to_be_bytes());
                bundle.extend_from_slice(bytes);
                Ok::<_, Trouble>(())
            })?;
            Ok(Some(bundle))
        }))
    }

    fn proof(&self, number: i64, cosigned: Option<Cosigned>) -> ReadFuture<'_, Option<EntryProof>> {
        Box::pin(self.0.with_nodes(move |inner, log, nodes| inner.prove(number, cosigned, log, nodes)))
    }

    fn consistency(&self, old: u64, new: u64, root: Hash) -> ReadFuture<'_, Option<Vec<Hash>>> {
        Box::pin(self.0.with_nodes(move |inner, log, nodes| inner.between(old, (new, root), log, nodes)))
    }
}
