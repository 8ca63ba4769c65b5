//! Frames received (RFC 9113 sections 6 and 8.1): header blocks, with assembly, decoding and the opening of streams; DATA
//! and its flow control; and control frames.
//!
//! Blocks already decoded on the same table are found in a [`super::heads`]. The connection's window is replenished
//! as soon as bytes are read, so a stream that is not consumed stalls only itself; a stream's window when its bytes are
//! consumed. WINDOW_UPDATE is sent once half the window is used, not per frame.

use std::sync::Arc;

use super::{Assembly, Connection, Event, Phase, Side, USEFUL_BYTES};
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{self, Settings, WINDOW_DEFAULT, WINDOW_MAX, flag};
use crate::head::{Head, Section};
use crate::streams::StreamKey;

type Malformed = &'static str;

/// Payload of our PING whose answer shows that the peer has seen the first GOAWAY.
pub(super) const DRAIN_PING: [u8; 8] = *b"\0drain\0\0";

type Received<'a> = Result<Option<Event<'a>>, ConnectionError>;

/// Header blocks.
impl Connection {
    pub(super) fn headers<'a>(
        &mut self,
        head: frame::Head,
        payload: &[u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if head.stream == 0 {
            return Err(ConnectionError::protocol("HEADERS on stream 0"));
        }
        let mut block = frame::strip_padding(head, payload)?;
        let mut self_dependent = false;
        if head.has(flag::PRIORITY) {
            let Some((priority, rest)) = block.split_first_chunk::<5>() else {
                return Err(ConnectionError::size("HEADERS too short for its priority"));
            };
            self_dependent = depends_on(*priority) == head.stream;
            block = rest;
        }
        let end = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.block(head.stream, end, self_dependent, block);
        }
        self.check_block_size(block.len())?;
        self.assembly =
            Some(Assembly { stream: head.stream, end, self_dependent, continuations: 0, block: block.to_vec() });
        self.update_awaiting();
        Ok(None)
    }

    pub(super) fn continuation<'a>(
        &mut self,
        head: frame::Head,
        payload: &[u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Some(mut assembly) = self.assembly.take() else {
            return Err(ConnectionError::protocol("CONTINUATION without HEADERS"));
        };
        if assembly.stream != head.stream {
            return Err(ConnectionError::protocol("CONTINUATION of another stream"));
        }
        assembly.continuations += 1;
        if assembly.continuations > self.config.continuation_frames_max {
            return Err(ConnectionError::calm("too many CONTINUATION frames"));
        }
        self.check_block_size(assembly.block.len() + payload.len())?;
        assembly.block.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            self.assembly = Some(assembly);
            return Ok(None);
        }
        self.update_awaiting();
        self.block(assembly.stream, assembly.end, assembly.self_dependent, &assembly.block)
    }

    fn check_block_size(&self, bytes: usize) -> Result<(), ConnectionError> {
        if bytes > self.config.header_block_bytes_max as usize {
            return Err(ConnectionError::calm("a header block larger than allowed"));
        }
        Ok(())
    }

    #[inline]
    fn block<'a>(
        &mut self,
        id: u32,
        end: bool,
        self_dependent: bool,
        block: &[u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        self.check_block_size(block.len())?;
        let known = if self.is_idle(id) { None } else { self.streams.find(id) };
        let first = known.is_none_or(|key| self.streams.get(key).is_none_or(|stream| !stream.head_seen));
        let section = match (self.side, known.is_some(), first) {
            (Side::Server, false, _) => Section::Request,
            (Side::Client, true, true) => Section::Response,
            _ => Section::Trailers,
        };
        // Decoded even if the fields are dropped: our table must stay in step with the peer's.
        let head = self.decode(section, block)?;
        if self_dependent {
            return self.refuse_block(id, ErrorCode::PROTOCOL_ERROR);
        }
        match (self.side, known) {
            (Side::Server, None) => self.request(id, end, head),
            (Side::Client, Some(stream)) if first => self.response(stream, end, head),
            (_, Some(stream)) => self.trailers(stream, end, head),
            (Side::Client, None) if self.is_idle(id) => Err(ConnectionError::protocol("HEADERS on an idle stream")),
            (Side::Client, None) => self.charge_control().map(|()| None),
        }
    }

    #[inline]
    fn decode(&mut self, section: Section, block: &[u8]) -> Result<Result<Arc<Head>, Malformed>, ConnectionError> {
        if let Some(head) = self.block_cache.get(section, block, self.decoder.generation()) {
            return Ok(Ok(Arc::clone(head)));
        }
        let mut fields = Vec::with_capacity(12);
        let decoded = self.decoder.decode(block, self.config.header_list_bytes_max as usize, &mut fields)?;
        let head = match Head::new(fields, section, decoded.oversized) {
            Ok(head) => Arc::new(head),
            Err(reason) => return Ok(Err(reason)),
        };
        if decoded.repeatable {
            self.block_cache.put(section, block, self.decoder.generation(), &head);
        }
        Ok(Ok(head))
    }

    fn request<'a>(
        &mut self,
        id: u32,
        end: bool,
        head: Result<Arc<Head>, Malformed>,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if id.is_multiple_of(2) {
            return Err(ConnectionError::protocol("a client's stream with an even identifier"));
        }
        if id <= self.last_peer_stream {
            return match self.streams.lately_closed(id) {
                Some(true) => self.charge_control().map(|()| None),
                Some(false) => Err(ConnectionError::new(ErrorCode::STREAM_CLOSED, "HEADERS on a closed stream")),
                None => Err(ConnectionError::protocol("a new stream below the last one")),
            };
        }
        if self.phase == Phase::Draining {
            // The GOAWAY has announced that this stream is not processed.
            return self.charge_control().map(|()| None);
        }
        self.last_peer_stream = id;
        let Ok(head) = head else { return self.refuse_block(id, ErrorCode::PROTOCOL_ERROR) };
        if self.streams.live() >= self.config.concurrent_streams_max as usize {
            return self.refuse_block(id, ErrorCode::REFUSED_STREAM);
        }
        if end && head.content_length().is_some_and(|length| length > 0) {
            return self.refuse_block(id, ErrorCode::PROTOCOL_ERROR);
        }
        self.control_frames.earn(4);
        Ok(Some(self.begin_request(id, head, end)))
    }

    pub(super) fn begin_request(&mut self, id: u32, head: Arc<Head>, end: bool) -> Event<'static> {
        let stream = self.insert(id);
        if let Some(slot) = self.streams.get_mut(stream) {
            slot.receive_closed = end;
            slot.content_left = head.content_length();
            slot.head_seen = true;
        }
        Event::Headers { stream, head, end }
    }

    /// Inserts a stream that the peer opened.
    pub(super) fn insert(&mut self, id: u32) -> StreamKey {
        let receive_window = self.new_receive_window();
        self.streams.insert(id, receive_window, i64::from(self.peer.stream_window_bytes))
    }

    /// Window of a new stream: until our settings are acknowledged, the peer may assume the larger default.
    pub(super) fn new_receive_window(&self) -> i64 {
        let ours = self.config.stream_window_bytes;
        i64::from(if self.our_settings_pending { ours.max(WINDOW_DEFAULT) } else { ours })
    }

    fn response<'a>(
        &mut self,
        stream: StreamKey,
        end: bool,
        head: Result<Arc<Head>, Malformed>,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Ok(head) = head else { return self.refuse_block(stream.id(), ErrorCode::PROTOCOL_ERROR) };
        let informational = head.status_code().is_some_and(|code| (100..200).contains(&code));
        if informational {
            return if end {
                self.refuse_block(stream.id(), ErrorCode::PROTOCOL_ERROR)
            } else {
                self.charge_control().map(|()| None)
            };
        }
        if let Some(slot) = self.streams.get_mut(stream) {
            slot.head_seen = true;
            slot.content_left = head.content_length().filter(|_| !end);
        }
        if end {
            self.receive_ended(stream);
        }
        Ok(Some(Event::Headers { stream, head, end }))
    }

    fn trailers<'a>(
        &mut self,
        stream: StreamKey,
        end: bool,
        head: Result<Arc<Head>, Malformed>,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let (closed, content_left) = match self.streams.get(stream) {
            Some(slot) => (slot.receive_closed, slot.content_left),
            None => (true, None),
        };
        if closed {
            return self.refuse_block(stream.id(), ErrorCode::STREAM_CLOSED);
        }
        match head {
            Ok(head) if end && content_left.unwrap_or(0) == 0 => {
                self.receive_ended(stream);
                Ok(Some(Event::Trailers { stream, head }))
            }
            _ => self.refuse_block(stream.id(), ErrorCode::PROTOCOL_ERROR),
        }
    }

    fn refuse_block<'a>(&mut self, id: u32, code: ErrorCode) -> Result<Option<Event<'a>>, ConnectionError> {
        if self.side == Side::Server && id > self.last_peer_stream {
            self.last_peer_stream = id;
        }
        self.stream_fault(id, code)
    }

    /// Records that the peer's side has ended; frees the slot if ours has too.
    pub(super) fn receive_ended(&mut self, stream: StreamKey) {
        let Some(slot) = self.streams.get_mut(stream) else { return };
        slot.receive_closed = true;
        if slot.send_closed {
            self.remove_stream(stream, false);
            self.resets.earn(1);
        }
    }
}

/// DATA.
impl Connection {
    #[inline]
    pub(super) fn data<'a>(
        &mut self,
        head: frame::Head,
        payload: &'a [u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if head.stream == 0 {
            return Err(ConnectionError::protocol("DATA on stream 0"));
        }
        self.take_connection_window(head.length)?;
        let end = head.has(flag::END_STREAM);
        let data = frame::strip_padding(head, payload)?;
        if data.len() >= USEFUL_BYTES || end {
            self.control_frames.earn(2);
        } else {
            self.charge_control()?;
        }
        let Some(stream) = self.streams.find(head.stream) else { return self.data_on_closed(head.stream) };
        let Some(slot) = self.streams.get_mut(stream) else { return Ok(None) };
        if slot.receive_closed {
            return self.stream_fault(head.stream, ErrorCode::STREAM_CLOSED);
        }
        if i64::from(head.length) > slot.receive_window {
            return self.stream_fault(head.stream, ErrorCode::FLOW_CONTROL_ERROR);
        }
        slot.receive_window -= i64::from(head.length);
        let length = data.len() as u64;
        if let Some(left) = slot.content_left {
            match left.checked_sub(length) {
                Some(left) if left == 0 || !end => slot.content_left = Some(left),
                _ => return self.stream_fault(head.stream, ErrorCode::PROTOCOL_ERROR),
            }
        }
        if end {
            self.receive_ended(stream);
        } else if head.has(flag::PADDED) {
            self.release(stream, payload.len() - data.len());
        }
        Ok(Some(Event::Data { stream, data, end }))
    }

    #[inline]
    fn take_connection_window(&mut self, length: u32) -> Result<(), ConnectionError> {
        if i64::from(length) > self.receive_window {
            return Err(ConnectionError::flow("more DATA than the connection's window"));
        }
        self.count_received(length);
        Ok(())
    }

    /// Deducts a length from the connection's window; sends WINDOW_UPDATE once half of it is used.
    #[inline]
    pub(super) fn count_received(&mut self, length: u32) {
        self.receive_window -= i64::from(length);
        self.unannounced += length;
        if self.unannounced >= self.config.connection_window_bytes / 2 {
            frame::put_window_update(self.output.buffer(), 0, self.unannounced);
            self.receive_window += i64::from(self.unannounced);
            self.unannounced = 0;
        }
    }

    fn data_on_closed<'a>(&mut self, id: u32) -> Result<Option<Event<'a>>, ConnectionError> {
        if self.is_idle(id) {
            return Err(ConnectionError::protocol("DATA on an idle stream"));
        }
        if self.streams.lately_closed(id) == Some(true) {
            // It was in flight when we reset the stream.
            return self.charge_control().map(|()| None);
        }
        self.stream_fault(id, ErrorCode::STREAM_CLOSED)
    }

    /// Returns window to the stream: the application has consumed `bytes` of its DATA.
    pub fn release(&mut self, stream: StreamKey, bytes: usize) {
        let threshold = (self.config.stream_window_bytes / 2).max(1);
        let Some(slot) = self.streams.get_mut(stream) else { return };
        if slot.receive_closed {
            return;
        }
        slot.unannounced = slot.unannounced.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if slot.unannounced >= threshold {
            let increment = slot.unannounced.min(WINDOW_MAX);
            slot.receive_window += i64::from(increment);
            slot.unannounced = 0;
            frame::put_window_update(self.output.buffer(), stream.id(), increment);
        }
    }
}

/// Control frames.
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

/// The stream a priority depends on (RFC 9113 section 6.3).
fn depends_on(priority: [u8; 5]) -> u32 {
    u32::from_be_bytes([priority[0], priority[1], priority[2], priority[3]]) & WINDOW_MAX
}
