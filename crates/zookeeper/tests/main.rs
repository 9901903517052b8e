//! The coordinator over a real ZooKeeper server (Debian's package `zookeeper`, 3.8).

mod conformance;
mod connections;
mod member;
mod proxy;
mod quorum;
mod server;
