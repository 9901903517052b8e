//! Tests of the fabric that need RDMA devices.

mod fixture;
mod verbs_assumptions;
mod verbs_conformance;
mod verbs_objects;
mod verbs_polling;
mod verbs_reasons;
mod verbs_security;
mod verbs_stranger;
mod verbs_world;
