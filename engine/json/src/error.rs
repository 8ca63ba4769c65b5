//! Errors of messages and their JSON, with the path of the field.

use std::fmt;

/// An error with the path of the field (such as `book.price`), the fault, and the expected form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    path: String,
    text: String,
}

/// Characters of a caller's text that an error quotes.
const SHOWN_MAX: usize = 40;

impl Error {
    #[cold]
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(Box::new(Inner { path: String::new(), text: text.into() }))
    }

    #[cold]
    pub(super) fn too_deep() -> Self {
        Self::new(format!("messages are nested too deep: at most {} levels are allowed", super::DEPTH_MAX))
    }

    #[cold]
    pub(super) fn wrong_type(wanted: &str) -> Self {
        Self::new(format!("the message has another wire type here than {wanted} needs"))
    }

    /// Prefixes the path with the field `name`.
    #[cold]
    pub(super) fn inside(self, name: &str) -> Self {
        self.before(name)
    }

    /// Prefixes the path with the list index `index`.
    #[cold]
    pub(super) fn inside_element(self, index: usize) -> Self {
        self.before(&format!("[{index}]"))
    }

    /// Prefixes the path with the map key `key`.
    #[cold]
    pub(super) fn inside_entry(self, key: &str) -> Self {
        self.before(&format!("[\"{}\"]", shown(key)))
    }

    fn before(mut self, name: &str) -> Self {
        let path = &mut self.0.path;
        if !path.is_empty() && !path.starts_with('[') {
            path.insert(0, '.');
        }
        path.insert_str(0, name);
        self
    }
}

/// The start of a text, without control characters.
pub(super) fn shown(text: &str) -> String {
    let mut out = String::new();
    for (position, letter) in text.chars().enumerate() {
        if position == SHOWN_MAX {
            out.push('…');
            break;
        }
        if letter.is_control() {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    out
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            write!(f, "{}: ", self.0.path)?;
        }
        f.write_str(&self.0.text)
    }
}

impl std::error::Error for Error {}

impl From<crate::wire::Malformed> for Error {
    fn from(malformed: crate::wire::Malformed) -> Self {
        Self::new(format!("the message is malformed: {malformed}"))
    }
}
