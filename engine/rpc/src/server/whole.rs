//! Requests that arrive complete: their calls begin at once, and mostly end so.

use std::sync::Arc;

use quire_http2::{Head, StreamKey};

use super::calls::Calls;
use super::kind::Kind;
use super::method::Intake;
use super::plan::{CallPlan, Plan};
use super::slot::Feed;
use crate::codec::Payload;
use crate::message::{self, Framed, Framing, PREFIX_BYTES};

impl Calls {
    /// Handles a complete request; its handler runs at once unless a limit or an interceptor prevents it.
    #[inline]
    pub(super) fn whole(&mut self, stream: StreamKey, kind: &Kind, body: &[u8]) {
        if let Some(plan) = &kind.direct
            && let Some(message) = self.whole_message(plan, body)
        {
            self.take_slot(stream);
            self.start(stream, plan, &kind.head, None, Intake::Message(&message), Feed::None);
        } else {
            self.begin(stream, &kind.head, false);
            self.data(stream, body, true);
        }
    }

    /// The message in a complete body, if a call is admitted.
    #[inline]
    fn whole_message<'a>(&self, plan: &CallPlan, body: &'a [u8]) -> Option<Framed<Payload<'a>>> {
        let limits = &self.shared.limits;
        if self.connection.queued_bytes_total() > limits.unsent_bytes_max || limits.memory.is_pressed() {
            return None;
        }
        let (compressed, message) = if plan.dialect.framing() == Framing::Envelopes {
            let (prefix, message) = body.split_first_chunk::<PREFIX_BYTES>()?;
            if *prefix != message::prefix(message.len(), false) {
                return None;
            }
            (false, message)
        } else {
            // An empty body is not compressed, even if the head names an encoding.
            (plan.terms.encoding.is_some() && !body.is_empty(), body)
        };
        let fits = message.len() <= limits.message_bytes_max;
        fits.then_some(Framed { compressed, bytes: Payload::Borrowed(message) })
    }

    /// State for complete requests with this head.
    pub(super) fn kind(&self, head: Arc<Head>) -> Kind {
        let shared = &*self.shared;
        let direct = match self.plan(&head) {
            Some(Plan::Call(plan)) => {
                let is_guarded = self.refusing || shared.layered.is_some() || head.is_oversized();
                let is_misdirected = !plan.dialect.needs_trailers() && shared.hosts.refuse(&head);
                let is_gathered = !shared.routes.table[plan.method].is_streaming_in;
                let is_plain = is_gathered && plan.dialect.framing() != Framing::Text;
                (is_plain && !is_guarded && !is_misdirected).then_some(*plan)
            }
            _ => None,
        };
        Kind { head, direct }
    }
}
