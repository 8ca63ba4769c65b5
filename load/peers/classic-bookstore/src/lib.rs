//! A conventional bookstore: tonic, a pool of SQLite connections, one transaction per purchase, and the log in memory.
//! Libraries keep their defaults; ../README.md lists the settings.

pub mod service;
pub mod store;

use std::sync::Arc;

use tonic::transport::{Server, server::TcpIncoming};

use self::{
    service::Service,
    store::Store,
    wire::{admin_server::AdminServer, book_store_server::BookStoreServer},
};

/// Messages and services of the contract.
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
