//! Idempotency keys of the buy form, and the cookie that lists this browser's purchases.
//!
//! The key is drawn when the form is rendered, so that a double click, a reload and the back button send the same one.
//! It also holds the price that the shopper saw: the log keeps the key, and so the price that was agreed on. Anyone with
//! the key of a purchase may see its receipt.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bookstore::{Cents, IdempotencyKey};
use rand_core::{OsRng, RngCore as _};

/// Name of the cookie.
pub(crate) const COOKIE: &str = "quire-purchases";

/// Most purchases in the cookie, which is then some 1.3 KB; older ones are left out.
pub(crate) const REMEMBERED_MAX: usize = 30;

/// Characters of the random part: 128 bits.
const RANDOM_CHARS: usize = 22;

/// Prefix in the log, so that keys of the storefront do not meet those of other clients.
const PREFIX: &str = "web:";

/// The key of one buy form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormKey {
    random: String,
    /// Price on the form.
    pub(crate) price: Cents,
}

impl FormKey {
    /// A new key for a form with this price.
    pub(crate) fn draw(price: Cents) -> Self {
        let mut bytes = [0; 16];
        OsRng.fill_bytes(&mut bytes);
        Self { random: URL_SAFE_NO_PAD.encode(bytes), price }
    }

    /// Parses [`FormKey::to_string`]; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (random, cents) = text.split_once(':')?;
        let is_random = random.len() == RANDOM_CHARS
            && random.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let is_plain = cents.bytes().all(|byte| byte.is_ascii_digit()) && (cents == "0" || !cents.starts_with('0'));
        let price = cents.parse().ok().and_then(Cents::new)?;
        (is_random && is_plain).then(|| Self { random: random.to_owned(), price })
    }

    /// The key as the ledger takes it.
    pub(crate) fn for_ledger(&self) -> Option<IdempotencyKey> {
        IdempotencyKey::from_wire(format!("{PREFIX}{self}").as_bytes()).ok().flatten()
    }
}

impl fmt::Display for FormKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.random, self.price.get())
    }
}

/// A purchase that this browser made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// Number in the log.
    pub(crate) number: i64,
    pub(crate) key: FormKey,
}

impl Remembered {
    /// Path of the proof of it.
    pub(crate) fn proof(&self) -> String {
        format!("/shop/receipt/proof?number={}&key={}", self.number, self.key)
    }

    /// Path of its receipt.
    pub(crate) fn receipt(&self) -> String {
        format!("/shop/receipt?number={}&key={}", self.number, self.key)
    }
}

/// The purchases in a cookie, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Purchases(Vec<Remembered>);

impl Purchases {
    /// Parses the cookie's value; entries that are not ours are left out.
    pub(crate) fn parse(value: &str) -> Self {
        let entry = |text: &str| {
            let (number, key) = text.split_once(':')?;
            let number = number.parse().ok().filter(|number| *number > 0)?;
            Some(Remembered { number, key: FormKey::parse(key)? })
        };
        Self(value.split('.').filter_map(entry).take(REMEMBERED_MAX).collect())
    }

    /// The purchase that was made with this key.
    pub(crate) fn with(&self, key: &FormKey) -> Option<&Remembered> {
        self.0.iter().find(|purchase| purchase.key == *key)
    }

    /// Puts a purchase first. False if it is there already.
    pub(crate) fn add(&mut self, purchase: Remembered) -> bool {
        if self.0.iter().any(|known| known.number == purchase.number) {
            return false;
        }
        self.0.insert(0, purchase);
        self.0.truncate(REMEMBERED_MAX);
        true
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Remembered> {
        self.0.iter()
    }
}

impl fmt::Display for Purchases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Remembered { number, key }) in self.0.iter().enumerate() {
            write!(f, "{}{number}:{key}", if place == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bookstore::Cents;

    use super::{FormKey, Purchases, REMEMBERED_MAX, Remembered};

    fn key(cents: i64) -> FormKey {
        FormKey::draw(Cents::new(cents).unwrap())
    }

    #[test]
    fn a_key_is_read_back_with_its_price_and_fits_the_ledger() {
        for cents in [0, 2999, Cents::MAX.get()] {
            let key = key(cents);
            assert_eq!(FormKey::parse(&key.to_string()), Some(key.clone()));
            assert!(key.for_ledger().is_some());
        }
        assert_ne!(key(1), key(1));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let good = key(2999).to_string();
        for text in [
            "",
            ":",
            "short:1",
            &good[..22],
            &good.replace(':', ":-"),
            &good.replace(':', ":0"),
            &format!("{good}.5"),
            &format!(".{good}"),
        ] {
            assert_eq!(FormKey::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_cookie_keeps_the_newest_purchases_and_is_small() {
        let mut purchases = Purchases::default();
        let made = |number: i64| Remembered { number: 1_000_000_000 + number, key: key(1_234_567) };
        for number in 0..100 {
            assert!(purchases.add(made(number)));
        }
        let first = purchases.iter().next().unwrap().clone();
        assert!(!purchases.add(first.clone()), "it is there already");
        let written = purchases.to_string();
        assert!(
            written.len() < 1500 && written.bytes().all(|byte| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte))
        );
        assert_eq!(Purchases::parse(&written), purchases);
        assert_eq!((purchases.iter().count(), first.number), (REMEMBERED_MAX, 1_000_000_099));
        let damaged = Purchases::parse(&format!("x.{written}.-1:{}.7", key(1)));
        assert_eq!(damaged, purchases);
    }
}
