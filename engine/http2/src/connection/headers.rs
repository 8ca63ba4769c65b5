//! HEADERS and CONTINUATION received (RFC 9113 sections 6.2, 6.10 and 8.1): assembly, decoding, opening of streams.
//!
//! Blocks already decoded on the same table are found in a [`super::block_cache`].

use std::sync::Arc;

use super::{Assembly, Connection, Event, Phase, Side};
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{self, flag};
use crate::head::{Head, Section};
use crate::settings::WINDOW_DEFAULT;
use crate::streams::StreamKey;

type Malformed = &'static str;

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

/// The stream a priority depends on (RFC 9113 section 6.3).
pub(super) fn depends_on(priority: [u8; 5]) -> u32 {
    u32::from_be_bytes([priority[0], priority[1], priority[2], priority[3]]) & frame::WINDOW_MAX
}
