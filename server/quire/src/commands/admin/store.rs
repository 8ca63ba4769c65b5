//! Commands on the store of a data folder, without a server.

use std::{process::ExitCode, time::Duration};

use anyhow::ensure;
use bookstore::{
    Bookstore, BookstoreService,
    grpc::{
        AdminService, ShopService,
        wire::{admin_server::AdminServer, book_store_server::BookStoreServer},
    },
    metrics::Metrics,
};
use quire_client::{
    Client,
    cli::{Connection, connections},
};
use quire_rpc::Server;

use super::{
    desk::Desk,
    verb::{Change, Export, Verb},
};
use crate::{
    cli::{ConfigArgs, ExportArgs, ImportArgs},
    config::Config,
    transport::local,
};

/// Name of the operator in the log.
const ACTOR: &str = "command line";
/// Time for closing the store.
const CLOSING: Duration = Duration::from_secs(10);

/// `quire import --update`.
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let ImportArgs { yes, skip_bad, .. } = *args;
    let verb = Verb::Change(Change::Import { file: args.file.clone(), yes, skip_bad });
    run(&args.config, Connection::default(), &verb)
}

/// `quire export log` and `quire export sales`.
pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let verb = Verb::Export(Export::new(args.what, &args.choice, args.out.clone())?);
    run(&args.config, Connection { json: args.json, ..Connection::default() }, &verb)
}

/// Runs a command on the store of the data folder, which a server may have open, too.
fn run(args: &ConfigArgs, connection: Connection, verb: &Verb) -> anyhow::Result<ExitCode> {
    let config = Config::of_tool(args)?;
    let (path, settings) = (config.data.join(bookstore::FILE_NAME), config.settings_of::<BookstoreService>());
    ensure!(
        settings.url.is_some() || path.exists(),
        "there is no store {}; quire import FILE makes one",
        path.display()
    );
    let store = Bookstore::open(&path, settings, Metrics::default())?;
    let runtime = connections()?;
    let services = Server::builder()
        .add_service(BookStoreServer::new(ShopService::new(store.clone())))
        .add_service(AdminServer::new(AdminService::new(store.clone())));
    let channel = {
        let _context = runtime.enter();
        local::channel(services, ACTOR)?
    };
    let done = Desk::new(Client::over(channel), connection, "the store", runtime)?.run(verb);
    ensure!(store.close(CLOSING), "the store was not closed in time; everything that was reported is on disk");
    Ok(done.into())
}
