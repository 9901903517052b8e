//! The log on simulated disks.

mod backups;
mod corruption;
mod histories;
mod missing;
mod places;
mod support;
