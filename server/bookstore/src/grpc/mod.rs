//! The bookstore over gRPC: converts between wire messages and domain calls. No rule, SQL or limit lives here.

mod admin;
mod encode;
mod shop;
mod token;

pub use admin::AdminService;
use quire_rpc::{Code, Status};
pub use shop::ShopService;

use crate::{catalogue, domain::NewBook, fault::Fault};

/// The messages and services of `proto/bookstore.proto`.
pub mod wire {
    quire_rpc::include_proto!("bookstore");
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let status = Self::new(code(&fault), fault.to_string());
        match fault.retry_after() {
            None => status,
            pause => status.with_retry_pushback(pause),
        }
    }
}

/// Status code of a fault.
#[must_use]
pub fn code(fault: &Fault) -> Code {
    match fault {
        Fault::Invalid { .. } | Fault::KeyReused { .. } => Code::InvalidArgument,
        Fault::Limit { .. } | Fault::Overloaded { .. } | Fault::AnswerBytes { .. } => Code::ResourceExhausted,
        Fault::PriceChanged(_) | Fault::NoRoom { .. } => Code::FailedPrecondition,
        Fault::Unsupported(_) => Code::Unimplemented,
        Fault::Late => Code::DeadlineExceeded,
        Fault::Unavailable(_) | Fault::Stopped(_) => Code::Unavailable,
        Fault::ImportStopped { cause, .. } => code(cause),
        Fault::LostEnd { .. } => Code::DataLoss,
        Fault::Failed(_) => Code::Internal,
        Fault::OutcomeUnknown => Code::Unknown,
    }
}

impl From<&catalogue::Book> for wire::Book {
    fn from(book: &catalogue::Book) -> Self {
        let price = book.price();
        Self {
            id: book.id().get(),
            title: book.title().to_owned(),
            topic: book.topic().to_owned(),
            // Stock always fits; see `domain::STOCK_MAX`.
            stock: book.stock().cast_signed(),
            price: price.as_f64(),
            price_cents: price.get(),
            delisted: !book.is_listed(),
            held: book.held().cast_signed(),
        }
    }
}

impl From<&NewBook> for wire::Book {
    fn from(book: &NewBook) -> Self {
        Self {
            id: book.id.get(),
            title: book.title.clone(),
            topic: book.topic.clone(),
            stock: book.stock.cast_signed(),
            price: book.price.as_f64(),
            price_cents: book.price.get(),
            delisted: !book.listed,
            held: 0,
        }
    }
}
