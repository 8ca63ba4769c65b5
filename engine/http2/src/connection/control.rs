//! Control frames received: SETTINGS, PING, GOAWAY, WINDOW_UPDATE, RST_STREAM and PRIORITY (RFC 9113 section 6).

use super::headers::depends_on;
use super::{Connection, Event, Phase, Side};
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{self, WINDOW_MAX, flag};
use crate::settings::{Settings, WINDOW_DEFAULT};

/// Payload of our PING whose answer shows that the peer has seen the first GOAWAY.
pub(super) const DRAIN_PING: [u8; 8] = *b"\0drain\0\0";

type Received<'a> = Result<Option<Event<'a>>, ConnectionError>;

impl Connection {
    pub(super) fn settings(&mut self, head: frame::Head, payload: &[u8]) -> Result<(), ConnectionError> {
        if head.stream != 0 {
            return Err(ConnectionError::protocol("SETTINGS on a stream"));
        }
        if head.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(ConnectionError::size("a SETTINGS acknowledgement with a payload"));
            }
            self.settings_acknowledged();
            return self.charge_control();
        }
        self.charge_control()?;
        let before = self.peer;
        self.peer.apply(payload)?;
        if !self.peer_settings_seen {
            self.peer_settings_seen = true;
            self.update_awaiting();
        }
        if self.side == Side::Client && self.peer.push {
            // Clients must not send ENABLE_PUSH (RFC 9113 section 6.5.2); our default of true means nothing here.
            self.peer.push = false;
        }
        if self.peer.header_table_bytes != before.header_table_bytes {
            self.encoder.peer_allows(self.peer.header_table_bytes as usize);
        }
        self.shift_send_windows(i64::from(self.peer.stream_window_bytes) - i64::from(before.stream_window_bytes))?;
        Settings::write_ack(self.output.buffer());
        Ok(())
    }

    /// Applies a changed initial window to every open stream; windows may become negative (RFC 9113 section 6.9.2).
    fn shift_send_windows(&mut self, delta: i64) -> Result<(), ConnectionError> {
        if delta == 0 {
            return Ok(());
        }
        for stream in self.streams.iter_mut() {
            stream.send_window += delta;
            if stream.send_window > i64::from(WINDOW_MAX) {
                return Err(ConnectionError::flow("SETTINGS made a window overflow"));
            }
        }
        if delta > 0 {
            let keys: Vec<_> = self.streams.keys().collect();
            for key in keys {
                self.make_ready(key);
            }
        }
        Ok(())
    }

    fn settings_acknowledged(&mut self) {
        if !self.our_settings_pending {
            return;
        }
        self.our_settings_pending = false;
        self.decoder.limit(self.config.decoder_table_bytes as usize);
        let shortfall = i64::from(WINDOW_DEFAULT) - i64::from(self.config.stream_window_bytes);
        if shortfall > 0 {
            for stream in self.streams.iter_mut() {
                stream.receive_window -= shortfall;
            }
        }
    }

    pub(super) fn ping_received<'a>(&mut self, head: frame::Head, payload: &[u8]) -> Received<'a> {
        if head.stream != 0 {
            return Err(ConnectionError::protocol("PING on a stream"));
        }
        let Ok(payload) = <[u8; 8]>::try_from(payload) else {
            return Err(ConnectionError::size("PING length is not 8"));
        };
        if !head.has(flag::ACK) {
            self.charge_control()?;
            frame::put_ping(self.output.buffer(), true, payload);
            return Ok(None);
        }
        let Some(left) = self.pings_unanswered.checked_sub(1) else {
            return self.charge_control().map(|()| None);
        };
        self.pings_unanswered = left;
        if payload == DRAIN_PING {
            if self.phase == Phase::Announced {
                self.drain_now();
            }
            return Ok(None);
        }
        Ok(Some(Event::Pong(payload)))
    }

    pub(super) fn goaway_received<'a>(&mut self, head: frame::Head, payload: &[u8]) -> Received<'a> {
        if head.stream != 0 {
            return Err(ConnectionError::protocol("GOAWAY on a stream"));
        }
        let (Some(last), Some(code)) = (frame::word(payload), payload.get(4..).and_then(frame::word)) else {
            return Err(ConnectionError::size("GOAWAY shorter than 8"));
        };
        self.charge_control()?;
        let last = last & WINDOW_MAX;
        let code = ErrorCode(code);
        self.peer_goaway = Some(self.peer_goaway.map_or(last, |earlier| earlier.min(last)));
        if self.side == Side::Client {
            let left_out: Vec<_> = self.streams.keys().filter(|key| key.id() > last).collect();
            for stream in left_out {
                self.remove_stream(stream, false);
                self.events.push_back(Event::Reset { stream, code: ErrorCode::REFUSED_STREAM, by_us: false });
            }
        }
        Ok(Some(Event::GoAway { code }))
    }

    pub(super) fn window_update<'a>(&mut self, head: frame::Head, payload: &[u8]) -> Received<'a> {
        let Ok(payload) = <[u8; 4]>::try_from(payload) else {
            return Err(ConnectionError::size("WINDOW_UPDATE length is not 4"));
        };
        let increment = u32::from_be_bytes(payload) & WINDOW_MAX;
        self.charge_update(usize::from(head.stream != 0), increment)?;
        let increment = i64::from(increment);
        if head.stream == 0 {
            if increment == 0 {
                return Err(ConnectionError::protocol("WINDOW_UPDATE by 0"));
            }
            self.send_window += increment;
            if self.send_window > i64::from(WINDOW_MAX) {
                return Err(ConnectionError::flow("the connection's window overflows"));
            }
            return Ok(None);
        }
        let Some(stream) = self.streams.find(head.stream) else {
            return if self.is_idle(head.stream) {
                Err(ConnectionError::protocol("WINDOW_UPDATE on an idle stream"))
            } else {
                Ok(None)
            };
        };
        if increment == 0 {
            return self.stream_fault(head.stream, ErrorCode::PROTOCOL_ERROR);
        }
        let Some(slot) = self.streams.get_mut(stream) else { return Ok(None) };
        slot.send_window += increment;
        if slot.send_window > i64::from(WINDOW_MAX) {
            return self.stream_fault(head.stream, ErrorCode::FLOW_CONTROL_ERROR);
        }
        self.make_ready(stream);
        Ok(None)
    }

    pub(super) fn reset_received<'a>(&mut self, head: frame::Head, payload: &[u8]) -> Received<'a> {
        if head.stream == 0 {
            return Err(ConnectionError::protocol("RST_STREAM on stream 0"));
        }
        let Ok(payload) = <[u8; 4]>::try_from(payload) else {
            return Err(ConnectionError::size("RST_STREAM length is not 4"));
        };
        let Some(stream) = self.streams.find(head.stream) else {
            return if self.is_idle(head.stream) {
                Err(ConnectionError::protocol("RST_STREAM on an idle stream"))
            } else {
                self.charge_control().map(|()| None)
            };
        };
        // After a complete answer a reset spares both sides the rest of the request.
        let answered = self.streams.get(stream).is_some_and(|slot| slot.send_closed);
        match self.side {
            Side::Server if answered => self.charge_control()?,
            Side::Server => self.charge_reset()?,
            Side::Client => {}
        }
        self.remove_stream(stream, false);
        let code = ErrorCode(u32::from_be_bytes(payload));
        Ok(Some(Event::Reset { stream, code, by_us: false }))
    }

    /// Priorities are parsed and ignored (RFC 9113 section 5.3.2).
    pub(super) fn priority<'a>(&mut self, head: frame::Head, payload: &[u8]) -> Received<'a> {
        if head.stream == 0 {
            return Err(ConnectionError::protocol("PRIORITY on stream 0"));
        }
        self.charge_control()?;
        let Ok(payload) = <[u8; 5]>::try_from(payload) else {
            return self.priority_fault(head.stream, ErrorCode::FRAME_SIZE_ERROR);
        };
        if depends_on(payload) == head.stream {
            return self.priority_fault(head.stream, ErrorCode::PROTOCOL_ERROR);
        }
        Ok(None)
    }

    /// Fails the connection if the stream is idle, since an idle stream cannot be reset; resets the stream otherwise.
    fn priority_fault<'a>(&mut self, id: u32, code: ErrorCode) -> Received<'a> {
        if self.is_idle(id) {
            return Err(ConnectionError::new(code, "a broken PRIORITY on an idle stream"));
        }
        self.stream_fault(id, code)
    }
}
