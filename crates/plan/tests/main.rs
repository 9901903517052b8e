//! Tests of plans: random plans over random graphs against an oracle, limits at their edges, the two
//! forms of a plan.

mod bytes;
mod driver;
mod generator;
mod limits;
mod oracle;
mod promises;
mod runs;
mod text;
mod world;
