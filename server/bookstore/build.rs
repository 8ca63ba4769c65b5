//! Generates messages and service traits from `proto/`, without an installed compiler.

fn main() -> std::io::Result<()> {
    quire_rpc_build::Builder::default()
        .bytes("bookstore.BookStore.Lookup")
        .bytes("bookstore.BookStore.Search")
        .bytes("bookstore.BookStore.SearchStream")
        .compile(&["bookstore.proto"], &["../../proto"])
}
