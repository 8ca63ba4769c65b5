//! Tiles of hashes, as <https://c2sp.org/tlog-tiles> has them: the nodes of every eighth height, 256 in a row.

use std::fmt;

use crate::Node;

/// A row of nodes with the height `8 * level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// From 0, whose nodes are leaves, to [`Self::LEVEL_MAX`].
    pub level: u32,
    /// Place among the tiles of this level.
    pub index: u64,
    /// Nodes: [`Self::WIDTH`], or fewer if the tile is partial.
    pub width: u64,
}

impl Tile {
    /// Nodes of a full tile.
    pub const WIDTH: u64 = 256;

    /// Levels between two that are shown.
    pub const HEIGHT: u32 = 8;

    /// The highest level that a path may name.
    pub const LEVEL_MAX: u32 = 63;

    /// Reads the path below `tile/`: `LEVEL/INDEX` or `LEVEL/INDEX.p/WIDTH`.
    pub fn parse(path: &str) -> Option<Self> {
        let (level, place) = path.split_once('/')?;
        let level = u32::try_from(decimal(level)?).ok().filter(|level| *level <= Self::LEVEL_MAX)?;
        Self::parse_at(level, place)
    }

    /// Reads a path without its level, as bundles of entries have it: `INDEX` or `INDEX.p/WIDTH`.
    pub fn parse_at(level: u32, place: &str) -> Option<Self> {
        let (index, width) = match place.split_once(".p/") {
            Some((index, width)) => (index, decimal(width).filter(|width| (1..Self::WIDTH).contains(width))?),
            None => (place, Self::WIDTH),
        };
        let mut parts = index.split('/').rev();
        let (mut number, mut scale) = (three_digits(parts.next()?)?, 1_u64);
        let mut is_short = true;
        for part in parts {
            // Leading zeros would be a second name for the tile.
            let thousands = three_digits(part.strip_prefix('x')?)?;
            scale = scale.checked_mul(1000)?;
            number = thousands.checked_mul(scale)?.checked_add(number)?;
            is_short = thousands > 0;
        }
        is_short.then_some(Self { level, index: number, width })
    }

    /// The tile's nodes, from left to right.
    pub fn nodes(self) -> impl Iterator<Item = Node> {
        let first = self.index * Self::WIDTH;
        (first..first + self.width).map(move |index| Node { height: self.level * Self::HEIGHT, index })
    }

    /// True if a tree of `size` leaves has all nodes of the tile.
    pub fn is_within(self, size: u64) -> bool {
        let nodes = size.checked_shr(self.level * Self::HEIGHT).unwrap_or_default();
        let end = self.index.checked_mul(Self::WIDTH).and_then(|first| first.checked_add(self.width));
        end.is_some_and(|end| end <= nodes)
    }
}

/// The path below `tile/`.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        let digits = format!("{:03}", self.index);
        let head = digits.len().div_ceil(3) * 3 - digits.len();
        let digits = "0".repeat(head) + &digits;
        for (place, part) in digits.as_bytes().chunks(3).enumerate() {
            let mark = if (place + 1) * 3 < digits.len() { "x" } else { "" };
            write!(f, "/{mark}{}", String::from_utf8_lossy(part))?;
        }
        if self.width < Self::WIDTH { write!(f, ".p/{}", self.width) } else { Ok(()) }
    }
}

/// A number without leading zeros.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let is_one = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_one { text.parse().ok() } else { None }
}

fn three_digits(text: &str) -> Option<u64> {
    if text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn tile(level: u32, index: u64, width: u64) -> Tile {
        Tile { level, index, width }
    }

    #[test]
    fn paths_are_those_of_the_specification() {
        for (path, expected) in [
            ("0/000", tile(0, 0, 256)),
            ("1/x001/x234/067", tile(1, 1_234_067, 256)),
            ("0/x001/000.p/112", tile(0, 1000, 112)),
            ("63/999.p/1", tile(63, 999, 1)),
        ] {
            assert_eq!(Tile::parse(path), Some(expected));
            assert_eq!(expected.to_string(), path);
        }
        for path in [
            "",
            "0",
            "0/",
            "0/0",
            "0/0000",
            "00/000",
            "64/000",
            "-1/000",
            "0/+01",
            "0/001/000",
            "0/x000/001",
            "0/x001/x000",
            "0/x001/000.p/0",
            "0/000.p/256",
            "0/000.p/01",
            "0/000.p/",
            "0/000/.p/1",
            "entries/000",
            "0/x018/x446/x744/x073/x709/x551/616",
        ] {
            assert_eq!(Tile::parse(path), None, "{path}");
        }
    }

    #[test]
    fn a_tree_has_the_tiles_of_the_specification() {
        let is_there = |tile: Tile| tile.is_within(70_000);
        let full = [tile(0, 272, 256), tile(0, 273, 112), tile(1, 0, 256), tile(1, 1, 17), tile(2, 0, 1)];
        assert!(full.into_iter().all(is_there));
        let beyond = [tile(0, 273, 113), tile(1, 1, 18), tile(2, 0, 2), tile(3, 0, 1), tile(0, 274, 1)];
        assert!(!beyond.into_iter().any(is_there));
        assert!(!tile(63, 0, 1).is_within(u64::MAX));
        assert!(!tile(0, u64::MAX / 256 + 1, 1).is_within(u64::MAX));
        let nodes: Vec<Node> = tile(2, 3, 2).nodes().collect();
        assert_eq!(nodes, [768, 769].map(|index| Node { height: 16, index }));
    }
}
