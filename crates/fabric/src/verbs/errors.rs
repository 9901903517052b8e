//! Why a verbs object is not available.

use super::library::{NoLibrary, last_error};
use super::memlock::NotRegistered;
use crate::LinkError;
use std::io;

/// Why a verbs object is not available.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// No library.
    #[error(transparent)]
    NoLibrary(#[from] NoLibrary),
    /// No such device, any more.
    #[error("there is no RDMA device {0}: `remora doctor` lists those there are")]
    NoDevice(String),
    /// Nothing to send from.
    #[error("no RDMA device has an active port with an address: `remora doctor` says why")]
    NoPlace,
    /// The device lacks a required capability.
    #[error("the RDMA device {device} has no {what}")]
    Lacks {
        /// Its name.
        device: String,
        /// The missing capability.
        what: &'static str,
    },
    /// The kernel knows the device, but this process may not use it.
    #[error(
        "the RDMA device {device} cannot be opened ({why}): this process needs /dev/infiniband (in a container: docker run --device=/dev/infiniband), and ibverbs-providers must be installed"
    )]
    NotOpened {
        /// Its name.
        device: String,
        /// The library's message.
        why: io::Error,
    },
    /// The port's table of partition keys is shorter.
    #[error(
        "the RDMA device {device} has no P_Key at index {index}: port {port} has {length}; set rdma_pkey_index"
    )]
    NoPartition {
        /// Its name.
        device: String,
        /// The port.
        port: u8,
        /// The index that was set.
        index: u16,
        /// How many the table has room for.
        length: u16,
    },
    /// Memory cannot be registered.
    #[error(transparent)]
    Register(#[from] NotRegistered),
    /// The queue pairs are connected, and carry nothing.
    #[error("the RDMA devices do not reach each other: {0}")]
    NoReach(LinkError),
    /// Anything else.
    #[error("cannot {step}: {why}")]
    Failed {
        /// The operation that failed.
        step: &'static str,
        /// The library's message.
        why: io::Error,
    },
}

/// A call gave nothing and set errno.
pub(super) fn failed(step: &'static str) -> VerbsError {
    VerbsError::Failed { step, why: last_error() }
}

/// The result of a call that returns an error number.
pub(super) fn checked(step: &'static str, code: i32) -> Result<(), VerbsError> {
    match code {
        0 => Ok(()),
        // Some verbs give -1 and set errno, others the number itself.
        ..0 => Err(failed(step)),
        code => Err(VerbsError::Failed { step, why: io::Error::from_raw_os_error(code) }),
    }
}
