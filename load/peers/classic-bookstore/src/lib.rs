//! The bookstore as it is usually written: tonic, a pool of SQLite connections, one transaction a purchase, and the
//! log in memory. Everything is as the libraries have it by default; ../README.md lists the settings.

pub mod service;
pub mod store;

use std::sync::Arc;

use tonic::transport::{Server, server::TcpIncoming};

use self::{
    service::Service,
    store::Store,
    wire::{admin_server::AdminServer, book_store_server::BookStoreServer},
};

/// The messages and the services of the contract.
pub mod wire {
    tonic::include_proto!("bookstore");
}

/// Serves `store` until the process ends.
pub async fn serve(incoming: TcpIncoming, store: Store) -> Result<(), tonic::transport::Error> {
    let service = Service(Arc::new(store));
    Server::builder()
        .add_service(BookStoreServer::new(service.clone()))
        .add_service(AdminServer::new(service))
        .serve_with_incoming(incoming)
        .await
}
