//! Key of a purchase or a reservation, which makes it happen once however often it is sent.

use std::fmt;

use rand_core::{OsRng, RngCore as _};

use crate::error::Error;

/// Maximum length of a key.
const BYTES_MAX: usize = 64;

/// Idempotency key: the store makes a purchase or a reservation once, however often it is sent with the same key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// A key of 32 random hexadecimal digits, from the system's generator.
    pub fn random() -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut random = [0; 16];
        OsRng.fill_bytes(&mut random);
        let digits = random.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        Self(digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect())
    }

    /// A key of the caller's choice, 1 to 64 bytes.
    pub fn new(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        match text.len() {
            1..=BYTES_MAX => Ok(Self(text)),
            bytes => {
                Err(Error::Argument(format!("the idempotency key has {bytes} bytes; it must have 1 to {BYTES_MAX}")))
            }
        }
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn a_key_has_1_to_64_bytes_and_a_random_one_32_digits() {
        assert!(Key::new("k".repeat(64)).is_ok() && Key::new("").is_err());
        let long = Key::new("ä".repeat(33)).expect_err("too long").to_string();
        assert_eq!(long, "the idempotency key has 66 bytes; it must have 1 to 64");
        let (one, other) = (Key::random(), Key::random());
        assert!(one != other && one.as_str().len() == 32 && one.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
