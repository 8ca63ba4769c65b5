//! Admission of operators: sign-in, sessions, and forms that act once.

pub(super) mod door;
pub(super) mod operator;
pub(super) mod outcome;
pub(super) mod session;
