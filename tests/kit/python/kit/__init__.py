"""Shared by the judges, the suite of the clients, the cluster and the peers: servers in processes of their own, proxies with
faults, certificates, and an audit of the bookstore's log. `tests/kit/src` has the same for tests in Rust."""
