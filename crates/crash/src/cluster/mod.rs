//! `remora crash --cluster zk`: ZooKeeper and the servers of one group as real processes. They are
//! killed, stand still, lose the coordinator and each other; the cluster goes on by itself.

mod failover;
mod members;
mod neighbour;
mod plan;
mod readers;
mod round;
mod run;
mod writers;

pub use members::{ClusterPlan, Members, Status};
pub use neighbour::run as run_neighbour;
pub use plan::Kind;
pub use run::run;
