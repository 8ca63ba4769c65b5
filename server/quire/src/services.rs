//! The services in opening order: those that only bind ports or read files come before those that create files, so that
//! a failed start changes nothing.

use hosting::{Entry, entry};

/// One entry per service.
pub(crate) const SERVICES: &[Entry] = &[
    entry::<tasks::TasksService>(),
    entry::<rpcgame::RpcGameService>(),
    entry::<records::RecordsService>(),
    entry::<bookstore::BookstoreService>(),
    entry::<kv::KvService>(),
    entry::<web::WebService>(),
];
