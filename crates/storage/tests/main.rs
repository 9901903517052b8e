//! The log on simulated disks.

mod backups;
mod corruption;
mod histories;
mod hostile;
mod led_epoch;
mod missing;
mod places;
mod snapshots;
mod support;
