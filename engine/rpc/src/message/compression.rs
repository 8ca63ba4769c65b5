//! Message compression (gRPC over HTTP/2, "Message-Encoding") in both directions, with bounded output.

#[cfg(feature = "zstd")]
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[cfg(any(feature = "gzip", feature = "deflate"))]
use flate2::Compression;
#[cfg(feature = "gzip")]
use flate2::{read::MultiGzDecoder, write::GzEncoder};
#[cfg(feature = "deflate")]
use flate2::{read::ZlibDecoder, write::ZlibEncoder};

use crate::status::Status;

/// Favours speed over size, as the caller waits.
const ZSTD_LEVEL: i32 = 1;
/// Larger windows are refused: a frame may declare gigabytes.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// On a scale of 0 to 11: as fast as gzip, with smaller output.
#[cfg(feature = "brotli")]
const BROTLI_QUALITY: u32 = 3;
/// Base-2 logarithm of the window: 4 MiB, the default message limit.
#[cfg(feature = "brotli")]
const BROTLI_WINDOW_LOG: u32 = 22;
/// Buffer size of brotli's decoder and encoder.
#[cfg(feature = "brotli")]
const BROTLI_BUFFER_BYTES: usize = 4096;

/// Compression of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// RFC 7932; `br`.
    Brotli,
    /// RFC 1950: deflate in zlib's format.
    Deflate,
    /// Snappy's framing format.
    Snappy,
}

/// Encodings we can read, in the form of `grpc-accept-encoding`.
pub(crate) static ACCEPTED: LazyLock<String> = LazyLock::new(|| accepted(Encoding::BUILT));

/// Set of encodings that a caller accepts in responses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accepted(u8);

impl Accepted {
    /// Parses a list of names.
    pub(crate) fn read(names: &[u8]) -> Self {
        let known = names.split(|byte| *byte == b',').filter_map(|name| Encoding::parse(name.trim_ascii()).ok()?);
        Self(known.fold(0, |set, encoding| set | encoding.bit()))
    }

    pub(crate) fn has(self, encoding: Encoding) -> bool {
        self.0 & encoding.bit() != 0
    }
}

/// List in the form of `grpc-accept-encoding`.
pub(crate) fn accepted(encodings: &[Encoding]) -> String {
    let names = encodings.iter().map(|encoding| encoding.name());
    std::iter::once("identity").chain(names).collect::<Vec<_>>().join(",")
}

impl Encoding {
    /// Encodings enabled by the crate's features; any other counts as unknown.
    pub(crate) const BUILT: &[Self] = &[
        #[cfg(feature = "gzip")]
        Self::Gzip,
        #[cfg(feature = "zstd")]
        Self::Zstd,
        #[cfg(feature = "brotli")]
        Self::Brotli,
        #[cfg(feature = "deflate")]
        Self::Deflate,
        #[cfg(feature = "snappy")]
        Self::Snappy,
    ];

    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The name in `grpc-encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
        }
    }

    /// Parses a name; `None` for no compression, an error for an unknown name.
    pub(crate) fn parse(name: &[u8]) -> Result<Option<Self>, ()> {
        if name == b"identity" {
            return Ok(None);
        }
        Self::BUILT.iter().copied().find(|encoding| encoding.name().as_bytes() == name).map(Some).ok_or(())
    }

    pub(crate) fn compress(self, message: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => {
                let mut encoder = GzEncoder::new(out, Compression::fast());
                encoder.write_all(message)?;
                encoder.finish().map(|_| ())
            }
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                encoder.write_all(message)?;
                encoder.finish().map(|_| ())
            }
            #[cfg(feature = "brotli")]
            Self::Brotli => {
                let mut encoder =
                    brotli::CompressorWriter::new(out, BROTLI_BUFFER_BYTES, BROTLI_QUALITY, BROTLI_WINDOW_LOG);
                encoder.write_all(message)?;
                let _ = encoder.into_inner();
                Ok(())
            }
            #[cfg(feature = "deflate")]
            Self::Deflate => {
                let mut encoder = ZlibEncoder::new(out, Compression::fast());
                encoder.write_all(message)?;
                encoder.finish().map(|_| ())
            }
            #[cfg(feature = "snappy")]
            Self::Snappy => {
                let mut encoder = snap::write::FrameEncoder::new(out);
                encoder.write_all(message)?;
                encoder.into_inner().map(|_| ()).map_err(snap::write::IntoInnerError::into_error)
            }
            #[cfg(not(all(
                feature = "gzip",
                feature = "zstd",
                feature = "brotli",
                feature = "deflate",
                feature = "snappy"
            )))]
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Decompresses at most `bytes_max` into an empty `out`; stops there, however much more the message claims to hold.
    fn decompress(self, message: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<(), Status> {
        #[cfg(feature = "zstd")]
        if let (Self::Zstd, Some(plain)) = (self, zstd_at_once(message, bytes_max)) {
            *out = plain;
            return Ok(());
        }
        let limit = bytes_max as u64 + 1;
        let read: io::Result<usize> = match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => MultiGzDecoder::new(message).take(limit).read_to_end(out),
            #[cfg(feature = "zstd")]
            Self::Zstd => zstd_decoder(message).and_then(|decoder| decoder.take(limit).read_to_end(out)),
            #[cfg(feature = "brotli")]
            Self::Brotli => brotli::Decompressor::new(message, BROTLI_BUFFER_BYTES).take(limit).read_to_end(out),
            #[cfg(feature = "deflate")]
            Self::Deflate => ZlibDecoder::new(message).take(limit).read_to_end(out),
            #[cfg(feature = "snappy")]
            Self::Snappy => snap::read::FrameDecoder::new(message).take(limit).read_to_end(out),
            #[cfg(not(all(
                feature = "gzip",
                feature = "zstd",
                feature = "brotli",
                feature = "deflate",
                feature = "snappy"
            )))]
            _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
        };
        match read {
            Ok(_) if out.len() > bytes_max => Err(too_large(out.len(), bytes_max)),
            Ok(_) => Ok(()),
            Err(error) => Err(Status::internal(format!("the message is no valid {}: {error}", self.name()))),
        }
    }

    /// True if its decoder does the work of a whole window whatever is read of it.
    fn fills_window(self) -> bool {
        self.name() == "br"
    }
}

/// Decompressed bytes that each compressed byte may hold free of budget. Gzip and deflate reach at most 1032.
const FREE_RATIO: usize = 1100;
/// Bytes returned to a budget each second.
const BUDGET_BYTES_PER_SECOND: usize = 4 * 1024 * 1024;
/// Time without Brotli for a connection whose message outran the budget.
const OVERSPENT_PAUSE: Duration = Duration::from_secs(1);
/// Least budget, however small the largest message is.
const BUDGET_BYTES_MIN: usize = 8 * 1024 * 1024;

/// A connection's budget for decompressed bytes beyond [`FREE_RATIO`] times the compressed ones: two messages of the
/// largest size or [`BUDGET_BYTES_MIN`], then [`BUDGET_BYTES_PER_SECOND`]. 14 bytes may hold four megabytes, at the cost of thousands of calls.
#[derive(Debug, Default)]
pub(crate) struct Budget(Mutex<Spent>);

#[derive(Debug, Default)]
struct Spent {
    bytes: usize,
    /// Time of that count; `None` before the first message.
    at: Option<Instant>,
    /// End of the time without Brotli after a message that outran the budget. Its decoder fills its window however little
    /// is read: milliseconds for 20 bytes. Other decoders stop where reading stops.
    refused_until: Option<Instant>,
}

impl Budget {
    /// Decompresses at most `bytes_max`, as far as the budget allows.
    pub(crate) fn decompress(
        &self,
        encoding: Encoding,
        message: &[u8],
        bytes_max: usize,
        now: Instant,
    ) -> Result<Vec<u8>, Status> {
        if encoding.fills_window()
            && self.0.lock().unwrap_or_else(PoisonError::into_inner).refused_until.is_some_and(|until| now < until)
        {
            return Err(overspent());
        }
        let free = message.len().saturating_mul(FREE_RATIO);
        let left = self.left(bytes_max.saturating_mul(2).max(BUDGET_BYTES_MIN), now);
        let allowed = bytes_max.min(free.saturating_add(left));
        let mut out = Vec::new();
        let done = encoding.decompress(message, allowed, &mut out);
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spent.bytes = spent.bytes.saturating_add(out.len().saturating_sub(free));
        match done {
            Err(_) if allowed < bytes_max && out.len() > allowed => {
                spent.refused_until = Some(now + OVERSPENT_PAUSE);
                Err(overspent())
            }
            done => done.map(|()| out),
        }
    }

    fn left(&self, most: usize, now: Instant) -> usize {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.bytes > 0 {
            let since = spent.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
            let back = since.as_millis().saturating_mul(BUDGET_BYTES_PER_SECOND as u128) / 1000;
            spent.bytes = spent.bytes.saturating_sub(usize::try_from(back).unwrap_or(usize::MAX));
        }
        spent.at = Some(now);
        most.saturating_sub(spent.bytes)
    }
}

#[cold]
fn overspent() -> Status {
    Status::resource_exhausted(format!(
        "the connection's compressed messages hold more than {FREE_RATIO} times their bytes: send fewer of them, or send \
         them uncompressed"
    ))
}

/// Decompresses a frame that states its content's size, into exactly that much memory; `None` for any other message.
#[cfg(feature = "zstd")]
fn zstd_at_once(message: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    thread_local! {
        static DECOMPRESSOR: RefCell<zstd::bulk::Decompressor<'static>> = RefCell::default();
    }
    let length = usize::try_from(zstd::zstd_safe::get_frame_content_size(message).ok()??).ok()?;
    if length > bytes_max {
        return None;
    }
    DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(message, length)).ok()
}

#[cfg(feature = "zstd")]
fn zstd_decoder(message: &[u8]) -> io::Result<impl Read + '_> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(message)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

pub(crate) fn too_large(bytes: usize, bytes_max: usize) -> Status {
    Status::resource_exhausted(format!("a message of {bytes} bytes or more; the limit is {bytes_max}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Code;

    fn plain(encoding: Encoding, message: &[u8], bytes_max: usize) -> Result<Vec<u8>, Status> {
        let mut out = Vec::new();
        encoding.decompress(message, bytes_max, &mut out).map(|()| out)
    }

    #[test]
    fn all_encodings_round_trip() {
        for encoding in Encoding::BUILT {
            for message in [&b""[..], b"x", &vec![7; 100_000]] {
                let mut packed = Vec::new();
                encoding.compress(message, &mut packed).unwrap();
                assert_eq!(plain(*encoding, &packed, 100_000).unwrap(), message);
            }
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        assert!(ACCEPTED.starts_with("identity,gzip,zstd"));
        for encoding in Encoding::BUILT {
            assert_eq!(Encoding::parse(encoding.name().as_bytes()), Ok(Some(*encoding)));
            assert!(Accepted::read(ACCEPTED.as_bytes()).has(*encoding));
        }
        assert_eq!(accepted(&[]), "identity");
    }

    #[test]
    fn bomb_is_cut_at_the_limit() {
        for encoding in Encoding::BUILT {
            let mut packed = Vec::new();
            encoding.compress(&vec![0; 50_000_000], &mut packed).unwrap();
            // Snappy needs a copy element for every 64 bytes.
            assert!(packed.len() < 5_000_000);
            let status = plain(*encoding, &packed, 1000).unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
        }
    }

    #[test]
    fn zstd_that_says_its_length_is_read_whole_and_within_the_limit() {
        let message = vec![7; 1000];
        let packed = zstd::bulk::compress(&message, 1).unwrap();
        assert_eq!(zstd_at_once(&packed, 1000).unwrap(), message);
        assert!(zstd_at_once(&packed, 999).is_none());
        assert_eq!(plain(Encoding::Zstd, &packed, 999).unwrap_err().code(), Code::ResourceExhausted);
        let twice = plain(Encoding::Zstd, &packed.repeat(2), 2000).unwrap();
        assert_eq!(twice.len(), 2000, "the first frame's length is not the message's");
    }

    #[test]
    fn what_comes_out_of_small_messages_is_bounded_by_the_connections_budget_and_not_by_their_number() {
        const BYTES_MAX: usize = 4 << 20;
        for encoding in Encoding::BUILT {
            let (mut now, budget) = (Instant::now(), Budget::default());
            let mut packed = Vec::new();
            encoding.compress(&vec![0; BYTES_MAX], &mut packed).unwrap();
            let whole =
                |now| (0..100).filter(|_| budget.decompress(*encoding, &packed, BYTES_MAX, now).is_ok()).count();
            if packed.len() >= BYTES_MAX / FREE_RATIO {
                assert_eq!(whole(now), 100, "{}", encoding.name());
                continue;
            }
            assert_eq!(whole(now), 2, "{}", encoding.name());
            let refused = budget.decompress(*encoding, &packed, BYTES_MAX, now).unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted);
            let mut honest = Vec::new();
            encoding.compress(b"a short message", &mut honest).unwrap();
            let is_served = budget.decompress(*encoding, &honest, BYTES_MAX, now).is_ok();
            assert_eq!(is_served, !encoding.fills_window(), "{}", encoding.name());
            now += OVERSPENT_PAUSE;
            assert!(budget.decompress(*encoding, &honest, BYTES_MAX, now).is_ok(), "{}", encoding.name());
            assert_eq!(whole(now), 1, "{}", encoding.name());
            now += Duration::from_mins(1);
            assert_eq!(whole(now), 2, "{}", encoding.name());
        }
    }

    #[test]
    fn garbage_is_an_error_and_not_a_panic() {
        for encoding in Encoding::BUILT {
            assert_eq!(plain(*encoding, b"garbage", 1000).unwrap_err().code(), Code::Internal);
        }
    }
}
