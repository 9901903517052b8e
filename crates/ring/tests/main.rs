//! The integration tests of message rings: one binary, a module for each feature.

mod rings;
