//! The user that Remora's commands log in as.

use remora_client_core::Credentials;
use std::os::unix::ffi::OsStrExt;

/// The user that Remora's commands log in as: the environment's REMORA_USER and REMORA_PASSWORD, which no list of
/// processes shows.
pub fn credentials() -> Credentials {
    let of = |name| std::env::var_os(name).unwrap_or_default();
    Credentials::new(of("REMORA_USER").as_bytes(), of("REMORA_PASSWORD").as_bytes())
}
