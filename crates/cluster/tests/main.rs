//! The topology of a cluster, the coordinator in memory, the machines of failover, and worlds of whole
//! clusters.

mod encoding;
mod fixture;
mod histories;
mod member;
mod memory;
mod topology;
mod view;
mod watcher;
mod world;
