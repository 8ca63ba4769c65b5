//! Details of errors that any service can use, `google.rpc`'s `error_details.proto`: [`Status::with_detail`] adds one,
//! [`Status::detail`] finds it on the other side.
//!
//! [`Status::with_detail`]: crate::Status::with_detail
//! [`Status::detail`]: crate::Status::detail

use std::collections::HashMap;

use prost::Name;
use prost_types::Duration;

/// Names each message, so that details of its type can be found.
macro_rules! named {
    ($($message:ident)*) => {
        $(impl Name for $message {
            const NAME: &'static str = stringify!($message);
            const PACKAGE: &'static str = "google.rpc";
        })*
    };
}

named! {
    BadRequest DebugInfo ErrorInfo Help LocalizedMessage PreconditionFailure QuotaFailure RequestInfo ResourceInfo
    RetryInfo
}

/// Cause of an error: a reason that is unique within a domain.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ErrorInfo {
    /// Constant in `UPPER_SNAKE_CASE`, such as `OUT_OF_STOCK`.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// The service that names its reasons, such as `shop.example`.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// Further facts, by name.
    #[prost(map = "string, string", tag = "3")]
    pub metadata: HashMap<String, String>,
}

/// Time after which the call may be tried again.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RetryInfo {
    /// Least pause before the next attempt.
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<Duration>,
}

/// The server's own view of an error, for its developers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DebugInfo {
    /// Frames of the stack, innermost first.
    #[prost(string, repeated, tag = "1")]
    pub stack_entries: Vec<String>,
    /// Anything else.
    #[prost(string, tag = "2")]
    pub detail: String,
}

/// Quotas that a call exceeds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct QuotaFailure {
    /// The quotas.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<QuotaViolation>,
}

/// A quota that is used up (`QuotaFailure.Violation`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct QuotaViolation {
    /// Holder of the quota, such as `clientip:192.0.2.7`.
    #[prost(string, tag = "1")]
    pub subject: String,
    /// Message for people.
    #[prost(string, tag = "2")]
    pub description: String,
}

/// Preconditions of a call that do not hold.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreconditionFailure {
    /// The preconditions.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<PreconditionViolation>,
}

/// A precondition that does not hold (`PreconditionFailure.Violation`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreconditionViolation {
    /// Kind of the precondition, such as `TERMS_OF_SERVICE`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The thing that fails it.
    #[prost(string, tag = "2")]
    pub subject: String,
    /// Message for people.
    #[prost(string, tag = "3")]
    pub description: String,
}

/// Fields of a request that are wrong.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BadRequest {
    /// The fields.
    #[prost(message, repeated, tag = "1")]
    pub field_violations: Vec<FieldViolation>,
}

impl BadRequest {
    /// One wrong field.
    pub fn field(field: impl Into<String>, description: impl Into<String>) -> Self {
        let violation =
            FieldViolation { field: field.into(), description: description.into(), ..FieldViolation::default() };
        Self { field_violations: vec![violation] }
    }
}

/// A field that is wrong (`BadRequest.FieldViolation`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct FieldViolation {
    /// Path of the field, such as `order.lines[2].count`.
    #[prost(string, tag = "1")]
    pub field: String,
    /// Message for people.
    #[prost(string, tag = "2")]
    pub description: String,
    /// Constant in `UPPER_SNAKE_CASE`, as in [`ErrorInfo`].
    #[prost(string, tag = "3")]
    pub reason: String,
    /// The message in the caller's language.
    #[prost(message, optional, tag = "4")]
    pub localized_message: Option<LocalizedMessage>,
}

/// Marks by which the service's operators find the call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestInfo {
    /// Identifier of the call in their logs.
    #[prost(string, tag = "1")]
    pub request_id: String,
    /// Anything else about where it was served.
    #[prost(string, tag = "2")]
    pub serving_data: String,
}

/// The resource that a call concerns.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceInfo {
    /// Kind of the resource, such as `book`.
    #[prost(string, tag = "1")]
    pub resource_type: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub resource_name: String,
    /// Its owner.
    #[prost(string, tag = "3")]
    pub owner: String,
    /// Message for people.
    #[prost(string, tag = "4")]
    pub description: String,
}

/// Pages that help with an error.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Help {
    /// The pages.
    #[prost(message, repeated, tag = "1")]
    pub links: Vec<HelpLink>,
}

/// A page that helps (`Help.Link`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelpLink {
    /// Title of the page.
    #[prost(string, tag = "1")]
    pub description: String,
    /// Its address.
    #[prost(string, tag = "2")]
    pub url: String,
}

/// A message in the caller's language.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LocalizedMessage {
    /// The language, by BCP 47, such as `de-CH`.
    #[prost(string, tag = "1")]
    pub locale: String,
    /// The message.
    #[prost(string, tag = "2")]
    pub message: String,
}
