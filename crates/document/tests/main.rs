//! Tests of the crate's public functions: against an implementation over owned values that shares no
//! code with it, and over bytes that are no documents.

mod bounds;
mod cases;
mod errors;
mod filters;
mod generate;
mod hostile;
mod keys;
mod naive;
mod orders;
mod updates;
