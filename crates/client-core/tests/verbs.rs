//! Tests of a client that need RDMA devices.

mod verbs_data_buffers;
