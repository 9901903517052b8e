//! The topology of a cluster, the coordinator in memory, and worlds of whole clusters.

mod encoding;
mod histories;
mod memory;
mod topology;
mod view;
mod world;
