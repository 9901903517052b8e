//! The integration tests of walks: one binary, a module for each feature.

mod wide;
