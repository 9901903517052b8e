//! The integration tests of RESP: one binary, a module for each feature.

mod documents;
mod geo;
mod oracle;
mod properties;
mod requests;
mod sorted;
mod sorted_model;
mod table;
mod trees;
