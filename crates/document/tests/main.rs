//! Tests of the crate's public functions: against an implementation over owned values that shares no
//! code with it, and over bytes that are no documents.

mod bounds;
mod cases;
mod errors;
mod expressions;
mod filters;
mod generate;
mod geo;
mod geo_bounds;
mod hostile;
mod keys;
mod naive;
mod orders;
mod pipelines;
mod projections;
mod random_pipelines;
mod schemas;
mod updates;
