//! The log on simulated disks.

mod corruption;
mod histories;
mod support;
