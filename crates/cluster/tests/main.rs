//! The topology of a cluster, and the coordinator in memory.

mod memory;
