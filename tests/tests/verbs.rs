//! Tests of a server that need RDMA devices.

mod verbs_many;
mod verbs_users;
