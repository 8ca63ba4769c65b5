//! Answers in dialects other than plain gRPC: JSON, single-message bodies, trailers in the body.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use quire_http2::{CachedBlock, Head, Indexing};

use super::{COPY_BYTES_MAX, Reply};
use crate::message::compression::Encoding;
use crate::message::framing::{self, Framing, PREFIX_BYTES};
use crate::metadata::Metadata;
use crate::protocol::{Ending, Put, put_metadata, put_status};
use crate::server::browser::{Cors, put_allowed, put_preflight};
use crate::status::Status;

impl Reply<'_> {
    /// Answers a CORS preflight.
    pub(crate) fn preflight(&mut self, head: &Head, cors: &Cors) {
        self.state.is_over = true;
        let Some(origin) = cors.allowed(head) else {
            self.sink.send_head(false, |put| {
                put(b":status", b"403", Indexing::Insert);
                put(b"content-type", b"text/plain; charset=utf-8", Indexing::Literal);
            });
            return self
                .sink
                .send_slice(b"pages of this origin may not call; the server's operator can allow it\n", true);
        };
        self.sink.send_head(true, |put| {
            put(b":status", b"204", Indexing::Insert);
            put_preflight(origin, head, put);
        });
    }

    /// Sends the head; for a single-message body it waits for the message, whose compression it names.
    pub(crate) fn dialect_head(&mut self, metadata: &Metadata) {
        if self.state.head_sent {
            return;
        }
        if self.state.dialect.framing() == Framing::Complete {
            self.templates.held = metadata.clone();
            return;
        }
        let encoding = self.state.compression.map(|(encoding, _)| encoding);
        self.put_head(encoding, false, metadata.is_empty(), |put| put_metadata(metadata, put));
    }

    /// `is_usual`: `more` adds no fields.
    fn put_head(&mut self, encoding: Option<Encoding>, end: bool, is_usual: bool, more: impl FnOnce(Put<'_>)) {
        self.state.head_sent = true;
        let (dialect, origin) = (self.state.dialect, self.state.origin.take());
        let is_usual = is_usual && encoding.is_none() && origin.is_none();
        let mut block = match self.templates.dialect_head.take() {
            Some((known, block)) if is_usual && known == dialect => block,
            _ => CachedBlock::default(),
        };
        self.sink.send_head_cached(&mut block, end, |put| {
            dialect.protocol.put_head(dialect.codec, encoding, put);
            if let Some(origin) = &origin {
                put_allowed(origin, put);
            }
            more(put);
        });
        if is_usual {
            self.templates.dialect_head = Some((dialect, block));
        }
    }

    /// Sends the begun message as the whole answer.
    pub(crate) fn dialect_answer(&mut self, trailers: &Metadata) {
        if self.state.is_over || !self.write_json() || trailers.is_empty() && self.has_answered_at_once() {
            return;
        }
        self.dialect_head(&Metadata::new());
        self.send_written();
        self.dialect_end(Ok(trailers));
    }

    /// Sends head, message and end in one piece, if the answer has nothing else.
    fn has_answered_at_once(&mut self) -> bool {
        let Reply { sink, templates, state, .. } = self;
        let is_usual = !state.head_sent && state.compression.is_none() && state.origin.is_none();
        let Some((dialect, head)) = &templates.dialect_head else { return false };
        let scratch = &mut templates.scratch;
        if !is_usual || *dialect != state.dialect || scratch.len() > COPY_BYTES_MAX {
            return false;
        }
        let length = scratch.len();
        let sent = match (dialect.framing(), dialect.protocol.end(Ok(&Metadata::new()))) {
            (Framing::Complete, Ending::Nothing) => sink.answer(head, &scratch[PREFIX_BYTES..], None),
            (Framing::Envelopes, Ending::Body(end)) => {
                framing::seal(scratch, 0, None);
                scratch.extend_from_slice(&end);
                sink.answer(head, scratch, None)
            }
            _ => false,
        };
        scratch.truncate(length);
        state.head_sent |= sent;
        state.is_over |= sent;
        sent
    }

    /// Writes the begun message as JSON in a JSON call. One that cannot be written ends the answer.
    fn write_json(&mut self) -> bool {
        let Some(json) = &self.state.json else { return true };
        let mut text = std::mem::take(&mut self.templates.text);
        text.clear();
        text.extend_from_slice(&[0; PREFIX_BYTES]);
        let written = json.write(&self.templates.scratch[PREFIX_BYTES..], &mut text);
        self.templates.text = std::mem::replace(&mut self.templates.scratch, text);
        if let Err(status) = &written {
            self.dialect_end(Err(status));
        }
        written.is_ok()
    }

    /// Sends the begun message, unless it waits for the end.
    pub(crate) fn dialect_message(&mut self) {
        if !self.state.is_over && self.write_json() {
            self.send_written();
        }
    }

    fn send_written(&mut self) {
        framing::seal(&mut self.templates.scratch, 0, self.state.compression);
        match self.state.dialect.framing() {
            Framing::Envelopes => self.send_scratch(false),
            Framing::Text => {
                let text = BASE64_STANDARD.encode(&self.templates.scratch);
                self.sink.send_bytes(text.into(), false);
            }
            Framing::Complete => {}
        }
    }

    /// Ends the answer.
    pub(crate) fn dialect_end(&mut self, outcome: Result<&Metadata, &Status>) {
        if std::mem::replace(&mut self.state.is_over, true) {
            return;
        }
        if let Err(status) = outcome {
            self.state.code = status.code();
            self.templates.note_refusal(status);
        }
        let head_sent = self.state.head_sent;
        match self.state.dialect.protocol.end(outcome) {
            Ending::Trailers if head_sent => self.sink.send_head(true, |put| put_outcome(outcome, put)),
            Ending::Trailers => self.put_head(None, true, false, |put| put_outcome(outcome, put)),
            Ending::Body(body) => {
                if !head_sent {
                    let encoding = self.state.compression.map(|(encoding, _)| encoding);
                    self.put_head(encoding, false, true, |_| ());
                }
                self.sink.send_slice(&body, true);
            }
            Ending::Nothing => self.send_unframed(outcome.unwrap_or(&Metadata::new())),
            Ending::Instead { http_status, body } => {
                self.state.head_sent = true;
                let metadata = outcome.err().map(Status::metadata);
                let origin = self.state.origin.take();
                self.sink.send_head(false, |put| {
                    put(b":status", http_status.to_string().as_bytes(), Indexing::Insert);
                    put(b"content-type", b"application/json", Indexing::Insert);
                    if let Some(origin) = &origin {
                        put_allowed(origin, put);
                    }
                    if let Some(metadata) = metadata {
                        put_metadata(metadata, put);
                    }
                });
                self.sink.send_bytes(body.into(), true);
            }
        }
    }

    /// Sends head, message and end of a single-message answer.
    fn send_unframed(&mut self, trailers: &Metadata) {
        let compressed = self.templates.scratch[0] == 1;
        let encoding = self.state.compression.map(|(encoding, _)| encoding).filter(|_| compressed);
        let held = std::mem::take(&mut self.templates.held);
        let is_usual = held.is_empty() && trailers.is_empty();
        self.put_head(encoding, false, is_usual, |put| {
            put_metadata(&held, put);
            for field in trailers.wire() {
                put(&[b"trailer-", field.name()].concat(), field.value(), Indexing::Literal);
            }
        });
        let scratch = &mut self.templates.scratch;
        if scratch.len() <= COPY_BYTES_MAX {
            self.sink.send_slice(&scratch[PREFIX_BYTES..], true);
        } else {
            self.sink.send_bytes(Bytes::from(std::mem::take(scratch)).slice(PREFIX_BYTES..), true);
        }
    }
}

fn put_outcome(outcome: Result<&Metadata, &Status>, put: Put<'_>) {
    match outcome {
        Err(status) => put_status(status, put),
        Ok(metadata) => {
            put(b"grpc-status", b"0", Indexing::Insert);
            put_metadata(metadata, put);
        }
    }
}
