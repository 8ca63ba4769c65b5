//! Channels of our own engine, configured for loads over gRPC and plain HTTP/2.

use std::time::Duration;

use quire_rpc::client::{self, Settings};
use quire_rpc::http2::{Config, Rate};

use super::Traffic;

/// Time that a request which could not reach the server keeps its slot, so that requests do not spin during an outage.
/// Not part of any measured time.
pub const REST: Duration = Duration::from_millis(10);
/// Delays of reconnecting: short, because a load should see the server come back.
const RECONNECT_FIRST: Duration = Duration::from_millis(5);
const RECONNECT_MAX: Duration = Duration::from_millis(50);
/// Windows and frames so large that an answer never waits for the client.
const STREAM_WINDOW_BYTES: u32 = 64 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 20;
const FRAME_BYTES_MAX: u32 = 256 << 10;
/// Maximum size of an answer's head.
const HEAD_BYTES_MAX: u32 = 1 << 20;
/// A server under load may reset any stream: that is a result, not an attack.
const NO_LIMIT: Rate = Rate { burst_max: u32::MAX, per_second_max: u32::MAX };

/// Settings of a channel with one connection and this many requests in flight.
pub(super) fn settings(in_flight_max: usize) -> Settings {
    let defaults = Settings::default();
    Settings {
        http2: Config {
            stream_window_bytes: STREAM_WINDOW_BYTES,
            connection_window_bytes: CONNECTION_WINDOW_BYTES,
            frame_bytes_max: FRAME_BYTES_MAX,
            header_list_bytes_max: HEAD_BYTES_MAX,
            header_block_bytes_max: HEAD_BYTES_MAX,
            resets: NO_LIMIT,
            control_frames: NO_LIMIT,
            ..defaults.http2
        },
        connections: 1,
        calls_per_connection_max: in_flight_max,
        reconnect_first: RECONNECT_FIRST,
        reconnect_max: RECONNECT_MAX,
        ..defaults
    }
}

/// Pause of a request that could not reach the server.
pub(super) async fn rest() {
    tokio::time::sleep(REST).await;
}

impl From<client::Traffic> for Traffic {
    fn from(traffic: client::Traffic) -> Self {
        Self { sent_bytes: traffic.sent_bytes, received_bytes: traffic.received_bytes }
    }
}
