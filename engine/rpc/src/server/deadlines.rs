//! Deadlines that a server sets to calls by their method, beside those of their callers.

use std::time::Duration;

/// Deadlines of a method's calls. By default a call has its caller's, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// A call with a shorter timeout is refused at once with `DEADLINE_EXCEEDED`: its work would be in vain.
    pub least: Option<Duration>,
    /// A longer timeout, or none, is cut to this.
    pub most: Option<Duration>,
    /// Timeout of calls whose callers set none.
    pub usual: Option<Duration>,
    /// A stream on which no message comes in or goes out for this long ends with `DEADLINE_EXCEEDED`.
    pub between_messages: Option<Duration>,
}

impl Deadlines {
    /// Timeout of a call whose caller set this one. It is zero if the caller's is too short.
    pub(super) fn timeout(&self, callers: Option<Duration>) -> Option<Duration> {
        if self.is_too_short(callers) {
            return Some(Duration::ZERO);
        }
        let timeout = callers.or(self.usual);
        timeout.into_iter().chain(self.most).min()
    }

    fn is_too_short(&self, callers: Option<Duration>) -> bool {
        callers.zip(self.least).is_some_and(|(timeout, least)| timeout < least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_refused_cut_or_supplied() {
        let seconds = |seconds: u64| Some(Duration::from_secs(seconds));
        let all = Deadlines { least: seconds(2), most: seconds(9), usual: seconds(5), between_messages: None };
        for (deadlines, callers, expected) in [
            (Deadlines::default(), None, None),
            (Deadlines::default(), seconds(1), seconds(1)),
            (all, None, seconds(5)),
            (all, seconds(1), seconds(0)),
            (all, seconds(2), seconds(2)),
            (all, seconds(10), seconds(9)),
            (Deadlines { usual: None, ..all }, None, seconds(9)),
            (Deadlines { usual: seconds(1), ..all }, None, seconds(1)),
        ] {
            assert_eq!(deadlines.timeout(callers), expected, "{deadlines:?} {callers:?}");
        }
    }
}
