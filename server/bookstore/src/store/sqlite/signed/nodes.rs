//! Nodes of the log's tree over 256 leaves and more, in a file beside the database, so that a proof reads few rows.
//!
//! The file is only a saving: it is made again from the rows if it is deleted.
//!
//! ```text
//! 0   32 bytes  SHA-256 of the fields up to the nodes
//! 32   8 bytes  quireNd1
//! 40  16 bytes  name of the log
//! 56   8 bytes  units: subtrees of 256 leaves whose nodes are there and on disk
//! 64  32 bytes  each node
//! ```
//!
//! Nodes follow each other in the order in which the log's growth completes them, as in Go's `sumdb/tlog`.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

use tlog::{Hash, Node, node_hash, sha256};

use super::super::log::head::LogId;

/// Height of the nodes that are roots of units.
pub(super) const HEIGHT: u32 = 8;

/// Leaves of a unit.
pub(super) const UNIT: u64 = 1 << HEIGHT;

/// Units that wait in memory until they are written together.
const WAITING_MAX: u64 = 256;

/// Bytes before the nodes.
const HEAD: usize = 64;
const NODES: u64 = HEAD as u64;
const MAGIC: &[u8; 8] = b"quireNd1";

/// The nodes of one log.
pub(super) struct Nodes {
    path: PathBuf,
    open: Option<Open>,
}

struct Open {
    file: File,
    id: LogId,
    /// Units on disk.
    written: u64,
    /// Units on disk or waiting.
    units: u64,
    /// Nodes that are not on disk.
    waiting: Vec<Hash>,
}

impl Nodes {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, open: None }
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Opens the file for this log. Nodes of another log are dropped.
    pub(super) fn open_for(&mut self, id: LogId) -> io::Result<()> {
        if self.open.as_ref().is_some_and(|open| open.id == id) {
            return Ok(());
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        let length = file.metadata()?.len();
        let mut head = [0; HEAD];
        let units = if length >= NODES {
            file.read_exact_at(&mut head, 0)?;
            read_head(&head, id).filter(|units| NODES + nodes_of(*units) * Hash::BYTES as u64 <= length)
        } else {
            None
        };
        let units = units.unwrap_or_default();
        self.open = Some(Open { file, id, written: units, units, waiting: Vec::new() });
        Ok(())
    }

    /// Units whose nodes are known.
    pub(super) fn units(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.units)
    }

    /// Adds the root of the next unit.
    pub(super) fn push(&mut self, root: Hash) -> io::Result<()> {
        let open = self.open.as_mut().ok_or_else(closed)?;
        let unit = open.units;
        let (mut hash, mut added) = (root, vec![root]);
        for height in 0..unit.trailing_ones() {
            let left = open.at(place(height, (unit >> height) - 1))?;
            hash = node_hash(&left, &hash);
            added.push(hash);
        }
        open.waiting.extend(added);
        open.units += 1;
        if open.units - open.written >= WAITING_MAX { open.write() } else { Ok(()) }
    }

    /// The hash of a node of [`HEIGHT`] or above, of known units.
    pub(super) fn get(&self, node: Node) -> io::Result<Hash> {
        let open = self.open.as_ref().ok_or_else(closed)?;
        open.at(place(node.height - HEIGHT, node.index))
    }
}

impl Open {
    fn at(&self, place: u64) -> io::Result<Hash> {
        let written = nodes_of(self.written);
        if let Some(waiting) = place.checked_sub(written) {
            let hash = usize::try_from(waiting).ok().and_then(|waiting| self.waiting.get(waiting));
            return hash.copied().ok_or_else(|| io::Error::other("a node was asked for before its leaves are there"));
        }
        let mut hash = Hash([0; Hash::BYTES]);
        self.file.read_exact_at(&mut hash.0, NODES + place * Hash::BYTES as u64)?;
        Ok(hash)
    }

    /// Writes what waits. The head counts nodes once they are on disk.
    fn write(&mut self) -> io::Result<()> {
        let bytes: Vec<u8> = self.waiting.iter().flat_map(|hash| hash.0).collect();
        self.file.write_all_at(&bytes, NODES + nodes_of(self.written) * Hash::BYTES as u64)?;
        self.file.sync_data()?;
        self.file.write_all_at(&head_of(self.id, self.units), 0)?;
        self.written = self.units;
        self.waiting.clear();
        Ok(())
    }
}

fn head_of(id: LogId, units: u64) -> Vec<u8> {
    let body = [&MAGIC[..], &id, &units.to_be_bytes()].concat();
    [&sha256(&[&body]).0[..], &body].concat()
}

/// The units of a head; `None` if it is damaged or of another log.
fn read_head(head: &[u8; HEAD], id: LogId) -> Option<u64> {
    let units = u64::from_be_bytes(*head.last_chunk()?);
    (head_of(id, units) == head).then_some(units)
}

/// Nodes over this many units.
fn nodes_of(units: u64) -> u64 {
    2 * units - u64::from(units.count_ones())
}

/// Place of the node with this height above the units.
fn place(height: u32, index: u64) -> u64 {
    let last = ((index + 1) << height) - 1;
    nodes_of(last) + u64::from(height)
}

fn closed() -> io::Error {
    io::Error::other("the file of nodes is not open")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tlog::{Frontier, leaf_hash};

    use super::*;

    const ID: LogId = [7; 16];

    fn root(unit: u64) -> Hash {
        leaf_hash(&unit.to_be_bytes())
    }

    fn check(nodes: &Nodes, units: u64) {
        assert_eq!(nodes.units(), units);
        for height in 0..=units.max(1).ilog2() {
            for index in 0..units >> height {
                let mut tree = Frontier::default();
                tree.append_all((index << height..(index + 1) << height).map(root));
                assert_eq!(nodes.get(Node { height: HEIGHT + height, index }).unwrap(), tree.root());
            }
        }
    }

    #[test]
    fn nodes_are_found_after_the_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes");
        let mut nodes = Nodes::new(path.clone());
        nodes.open_for(ID).unwrap();
        for unit in 0..600 {
            nodes.push(root(unit)).unwrap();
        }
        check(&nodes, 600);
        let mut again = Nodes::new(path.clone());
        again.open_for(ID).unwrap();
        check(&again, 512);
        for unit in 512..700 {
            again.push(root(unit)).unwrap();
        }
        check(&again, 700);
        again.open_for([8; 16]).unwrap();
        assert_eq!(again.units(), 0, "the nodes of another log are dropped");
    }

    #[test]
    fn a_file_that_was_cut_or_damaged_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes");
        let make = || {
            let mut nodes = Nodes::new(path.clone());
            nodes.open_for(ID).unwrap();
            (nodes.units()..256).for_each(|unit| nodes.push(root(unit)).unwrap());
        };
        make();
        let whole = fs::read(&path).unwrap();
        for (bytes, units) in [(&whole[..], 256), (&whole[..whole.len() - 1], 0), (&whole[..63], 0), (&[], 0)] {
            fs::write(&path, bytes).unwrap();
            let mut nodes = Nodes::new(path.clone());
            nodes.open_for(ID).unwrap();
            assert_eq!(nodes.units(), units);
        }
        let mut damaged = whole.clone();
        damaged[63] ^= 1;
        fs::write(&path, damaged).unwrap();
        make();
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}
