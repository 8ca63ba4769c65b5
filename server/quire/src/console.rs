//! The operator's console on standard input: `quire admin` for the server of this process.

use std::{io, thread};

use operate::{
    Operate,
    grpc::{OperatorService, wire::operator_server::OperatorServer},
};
use quire_rpc::Server;
use quire_terminal::shell::End;
use tokio::{runtime::Handle, sync::oneshot};

use crate::{commands::admin, pages::Services, transport::local};

/// Name of the console's operator in the log.
const ACTOR: &str = "console";

/// Starts the console. The receiver gets a message when the operator stops the server, and none if the console ends
/// otherwise.
pub(crate) fn start(services: &Services, operate: Operate) -> oneshot::Receiver<()> {
    let (leave, left) = oneshot::channel();
    let builder = services.iter().fold(Server::builder(), |builder, service| service.grpc(builder));
    let builder = builder.add_service(OperatorServer::new(OperatorService::new(operate)));
    let started = local::channel(builder, ACTOR).map_err(io::Error::other).and_then(|channel| {
        let runtime = Handle::current();
        let talk = move || match admin::console(channel, runtime) {
            Ok(End::User) => drop(leave.send(())),
            Ok(End::Pipe) => tracing::debug!("standard input has ended; the server runs on"),
            Err(error) => tracing::warn!(%error, "the console has ended; the server runs on"),
        };
        thread::Builder::new().name("console".to_owned()).spawn(talk)
    });
    if let Err(error) = started {
        tracing::warn!(%error, "there is no console");
    }
    left
}
