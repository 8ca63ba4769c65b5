//! A query, and the part of the matching rows that is returned.

use crate::fault::Fault;

/// A query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// A column's name.
    pub column: String,
    /// The required value.
    pub value: String,
    /// Share of the matching rows to return, from 0 to 1; all if absent.
    pub share: Option<f64>,
    /// Rows skipped at the start of that share.
    pub offset: u64,
    /// Rows returned at most; all if absent.
    pub limit: Option<u64>,
}

impl Query {
    /// Rejects a query that is invalid for any file.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if let Some(share) = self.share
            && !(0.0..=1.0).contains(&share)
        {
            return Err(Fault::Invalid(format!("result_size is {share}; it must be a number from 0 to 1")));
        }
        Ok(())
    }

    /// The value that a field of a CSV file holds if `value` is its text, quotes included.
    pub(crate) fn unquoted(&self) -> Option<String> {
        let inner = self.value.strip_prefix('"')?.strip_suffix('"')?;
        Some(inner.replace("\"\"", "\""))
    }

    /// The part of `matching` rows that is returned.
    pub(crate) fn part_of(&self, matching: usize) -> std::ops::Range<usize> {
        let end = self.share.map_or(matching, |share| share_of(matching, share));
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX).min(end);
        let most = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        start..end.min(start.saturating_add(most))
    }
}

/// Rounded down, as the product of two doubles.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rows are counted in 32 bits, and the share is from 0 to 1"
)]
fn share_of(rows: usize, share: f64) -> usize {
    (rows as f64 * share) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(share: Option<f64>, offset: u64, limit: Option<u64>, matching: usize) -> std::ops::Range<usize> {
        Query { share, offset, limit, ..Query::default() }.part_of(matching)
    }

    #[test]
    fn a_share_is_rounded_down() {
        assert_eq!(part(None, 0, None, 7), 0..7);
        for (share, rows) in [(0.0, 0), (0.1, 0), (0.25, 1), (0.5, 3), (0.99, 6), (1.0, 7)] {
            assert_eq!(part(Some(share), 0, None, 7), 0..rows, "{share}");
        }
    }

    #[test]
    fn a_page_is_cut_from_the_share() {
        assert_eq!(part(Some(0.5), 1, Some(10), 10), 1..5);
        assert_eq!(part(None, 8, Some(3), 10), 8..10);
        assert_eq!(part(None, 11, Some(3), 10), 10..10);
        assert_eq!(part(None, u64::MAX, Some(u64::MAX), 10), 10..10);
        assert_eq!(part(None, 2, Some(u64::MAX), 10), 2..10);
        assert_eq!(part(None, 2, Some(0), 10), 2..2);
    }

    #[test]
    fn a_share_that_is_none_is_refused() {
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let said = Query { share: Some(share), ..Query::default() }.check().unwrap_err().to_string();
            assert!(said.contains("from 0 to 1"), "{said}");
        }
        Query { share: Some(-0.0), ..Query::default() }.check().unwrap();
    }
}
