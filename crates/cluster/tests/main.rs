//! The topology of a cluster, the coordinator in memory, and worlds of whole clusters.

mod fixture;
mod member;
mod memory;
mod watcher;
mod world;
