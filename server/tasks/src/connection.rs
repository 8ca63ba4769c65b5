//! One client connection: reads lines, runs their tasks, and writes replies in request order.
//!
//! A connection is one task of the runtime and owns its requests, so they end with it. Everything it holds is bounded:
//! one read, the requests in flight, and the unread replies.

use std::{
    io::ErrorKind,
    mem::MaybeUninit,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesOrdered};
use hosting::{Client, Permit, access::Challenge};
use quire_net::QUIET_MAX;
use quire_rpc::server::ListedCaller;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    fault::Fault,
    line::{self, BadLine, Form, Line, Lines},
    runner::{Runner, Slot},
    task::Task,
};

/// Size of a read, and so the limit of bytes not yet split into lines.
const READ_BYTES: usize = 8192;

/// Bytes of unread replies above which no more requests are read.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// Time that the server discards input after the last reply. Closing at once would make the system report an error to
/// the client, which might then never see the replies.
const LINGER: Duration = Duration::from_secs(1);

/// Result of a request.
enum Answer {
    Result(Form, u8),
    /// An error, for the text form.
    Error(BadLine),
    Failed(Form, Fault),
}

/// A client's connection.
pub(crate) struct Connection<S> {
    stream: S,
    runner: Arc<Runner>,
    lines: Lines,
    form: Form,
    /// Client that its tasks are scheduled for.
    client: Client,
    /// Pending authentication, before the first task.
    challenge: Option<Box<Challenge>>,
    /// Completes when the credential is revoked.
    revoked: Option<BoxFuture<'static, ()>>,
    /// The client showed a valid credential.
    is_known: bool,
    /// Bytes read and not yet split into lines.
    input: Vec<u8>,
    /// Unanswered requests, oldest first, each with its slot until the reply is written.
    waiting: FuturesOrdered<BoxFuture<'static, (Answer, Slot)>>,
    /// Replies; the first `written` bytes have been sent.
    output: Vec<u8>,
    written: usize,
    /// Set by a drain: the end of reading if no task comes.
    reads_until: Option<Instant>,
    /// No more is read than what has been.
    is_last_read: bool,
    /// Set once no more is read: the reason to report when everything has been answered.
    ending: Option<Closed>,
    /// Set once the last reply is sent: input is discarded until then.
    lingering_until: Option<Instant>,
    /// Last time the client sent a request or read replies.
    active_at: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S, runner: Arc<Runner>, client: Client, challenge: Option<Box<Challenge>>) -> Self {
        Self {
            stream,
            lines: Lines::new(runner.limits.line_bytes),
            runner,
            form: Form::default(),
            client,
            challenge,
            revoked: None,
            is_known: false,
            input: Vec::new(),
            waiting: FuturesOrdered::new(),
            output: Vec::new(),
            written: 0,
            reads_until: None,
            is_last_read: false,
            ending: None,
            lingering_until: None,
            active_at: Instant::now(),
        }
    }

    /// Serves the client until either side ends the connection.
    pub(crate) async fn serve(
        &mut self,
        permit: Option<&Permit>,
        caller: &ListedCaller,
        mut stop: watch::Receiver<bool>,
    ) -> Closed {
        let mut timer = pin!(sleep_until(self.active_at + self.runner.limits.idle));
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        std::future::poll_fn(|context| {
            // An error means that the sender is gone, which ends the connection too.
            if self.reads_until.is_none() && stopped.as_mut().poll(context).is_ready() {
                self.reads_until = Some(self.active_at + QUIET_MAX);
                self.is_last_read = self.is_busy();
            }
            if self.ending.is_none() && permit.is_some_and(|permit| permit.poll_leave(context).is_ready()) {
                self.end(Closed::Replaced);
            }
            loop {
                let polled = self.poll(context);
                if let Some(permit) = permit {
                    permit.set_busy(self.is_busy());
                    if self.is_known {
                        permit.known().store(true, Relaxed);
                        caller.note_client(&self.client);
                    }
                }
                if let Poll::Ready(closed) = polled {
                    return Poll::Ready(closed);
                }
                let Some(deadline) = self.deadline() else { return Poll::Pending };
                // Deadlines mostly move later; the timer follows when it expires, not with every request.
                if timer.deadline() > deadline {
                    timer.as_mut().reset(deadline);
                }
                ready!(timer.as_mut().poll(context));
                if Instant::now() < deadline {
                    timer.as_mut().reset(deadline);
                } else if self.ending.is_none() && self.reads_until.is_some_and(|until| until <= deadline) {
                    self.end(Closed::Drained);
                } else {
                    return Poll::Ready(self.time_out());
                }
            }
        })
        .await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Closed> {
        if self.lingering_until.is_some() {
            return self.poll_linger(context);
        }
        loop {
            if self.revoked.as_mut().is_some_and(|revoked| revoked.as_mut().poll(context).is_ready()) {
                return Poll::Ready(Closed::Denied("the credential was revoked".to_owned()));
            }
            self.collect_answers(context);
            self.take_lines();
            if let Err(error) = self.poll_write(context) {
                return Poll::Ready(Closed::Broken(error));
            }
            if self.is_last_read && self.input.is_empty() {
                self.end(Closed::Drained);
            }
            if self.ending.is_some() {
                if self.waiting.is_empty() && self.output.is_empty() {
                    return self.poll_close(context);
                }
                // This task is woken by a request in flight, or by room for replies. Requests added since answers were
                // collected have not been polled yet.
                if self.waiting.is_empty() || !self.collect_answers(context) {
                    return Poll::Pending;
                }
                continue;
            }
            if !self.input.is_empty() && self.has_room() {
                continue;
            }
            match self.poll_read(context) {
                Poll::Ready(Err(error)) => return Poll::Ready(Closed::Broken(error)),
                Poll::Pending if !self.collect_answers(context) => return Poll::Pending,
                _ => {}
            }
        }
    }

    /// True if a request waits for its reply, or a reply for the client.
    fn is_busy(&self) -> bool {
        !(self.waiting.is_empty() && self.output.is_empty())
    }

    /// Time at which the connection times out, or a drain ends its reading; `None` while tasks run.
    fn deadline(&self) -> Option<Instant> {
        let limits = &self.runner.limits;
        let timeout = match self.lingering_until {
            Some(until) => Some(until),
            None if !self.output.is_empty() => Some(self.active_at + limits.unread),
            None if self.waiting.is_empty() => Some(self.active_at + limits.idle),
            None => None,
        };
        let reads_until = self.reads_until.filter(|_| self.ending.is_none());
        timeout.into_iter().chain(reads_until).min()
    }

    /// Returns the reason for the timeout.
    fn time_out(&mut self) -> Closed {
        match self.lingering_until {
            Some(_) => self.take_reason(),
            None if !self.output.is_empty() => Closed::Unread,
            None => Closed::Idle,
        }
    }

    fn take_reason(&mut self) -> Closed {
        self.ending.take().unwrap_or(Closed::Finished)
    }

    /// Stops reading. The first reason counts.
    fn end(&mut self, reason: Closed) {
        self.input = Vec::new();
        self.ending.get_or_insert(reason);
    }

    /// True if another request may wait. A connection without room has a waiting request or an unread reply, and either
    /// wakes this task.
    fn has_room(&self) -> bool {
        self.waiting.len() < self.runner.in_flight_max
            && self.output.len() < OUTPUT_BYTES_MAX
            && self.runner.slots.has_room(self.waiting.is_empty())
    }

    /// Reads once, if the last input is used up and there is room. Pending without room, too: whatever makes room wakes
    /// this task.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if !(self.input.is_empty() && self.has_room()) {
            return Poll::Pending;
        }
        let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut read = ReadBuf::uninit(&mut space);
        match ready!(Pin::new(&mut self.stream).poll_read(context, &mut read)) {
            // TLS without `close_notify`: lines mark where requests end.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
            read => read?,
        }
        if read.filled().is_empty() {
            if let Some(line) = self.lines.finish() {
                // The last request of a connection needs no room.
                self.take_line(line, Slot::OWN);
            }
            self.end(Closed::Finished);
            return Poll::Ready(Ok(()));
        }
        let mut bytes = read.filled();
        self.cut(&mut bytes);
        // Only the remainder is stored, so that a quiet connection holds no buffer.
        if self.ending.is_none() {
            self.input.extend_from_slice(bytes);
        }
        Poll::Ready(Ok(()))
    }

    /// Continues with the remainder of an earlier read.
    fn take_lines(&mut self) {
        if self.input.is_empty() || !self.has_room() {
            return;
        }
        let input = std::mem::take(&mut self.input);
        let mut bytes = &input[..];
        self.cut(&mut bytes);
        if self.ending.is_none() {
            self.input = bytes.to_vec();
        }
    }

    fn cut(&mut self, bytes: &mut &[u8]) {
        while self.ending.is_none() && self.has_room() {
            // Room is checked first, because a line cannot be put back and another thread may take the room.
            let Some(slot) = self.runner.slots.take(self.waiting.is_empty()) else { break };
            let Some(line) = self.lines.next(bytes) else { break };
            self.active_at = Instant::now();
            self.take_line(line, slot);
        }
    }

    fn take_line(&mut self, line: Line, slot: Slot) {
        if let Some(challenge) = &self.challenge
            && line != Line::Hello
        {
            let token = if let Line::Token(token) = &line { Some(token.as_bytes()) } else { None };
            match challenge.admit(token) {
                Ok(admitted) => {
                    self.is_known = admitted.is_some();
                    if let Some(admitted) = admitted {
                        self.client = Client::Credential(Arc::clone(admitted.name()));
                        self.revoked = Some(admitted.revoked().boxed());
                    }
                    self.challenge = None;
                }
                Err(denied) => {
                    let denied = Closed::Denied(format!("{denied:?}"));
                    return self.end(denied);
                }
            }
        }
        match line {
            Line::Token(_) => {}
            Line::Task(task) => self.take_task(task, slot),
            Line::Hello => self.form = Form::Text,
            Line::Bad(bad) => {
                self.runner.metrics.bad_line(&bad);
                match self.form {
                    Form::Byte => self.end(Closed::BadLine(bad)),
                    Form::Text => self.answer(Answer::Error(bad), slot),
                }
            }
        }
    }

    fn take_task(&mut self, task: Task, slot: Slot) {
        self.is_last_read |= self.reads_until.is_some();
        let form = self.form;
        if let Some(result) = self.runner.known(task) {
            return self.answer(Answer::Result(form, result), slot);
        }
        let runner = Arc::clone(&self.runner);
        let client = self.client.clone();
        let run = async move {
            // The byte form has no way to report a refusal, so its replies wait.
            let done = runner.run(task, &client, form == Form::Text).await;
            (done.map_or_else(|fault| Answer::Failed(form, fault), |result| Answer::Result(form, result)), slot)
        };
        self.waiting.push_back(run.boxed());
    }

    /// Queues a ready answer behind those to earlier requests.
    fn answer(&mut self, answer: Answer, slot: Slot) {
        if self.waiting.is_empty() {
            self.write(answer);
        } else {
            self.waiting.push_back(std::future::ready((answer, slot)).boxed());
        }
    }

    /// Moves due answers to the output, even if that is full: other connections may wait for the same results. Returns
    /// whether there were any.
    fn collect_answers(&mut self, context: &mut Context<'_>) -> bool {
        let mut some = false;
        while let Poll::Ready(Some((answer, _slot))) = self.waiting.poll_next_unpin(context) {
            some = true;
            self.write(answer);
        }
        some
    }

    fn write(&mut self, answer: Answer) {
        if self.output.is_empty() {
            // The client's timeout for reading begins now.
            self.active_at = Instant::now();
        }
        match answer {
            Answer::Result(form, result) => form.write(result, &mut self.output),
            Answer::Error(bad) => line::write_error(&bad, &mut self.output),
            Answer::Failed(form, fault) => {
                if form == Form::Text {
                    line::write_error(&fault, &mut self.output);
                }
                if fault == Fault::Stopped {
                    self.end(Closed::Stopped);
                }
            }
        }
    }

    /// Writes as much as the client accepts.
    fn poll_write(&mut self, context: &mut Context<'_>) -> std::io::Result<()> {
        while self.written < self.output.len() {
            let rest = &self.output[self.written..];
            let Poll::Ready(wrote) = Pin::new(&mut self.stream).poll_write(context, rest)? else { return Ok(()) };
            if wrote == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            self.written += wrote;
            self.active_at = Instant::now();
        }
        self.written = 0;
        // Frees a burst's memory; an ordinary reply's is kept for the next.
        if self.output.capacity() > 64 {
            self.output = Vec::new();
        } else {
            self.output.clear();
        }
        Ok(())
    }

    /// Ends the connection after everything has been answered.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Closed> {
        if matches!(self.ending, Some(Closed::Finished)) {
            return Poll::Ready(self.take_reason());
        }
        match ready!(Pin::new(&mut self.stream).poll_shutdown(context)) {
            Ok(()) => {
                self.lingering_until = Some(Instant::now() + LINGER);
                self.poll_linger(context)
            }
            Err(error) => Poll::Ready(Closed::Broken(error)),
        }
    }

    /// Discards input until the client closes the connection or the time is over.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<Closed> {
        loop {
            let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut read = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.stream).poll_read(context, &mut read) {
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
                // Neither a stopping server nor a client that needs the slot waits for idle clients.
                Poll::Pending if !matches!(self.ending, Some(Closed::Drained | Closed::Replaced)) => {
                    return Poll::Pending;
                }
                _ => return Poll::Ready(self.take_reason()),
            }
        }
    }
}

/// Reason for the end of a connection.
#[derive(Debug)]
pub(crate) enum Closed {
    /// The client has ended its side and received its replies.
    Finished,
    /// An invalid line.
    BadLine(BadLine),
    /// A missing token, or one that does not permit tasks.
    Denied(String),
    /// No request for too long.
    Idle,
    /// Replies were left unread for too long.
    Unread,
    /// The server stops; requests in flight have been answered.
    Drained,
    /// It made room for another client; what was in flight has been answered.
    Replaced,
    /// The connection failed.
    Broken(std::io::Error),
    /// An operator cut it.
    Cut,
    /// The server has stopped.
    Stopped,
}

impl Closed {
    /// Name in metrics and logs.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::BadLine(_) => "bad line",
            Self::Denied(_) => "denied",
            Self::Idle => "idle",
            Self::Unread => "unread",
            Self::Drained => "drained",
            Self::Replaced => "replaced",
            Self::Broken(_) => "broken",
            Self::Cut => "cut",
            Self::Stopped => "stopped",
        }
    }

    /// Details beyond the name.
    pub(crate) fn details(&self) -> Option<&dyn std::fmt::Display> {
        match self {
            Self::BadLine(bad) => Some(bad),
            Self::Denied(why) => Some(why),
            Self::Broken(error) => Some(error),
            _ => None,
        }
    }
}
