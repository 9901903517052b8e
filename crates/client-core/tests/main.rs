//! The integration tests of the client's core: one binary, a module for each feature.

mod lost_reads;
mod replies;
