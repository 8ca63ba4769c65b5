//! The distinct values of a column, numbered in order of first occurrence.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A value's number.
pub(crate) type Code = u32;

/// The values. They are hashed with a secret of the process, because anyone may have written the file.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    text: String,
    /// End of each value in `text`.
    ends: Vec<usize>,
    codes: HashTable<Code>,
    hasher: DefaultHashBuilder,
}

fn value_at<'a>(text: &'a str, ends: &[usize], code: Code) -> &'a str {
    let code = code as usize;
    let start = if code == 0 { 0 } else { ends[code - 1] };
    &text[start..ends[code]]
}

impl Dictionary {
    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The value with this number, which must exist.
    #[inline]
    pub(crate) fn value(&self, code: Code) -> &str {
        value_at(&self.text, &self.ends, code)
    }

    /// The value's number.
    pub(crate) fn find(&self, value: &str) -> Option<Code> {
        let hash = self.hasher.hash_one(value);
        self.codes.find(hash, |code| self.value(*code) == value).copied()
    }

    /// The value's number; a new value gets the next one. There are never more values than rows, whose number is
    /// limited elsewhere.
    pub(crate) fn intern(&mut self, value: &str) -> Code {
        let Self { text, ends, codes, hasher } = self;
        let hash = hasher.hash_one(value);
        if let Some(code) = codes.find(hash, |code| value_at(text, ends, *code) == value) {
            return *code;
        }
        let code = Code::try_from(ends.len()).unwrap_or(Code::MAX);
        text.push_str(value);
        ends.push(text.len());
        codes.insert_unique(hash, code, |code| hasher.hash_one(value_at(text, ends, *code)));
        code
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.codes.allocation_size()
    }

    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_number_and_every_number_its_value() {
        let mut dictionary = Dictionary::default();
        let values: Vec<String> =
            (0..5000).map(|number| format!("v{}", number % 1000)).chain([String::new()]).collect();
        let codes: Vec<Code> = values.iter().map(|value| dictionary.intern(value)).collect();
        assert_eq!(dictionary.len(), 1001);
        for (value, code) in values.iter().zip(codes) {
            assert_eq!((dictionary.value(code), dictionary.find(value)), (&**value, Some(code)));
        }
        assert_eq!(dictionary.find("v1000"), None);
    }
}
