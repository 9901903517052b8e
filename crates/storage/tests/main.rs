//! The log on simulated disks.

mod backups;
mod corruption;
mod histories;
mod snapshots;
mod support;
