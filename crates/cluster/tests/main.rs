//! The topology of a cluster, and the coordinator in memory.

mod encoding;
mod histories;
mod memory;
mod topology;
mod view;
