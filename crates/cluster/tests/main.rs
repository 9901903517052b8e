//! The topology of a cluster, and the coordinator in memory.

mod encoding;
mod memory;
mod topology;
