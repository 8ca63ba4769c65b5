//! Which callers may do what: scopes, the credentials that hold them, and what each port asks for. Must not know any
//! service, nor how a credential is sent.

mod credentials;
mod gate;
mod guesses;
mod scope;

pub use credentials::{Admitted, Credentials, Denied, TokensError, hashed};
pub use gate::{Doors, Gate};
pub use scope::Scope;
