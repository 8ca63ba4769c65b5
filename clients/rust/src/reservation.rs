//! Reservations: copies of a book that are held for a time, to be paid for.

use std::{sync::atomic::AtomicBool, time::Duration};

use crate::{
    attempts::within,
    client::Client,
    error::{Error, Fault},
    key::Key,
    purchase::Order,
    wire::bookstore::{ReservationOutcome, ReservationReply, ReservationRequest, ReserveRequest},
};

/// A reservation after a call: its state, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "perhaps nothing is held or bought"]
pub struct Reservation {
    /// State of the reservation.
    pub outcome: Reserved,
    /// True if the call did what it is for, now or when it was sent first.
    pub success: bool,
    /// The key of the reservation.
    pub key: Key,
    /// The book; 0 if there is no reservation.
    pub id: i32,
    /// Copies of the reservation; 0 if there is none.
    pub quantity: i32,
    /// Number of the entry in the transaction log that led to this state; 0 if nothing was written there. Once the copies are
    /// bought, it is the purchase's number.
    pub number: i64,
    /// Copies that can be bought or reserved, if the store reports it.
    pub stock_left: Option<i32>,
    /// When the copies are or were given back by themselves, in milliseconds since the Unix epoch by the server's clock; 0 if
    /// there is no reservation.
    pub until_ms: i64,
    /// True if an earlier call with the same key led to this state, or the end of the time.
    pub replayed: bool,
    /// Message of the store.
    pub message: String,
    /// Outcome as named by the store.
    pub(crate) named: ReservationOutcome,
}

/// State of a reservation after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reserved {
    /// The copies are held.
    Held,
    /// The copies are bought; the sale is on disk.
    Bought,
    /// The copies were given back.
    Released,
    /// Its time is over, and the copies were given back.
    Expired,
    /// No copy is left. Nothing is held, and the same key may try again.
    SoldOut,
    /// Fewer copies are left than were asked for. Nothing is held, and the same key may try again.
    TooFew,
    /// The store has no book with this id.
    NoSuchBook,
    /// There is no reservation with this key.
    NoSuchReservation,
    /// A state unknown to this library; see the message.
    Other,
    /// The call may have been done; the fault is why there was no answer. To find out, send it again with its key.
    Unknown(Fault),
}

/// Each call is sent until the store answers, as [`Client::buy`] is, and does its part once.
impl Client {
    /// Holds copies of a book for whole seconds; for the server's default without a time. The order's key names the
    /// reservation.
    pub async fn reserve(&self, order: impl Into<Order>, time: Option<Duration>) -> Result<Reservation, Error> {
        self.reserve_noting(order.into(), time, &AtomicBool::new(false)).await
    }

    /// Buys what a reservation holds, at the price of now.
    pub async fn confirm(&self, key: &Key) -> Result<Reservation, Error> {
        self.settle_noting(key, true, &AtomicBool::new(false)).await
    }

    /// Gives back what a reservation holds.
    pub async fn release(&self, key: &Key) -> Result<Reservation, Error> {
        self.settle_noting(key, false, &AtomicBool::new(false)).await
    }

    /// Like [`Client::reserve`]; `in_doubt` is true while the copies may be held.
    pub(crate) async fn reserve_noting(
        &self,
        order: Order,
        time: Option<Duration>,
        in_doubt: &AtomicBool,
    ) -> Result<Reservation, Error> {
        order.check()?;
        let seconds = time.map(seconds).transpose()?;
        let key = order.key.unwrap_or_else(Key::random);
        let request = || ReserveRequest {
            id: order.id,
            quantity: Some(order.quantity),
            idempotency_key: key.as_str().to_owned().into(),
            seconds,
        };
        let answer = self.once(in_doubt, |lane, by| lane.store.reserve(within(request(), by))).await?;
        Ok(Reservation::new(key, answer))
    }

    /// [`Client::confirm`] or [`Client::release`]; `in_doubt` is true while it may have been done.
    pub(crate) async fn settle_noting(
        &self,
        key: &Key,
        is_bought: bool,
        in_doubt: &AtomicBool,
    ) -> Result<Reservation, Error> {
        let request = || ReservationRequest { idempotency_key: key.as_str().to_owned().into() };
        let answer = self.once(in_doubt, |lane, by| {
            let request = within(request(), by);
            async move { if is_bought { lane.store.confirm(request).await } else { lane.store.release(request).await } }
        });
        Ok(Reservation::new(key.clone(), answer.await?))
    }
}

fn seconds(time: Duration) -> Result<i32, Error> {
    match i32::try_from(time.as_secs()) {
        Ok(seconds @ 1..) if time.subsec_nanos() == 0 => Ok(seconds),
        _ => Err(Error::Argument(format!("the reservation's time is {time:?}; it must be whole seconds, from 1"))),
    }
}

impl Reservation {
    pub(crate) fn new(key: Key, answer: Result<ReservationReply, Fault>) -> Self {
        let fault = answer.as_ref().err().cloned();
        let reply = answer.unwrap_or_default();
        let named = reply.outcome();
        let (outcome, message) = match fault {
            Some(fault) => (Reserved::Unknown(fault.clone()), fault.to_string()),
            None => (Reserved::from(named), reply.message),
        };
        Self {
            outcome,
            success: reply.success,
            key,
            id: reply.id,
            quantity: reply.quantity,
            number: reply.number,
            stock_left: reply.stock_left,
            until_ms: reply.until_ms,
            replayed: reply.replayed,
            message,
            named,
        }
    }
}

impl From<ReservationOutcome> for Reserved {
    fn from(named: ReservationOutcome) -> Self {
        match named {
            ReservationOutcome::Held => Self::Held,
            ReservationOutcome::Bought => Self::Bought,
            ReservationOutcome::Released => Self::Released,
            ReservationOutcome::Expired => Self::Expired,
            ReservationOutcome::SoldOut => Self::SoldOut,
            ReservationOutcome::TooFew => Self::TooFew,
            ReservationOutcome::NoSuchBook => Self::NoSuchBook,
            ReservationOutcome::NoSuchReservation => Self::NoSuchReservation,
            ReservationOutcome::Unspecified => Self::Other,
        }
    }
}
