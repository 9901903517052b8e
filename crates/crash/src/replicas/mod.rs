//! `remora crash --replicas N`: a primary and its replicas as real processes. They are killed, stand
//! still, lose their links; a replica is promoted by hand when the primary is gone.

mod node;
mod plan;
mod reads;
mod run;
mod servers;

pub use run::run;
