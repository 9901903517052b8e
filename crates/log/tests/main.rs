//! The integration tests of the log: one binary, a module for each feature.

mod log;
