//! The integration tests of what a client is made of: one binary, a module for each feature.

mod lost_reads;
mod replies;
