//! Makes the messages and the service traits from `proto/`, with no compiler to install.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .bytes("bookstore.BookStore.Lookup")
        .bytes("bookstore.BookStore.Search")
        .bytes("bookstore.BookStore.SearchStream")
        .compile(&["bookstore.proto"], &["../../proto"])
}
