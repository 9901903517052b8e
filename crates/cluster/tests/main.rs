//! The topology of a cluster, the coordinator in memory, and worlds of whole clusters.

mod memory;
mod world;
