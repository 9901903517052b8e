//! A group of which no memory is left: whether its recorded primary, started again, may lead by the word of
//! its disk.
//!
//! Invariant: only a later process of the server that the record has as the primary leads so, and only if its
//! directory says that the recorded process led the recorded epoch, and that each of its acknowledgements
//! waited for the disk. Then this directory has every acknowledged change: see
//! [`LedEpoch`]. Other disks of the set may lack the last changes, however
//! many of them there are, so they are not asked.

use crate::led_epoch::LedEpoch;
use crate::topology::{Group, Instance, MemberId, Topology};
use std::fmt::{self, Display, Formatter};

/// Why the server of the recorded primary is not promoted by the word of its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotByDisk {
    /// No later process of it is present.
    NotPresent(MemberId),
    /// It is being drained, or another server has its address.
    MayNotLead(MemberId),
    /// It has not answered. Perhaps it has a part of a copy only.
    NotAnswered(Instance),
    /// Its directory does not say that the recorded primary led this epoch: it was put back from a backup, or
    /// that process ended before the disk had all with which the epoch began.
    SaysNothing(Instance),
    /// The recorded primary has acknowledged changes before they were on its disk.
    NotDurable(Instance),
}

impl Display for NotByDisk {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPresent(member) => write!(
                f,
                "the server {member} led last, and is not present. With its data directory and durability fsync it may lead again by itself"
            ),
            Self::MayNotLead(member) => {
                write!(f, "the server {member} led last, and is being drained: undrain it")
            }
            Self::NotAnswered(instance) => {
                write!(
                    f,
                    "{instance} is the server that led last, started again: it has not answered"
                )
            }
            Self::SaysNothing(instance) => write!(
                f,
                "{instance} is the server that led last, started again: its data directory does not say that it has all that was acknowledged in this epoch"
            ),
            Self::NotDurable(instance) => write!(
                f,
                "{instance} is the server that led last, started again: it has acknowledged changes before they were on its disk, as its durability was not fsync"
            ),
        }
    }
}

/// The instance that may lead the group next, by the word of its disk. `told` gives what an instance has
/// answered, if it has.
///
/// # Errors
/// None; why. `None` if the group has had no primary.
pub(crate) fn successor_by_disk(
    topology: &Topology,
    group: &Group,
    live: &[Instance],
    told: impl Fn(&Instance) -> Option<Option<LedEpoch>>,
) -> Result<Instance, Option<NotByDisk>> {
    let primary = group.primary.ok_or(None)?;
    let present = restarted_primary(topology, group, live);
    let instance = present.ok_or(NotByDisk::NotPresent(primary.member))?;
    if topology.member(primary.member).is_none_or(|of| !of.may_lead()) {
        return Err(Some(NotByDisk::MayNotLead(primary.member)));
    }
    let led = told(&instance).ok_or(NotByDisk::NotAnswered(instance))?;
    match led.filter(|of| (of.incarnation, of.epoch) == (primary.incarnation, group.epoch)) {
        None => Err(Some(NotByDisk::SaysNothing(instance))),
        Some(LedEpoch { is_durable: false, .. }) => Err(Some(NotByDisk::NotDurable(instance))),
        Some(LedEpoch { is_durable: true, .. }) => Ok(instance),
    }
}

/// The process that the server of the recorded primary has now, if it is a later one than the record names,
/// has joined and is present.
pub(crate) fn restarted_primary(
    topology: &Topology,
    group: &Group,
    live: &[Instance],
) -> Option<Instance> {
    let primary = group.primary?;
    let now = topology.member(primary.member)?.instance();
    (now != primary && live.contains(&now)).then_some(now)
}
