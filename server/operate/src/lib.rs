//! The operators' view of a running server: its figures, its open connections, its backup.
//!
//! Must not know any service of the server: figures come from the page `/metrics`.

mod figures;
pub mod grpc;
mod operate;
mod reading;
mod sampler;
pub mod traces;

pub use figures::{
    Calls, Commits, Figures, Level, Levels, MethodFigures, MethodPoint, Point, Purchases, Reason, ServiceHealth, Times,
};
pub use operate::{BackupPieces, MakeBackup, Making, Operate, Reload, Reloaded, Sources, VerifyBackup};
pub use quire_rpc::server::OpenConnection;
