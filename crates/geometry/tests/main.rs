//! The integration tests of geometries: one binary, a module for each feature.

mod exact;
mod formats;
mod predicates;
