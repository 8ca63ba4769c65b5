//! Services that listen on a port of their own, beside the bookstore.

pub(crate) mod tasks;
