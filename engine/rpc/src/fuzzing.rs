//! Access to private modules for the fuzz targets; not part of the public interface.

use crate::message::framing::Assembler;

/// Framing of messages in a body.
#[derive(Clone, Copy, Debug)]
pub enum Framing {
    /// A prefix of five bytes before each.
    Envelopes,
    /// Envelopes in base64.
    Text,
    /// The body is the message.
    Complete,
}

/// Messages of a body fed in pieces of `piece_bytes`, each with its compressed flag; or the error.
pub fn messages(
    framing: Framing,
    body: &[u8],
    piece_bytes: usize,
    message_bytes_max: usize,
) -> Result<Vec<(bool, Vec<u8>)>, String> {
    let mut assembler = Assembler::of(match framing {
        Framing::Envelopes => crate::message::framing::Framing::Envelopes,
        Framing::Text => crate::message::framing::Framing::Text,
        Framing::Complete => crate::message::framing::Framing::Complete,
    });
    let mut messages = Vec::new();
    for mut piece in body.chunks(piece_bytes.max(1)) {
        while let Some(framed) = assembler.next(&mut piece, message_bytes_max).map_err(|status| status.to_string())? {
            messages.push((framed.compressed, framed.bytes.as_slice().to_vec()));
        }
    }
    messages.extend(assembler.take_complete().map(|whole| (false, whole.to_vec())));
    if assembler.is_empty() { Ok(messages) } else { Err("the body ends inside a message".to_owned()) }
}
