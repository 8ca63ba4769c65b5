//! Terms of one call, from the channel's settings and the request.

use super::command::Form;
use super::settings::Settings;
use crate::compression::Encoding;
use crate::envelope::{Compression, Request};
use crate::protocol::Codec;

/// Terms of one call, from the channel's settings and the request.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) codec: Codec,
    pub(super) compression: Option<(Encoding, usize)>,
    pub(super) message_bytes_max: usize,
    is_usual: bool,
}

impl Terms {
    pub(super) fn of<T>(settings: &Settings, request: &Request<T>) -> Self {
        let options = request.options().copied().unwrap_or_default();
        Self {
            codec: options.codec.unwrap_or(settings.codec),
            compression: match options.compression {
                Compression::OfChannel => settings.compression,
                Compression::Off => None,
                Compression::On(encoding, bytes_min) => Some((encoding, bytes_min)),
            },
            message_bytes_max: options.message_bytes_max.unwrap_or(settings.message_bytes_max),
            is_usual: options.codec.is_none() && matches!(options.compression, Compression::OfChannel),
        }
    }

    pub(super) fn form(&self) -> Form {
        if self.is_usual { Form::Post } else { Form::OwnPost }
    }

    pub(super) fn encoding(&self) -> Option<Encoding> {
        self.compression.map(|(encoding, _)| encoding)
    }
}
