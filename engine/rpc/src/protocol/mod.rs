//! Wire protocols of calls: request heads, and framing of responses.
//!
//! Handlers see no difference between them.

mod client;
mod connect;
mod connect_get;
mod grpc;
mod grpc_web;
mod http;
mod server;

pub use client::Codec;
pub(crate) use client::{AnswerHead, ClientDialect, Put, RequestTerms};
pub(crate) use connect_get::{Get, target as get_target};
pub(crate) use grpc::{put_metadata, put_status};
pub(crate) use server::{Dialect, Ending, Terms};

/// gRPC with protobuf.
pub(crate) const PLAIN: Dialect = Dialect { protocol: &grpc::Grpc, codec: Codec::Proto, is_plain: true };

impl Dialect {
    /// Connect, for a call by GET.
    pub(crate) const fn get(codec: Codec) -> Self {
        Self::new(&connect::Unary, codec)
    }
}

impl ClientDialect {
    /// gRPC.
    pub(crate) const fn grpc(codec: Codec) -> Self {
        Self { protocol: &grpc::Grpc, codec, is_plain: matches!(codec, Codec::Proto) }
    }

    /// gRPC-Web.
    pub(crate) const fn grpc_web(codec: Codec) -> Self {
        Self { protocol: &grpc_web::Binary, codec, is_plain: false }
    }

    /// Plain HTTP: requests and responses unchanged.
    pub(crate) const fn http() -> Self {
        Self { protocol: &http::Http, codec: Codec::Proto, is_plain: false }
    }

    /// Connect, for unary or streaming methods.
    pub(crate) const fn connect(codec: Codec, is_stream: bool) -> Self {
        if is_stream {
            Self { protocol: &connect::Streamed, codec, is_plain: false }
        } else {
            Self { protocol: &connect::Unary, codec, is_plain: false }
        }
    }
}

/// Classification of a POST by its content type.
pub(crate) enum Recognised {
    /// A call of any kind of method.
    Call(Dialect),
    /// A call, if the path names a unary method; else plain HTTP.
    Unary(Dialect),
    /// A call of a streaming method.
    Stream(Dialect),
    /// gRPC with an unsupported codec.
    UnknownCodec,
    Other,
}

/// Classifies a POST by its content type.
pub(crate) fn recognise(content_type: &[u8]) -> Recognised {
    if content_type == b"application/grpc" {
        return Recognised::Call(PLAIN);
    }
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let kind = kind.to_ascii_lowercase();
    let Some(name) = kind.strip_prefix(b"application/") else { return Recognised::Other };
    match name {
        b"grpc" | b"grpc+proto" => Recognised::Call(PLAIN),
        b"grpc+json" => Recognised::Call(Dialect::new(&grpc::Grpc, Codec::Json)),
        b"grpc-web" | b"grpc-web+proto" => Recognised::Call(Dialect::new(&grpc_web::Binary, Codec::Proto)),
        b"grpc-web+json" => Recognised::Call(Dialect::new(&grpc_web::Binary, Codec::Json)),
        b"grpc-web-text" | b"grpc-web-text+proto" => Recognised::Call(Dialect::new(&grpc_web::Text, Codec::Proto)),
        b"connect+proto" => Recognised::Stream(Dialect::new(&connect::Streamed, Codec::Proto)),
        b"connect+json" => Recognised::Stream(Dialect::new(&connect::Streamed, Codec::Json)),
        b"proto" => Recognised::Unary(Dialect::new(&connect::Unary, Codec::Proto)),
        b"json" => Recognised::Unary(Dialect::new(&connect::Unary, Codec::Json)),
        _ if name.starts_with(b"grpc+") || name.starts_with(b"grpc-web") => Recognised::UnknownCodec,
        _ => Recognised::Other,
    }
}
