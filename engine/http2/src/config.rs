//! Limits of a connection, and the token bucket that enforces its rates.
//!
//! Implements: RFC 9113 sections 6.5.2 (settings) and 10.5 (denial-of-service considerations).

/// Rate limit: a burst and a refill per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Largest burst.
    pub burst_max: u32,
    /// Long-run rate.
    pub per_second_max: u32,
}

/// Limits of one connection; the defaults suit a small machine and an untrusted peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Streams the peer may have open at once; more are refused with `REFUSED_STREAM`.
    pub concurrent_streams_max: u32,
    /// Bytes a stream may receive ahead of the application.
    pub stream_window_bytes: u32,
    /// Bytes all streams together may receive before the connection reads them.
    pub connection_window_bytes: u32,
    /// Largest frame payload we accept; also how much must be buffered to parse it.
    pub frame_bytes_max: u32,
    /// Dynamic table the peer may use for what it sends us.
    pub decoder_table_bytes: u32,
    /// Dynamic table we use for what we send, capped by what the peer allows.
    pub encoder_table_bytes_max: u32,
    /// Decoded size of a header list (RFC 9113 section 6.5.2); a larger one is truncated and marked.
    pub header_list_bytes_max: u32,
    /// Encoded size of a header block over all its frames; a larger one closes the connection.
    pub header_block_bytes_max: u32,
    /// CONTINUATION frames of one header block; more close the connection.
    pub continuation_frames_max: u32,
    /// Streams the peer may reset, or make us reset, beyond those it completes.
    pub resets: Rate,
    /// Frames without useful payload (SETTINGS, PING and answers to no PING, PRIORITY, WINDOW_UPDATE but for those that
    /// return at least 256 bytes of DATA we sent, DATA of fewer than five bytes that does not end its stream, HEADERS for
    /// a stream that was reset, unknown types) beyond what useful traffic earns.
    pub control_frames: Rate,
    /// Buffered output above which bodies stay queued in their streams.
    pub output_bytes_target: usize,
    /// Time for the preface and first SETTINGS, and for a header block from its first frame to its last.
    pub handshake_ms_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrent_streams_max: 256,
            stream_window_bytes: 256 * 1024,
            connection_window_bytes: 1024 * 1024,
            frame_bytes_max: 16 * 1024,
            decoder_table_bytes: 4096,
            encoder_table_bytes_max: 4096,
            header_list_bytes_max: 16 * 1024,
            header_block_bytes_max: 32 * 1024,
            continuation_frames_max: 16,
            resets: Rate { burst_max: 500, per_second_max: 100 },
            control_frames: Rate { burst_max: 2_000, per_second_max: 500 },
            output_bytes_target: 128 * 1024,
            handshake_ms_max: 10_000,
        }
    }
}

/// Token bucket against floods: refilled by time and by useful traffic, drained by frames that cost us and carry nothing.
#[derive(Debug)]
pub(crate) struct Budget {
    rate: Rate,
    tokens: u32,
    refilled_at_ms: u64,
}

impl Budget {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, tokens: rate.burst_max, refilled_at_ms: 0 }
    }

    /// Takes one token; false if none is left.
    pub(crate) fn spend(&mut self, now_ms: u64) -> bool {
        if self.tokens == 0 {
            self.refill(now_ms);
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }

    #[inline]
    pub(crate) fn earn(&mut self, tokens: u32) {
        self.tokens = self.tokens.saturating_add(tokens).min(self.rate.burst_max);
    }

    fn refill(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.refilled_at_ms);
        let due = u64::from(self.rate.per_second_max).saturating_mul(elapsed_ms) / 1000;
        if due > 0 {
            self.refilled_at_ms = now_ms;
            self.earn(u32::try_from(due).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empties_refills_with_time_and_never_overflows() {
        let mut budget = Budget::new(Rate { burst_max: 3, per_second_max: 2 });
        assert!((0..3).all(|_| budget.spend(0)));
        assert!(!budget.spend(499));
        assert!(budget.spend(500) && !budget.spend(500));
        budget.earn(u32::MAX);
        assert!((0..3).all(|_| budget.spend(500)));
        assert!(!budget.spend(500));
    }
}
