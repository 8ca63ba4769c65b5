//! Call of a method of bytes: [`Call`], and its result: [`Answer`].

use std::cell::OnceCell;
use std::future::Future;
use std::marker::PhantomData;

use bytes::Bytes;

use super::reply::Reply;
use super::request::CallHead;
use crate::codec::{Decode, Encode, Encoded, Payload};
use crate::envelope::{Request, Response};
use crate::metadata::Metadata;
use crate::status::Status;

/// A unary call whose request `Req` is not decoded yet. It is answered at once, into the connection's output, or later
/// by a future.
#[derive(Debug)]
pub struct Call<'a, Req> {
    head: &'a CallHead<'a>,
    /// Built on first use.
    request: OnceCell<Request<()>>,
    payload: &'a Payload<'a>,
    reply: Reply<'a>,
    message: PhantomData<fn() -> Req>,
}

/// A bytes method's result for a [`Call`].
#[derive(Debug)]
pub enum Answer<F> {
    /// The call is answered.
    Done(Answered),
    /// The future yields the answer.
    Later(F),
}

/// Proof that a [`Call`] was answered.
#[derive(Debug)]
pub struct Answered(());

/// A future that yields the answer to a [`Call`].
pub trait Later: Future<Output = Result<Response<Encoded>, Status>> + Send + 'static {}

impl<F: Future<Output = Result<Response<Encoded>, Status>> + Send + 'static> Later for F {}

impl<'a, Req> Call<'a, Req> {
    #[inline]
    pub(super) fn new(
        head: &'a CallHead<'a>,
        request: Option<Request<()>>,
        payload: &'a Payload<'a>,
        mut reply: Reply<'a>,
    ) -> Self {
        reply.begin_message();
        let request = request.map_or_else(OnceCell::new, OnceCell::from);
        Self { head, request, payload, reply, message: PhantomData }
    }

    /// Metadata, deadline and peer, without the message.
    #[inline]
    pub fn request(&self) -> &Request<()> {
        self.request.get_or_init(|| self.head.request(()))
    }

    /// The message's bytes, borrowed.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.payload.as_slice()
    }

    /// The message's bytes, owned: copied if they came in one frame, shared if they came in several.
    pub fn to_bytes(&self) -> Bytes {
        self.payload.again().into_bytes()
    }

    /// The message, decoded.
    #[inline]
    pub fn message(&self) -> Result<Req, Status>
    where
        Req: Decode,
    {
        Req::decode(self.payload.again())
    }

    /// Buffer to append the answer's bytes to, for [`Call::answer`]. Bytes already in it belong to the engine.
    #[inline]
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.reply.message_out()
    }

    /// Answers with what was appended to [`Call::out`].
    #[inline]
    pub fn answer<F>(mut self) -> Answer<F> {
        self.reply.answer(&Metadata::new());
        Answer::Done(Answered(()))
    }

    /// Answers with a message. A message produced while it is sent is produced now.
    #[inline]
    pub fn send<F>(mut self, message: impl Encode) -> Answer<F> {
        let none = Metadata::new();
        match self.reply.only_message(&none, message, &none).map(|source| self.reply.send_all(source)) {
            None => {}
            Some(Ok(())) => self.reply.finish_ok(&none),
            Some(Err(status)) => self.reply.finish(&status),
        }
        Answer::Done(Answered(()))
    }

    /// Answers with a failure.
    #[cold]
    pub fn fail<F>(mut self, status: &Status) -> Answer<F> {
        self.reply.finish(status);
        Answer::Done(Answered(()))
    }

    /// Leaves the answer to a future of the decoded request. A request that cannot be decoded is refused.
    #[inline]
    pub fn later<F>(self, start: impl FnOnce(Request<Req>) -> F) -> Answer<F>
    where
        Req: Decode,
    {
        match self.message() {
            Ok(message) => {
                let payload = self.payload;
                let mut request = self.into_request(message);
                request.set_buffer_bytes(payload.buffer_bytes());
                Answer::Later(start(request))
            }
            Err(status) => self.fail(&status),
        }
    }

    /// As [`Call::later`], with the request's bytes; those that came in one frame are copied.
    pub fn later_with_bytes<F>(self, start: impl FnOnce(Request<Bytes>) -> F) -> Answer<F> {
        let bytes = self.to_bytes();
        Answer::Later(start(self.into_request(bytes)))
    }

    #[inline]
    fn into_request<T>(self, message: T) -> Request<T> {
        match self.request.into_inner() {
            None => self.head.request(message),
            Some(request) => request.map(|()| message),
        }
    }
}
