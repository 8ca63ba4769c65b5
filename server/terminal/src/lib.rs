//! Terminal output and input of programs. Must not know any command, nor what is behind it.

pub mod pager;
pub mod screen;
pub mod shell;
pub mod table;
