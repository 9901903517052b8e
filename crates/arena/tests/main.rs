//! The integration tests of the arena: one binary, a module for each feature.

mod publication;
mod records;
mod slots_oracle;
mod slots_rules;
mod start;
