//! Any bytes as a body of messages, in each framing: every split of the body yields the same messages, or a refusal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quire_rpc::fuzzing::{Framing, messages};

/// Small, so that bodies exceed it.
const MESSAGE_BYTES_MAX: usize = 300;

fuzz_target!(|data: &[u8]| {
    let Some((&[framing, piece], body)) = data.split_first_chunk::<2>() else { return };
    let framing = [Framing::Envelopes, Framing::Text, Framing::Complete][usize::from(framing % 3)];
    let whole = messages(framing, body, usize::MAX, MESSAGE_BYTES_MAX);
    let cut = messages(framing, body, usize::from(piece), MESSAGE_BYTES_MAX);
    match (whole, cut) {
        (Ok(whole), Ok(cut)) => {
            assert!(whole.iter().all(|(_, message)| message.len() <= MESSAGE_BYTES_MAX));
            assert_eq!(whole, cut);
        }
        (whole, cut) => assert_eq!(whole.is_err(), cut.is_err()),
    }
});
