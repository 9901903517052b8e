//! The integration tests of the fabric: one binary, a module for each feature.

mod fixture;
mod sessions;
mod shm_conformance;
mod sim_conformance;
mod tcp_batches;
mod tcp_conformance;
mod tcp_hostile;
mod tls_conformance;
