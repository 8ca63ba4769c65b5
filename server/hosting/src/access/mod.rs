//! Access control: scopes, credentials, and requirements of each port.

mod credentials;
mod gate;
mod guesses;
mod scope;

pub use credentials::{Admitted, Credentials, Denied, TokensError, hashed};
pub use gate::{Doors, Gate};
pub use scope::Scope;
