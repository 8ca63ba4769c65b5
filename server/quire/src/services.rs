//! The services of this server, in the order in which they are opened: what only takes ports or reads files comes before
//! what makes files, so that a server that cannot start changes nothing.

use hosting::{Entry, entry};

/// One line a service.
pub(crate) const SERVICES: &[Entry] = &[
    entry::<tasks::TasksService>(),
    entry::<rpcgame::RpcGameService>(),
    entry::<records::RecordsService>(),
    entry::<bookstore::BookstoreService>(),
    entry::<kv::KvService>(),
];
