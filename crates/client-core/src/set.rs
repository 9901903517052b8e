//! Sets: their members, and the changes of them.

use crate::choose::{Route, key_class};
use crate::core::Core;
use crate::counts::Counts;
use crate::elements::{Askable, InWhole, OpenObject, Readable, encoded};
use crate::error::Error;
use crate::found::Reading;
use crate::path::{Path, ServedBy};
use remora_fabric::Link;
use remora_index::hash::ObjectRef;
use remora_layout::kind::Kind;
use remora_layout::packed_set::part_holds;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Reject, Verified, key_in};
use remora_protocol::message::Status;
use remora_protocol::set::{SetCommand, each_member, packs};
use remora_protocol::{Items, Request};
use std::collections::BTreeSet;

/// A session's view of one set.
pub type OpenSet = OpenObject<Members>;

/// The members of sets, which have no value: one that is there counts as one with an empty value. A part
/// of a large set holds several.
#[derive(Debug)]
pub struct Members;

impl Readable for Members {
    const KIND: Kind = Kind::SET;
    const PART: Kind = Kind::SET_PART;
    const WALKS: bool = false;

    /// The record has all members, so that it proves also that one is absent.
    fn in_whole<'v>(value: &'v [u8], member: &[u8]) -> InWhole<'v> {
        if packs(value, member) { InWhole::Value(&value[..0]) } else { InWhole::Absent }
    }

    /// A part that holds the member proves that it is there, whatever its name is: it is bound to its
    /// root record by its checksum. Without the member it proves nothing, as the member may have gone to
    /// another part.
    fn in_part<'b>(
        object: &ObjectRef,
        bytes: &'b [u8],
        pointer: RemotePointer,
        member: &[u8],
    ) -> Result<Verified<'b>, Reject> {
        let name = key_in(bytes).ok_or(Reject::Torn)?;
        let part = object.verify_part(bytes, pointer, Self::PART, name)?;
        if !part_holds(name, part.value, member) {
            return Err(Reject::OtherKey);
        }
        Ok(Verified { value: &part.value[..0], ..part })
    }
}

impl Askable for Members {
    fn request(member: &[u8]) -> Request<'_> {
        SetCommand::Contains { member }.request()
    }

    fn in_reply(status: Status, _value: Option<(usize, usize)>) -> Option<(usize, usize)> {
        (status == Status::Ok).then_some((0, 0))
    }
}

/// All members of a set.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AllMembers {
    /// The members.
    pub members: BTreeSet<Vec<u8>>,
    /// How they were fetched.
    pub served_by: ServedBy,
    /// What it cost.
    pub counts: Counts,
}

impl OpenSet {
    /// Adds members, as one change; gives how many of them are new.
    pub(crate) fn add(&self, core: &mut Core, members: &[&[u8]]) -> Result<u64, Error> {
        let list = encoded(members.iter().copied());
        let members = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, SetCommand::Add { members }.request())?.number as u64)
    }

    /// Removes members; gives how many of them were there.
    pub(crate) fn remove(&self, core: &mut Core, members: &[&[u8]]) -> Result<u64, Error> {
        let list = encoded(members.iter().copied());
        let members = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, SetCommand::Remove { members }.request())?.number as u64)
    }

    /// Number of members.
    pub(crate) fn len(&self, core: &mut Core) -> Result<u64, Error> {
        Ok(self.ask(core, SetCommand::Length.request())?.number as u64)
    }

    /// All members: of a small set by one READ, of a large one asked.
    pub(crate) fn all(&mut self, core: &mut Core, path: Path) -> Result<AllMembers, Error> {
        core.asker.ready()?;
        let cost = Counts { operations: 1, ..Counts::default() };
        if path == Path::Ask || self.has_parts() || !core.asker.may_read(self.shard()) {
            return self.all_asked(core, cost);
        }
        let class = if self.is_whole() { key_class::CACHED } else { key_class::COLD };
        let timing = core.router.begin_key(&mut core.asker.endpoint, path, class)?;
        let all = match timing.route {
            Route::Ask => self.all_asked(core, cost)?,
            Route::Read => self.all_read(core, cost)?,
        };
        let (served_by, counts) = (all.served_by, &all.counts);
        core.router.end_key(&mut core.asker.endpoint, timing, class, served_by, counts)?;
        Ok(all)
    }

    fn all_read(&mut self, core: &mut Core, mut cost: Counts) -> Result<AllMembers, Error> {
        let (asker, directory) = (&mut core.asker, &mut core.directory);
        let reading = self.read((&mut asker.endpoint, directory), None, &mut cost)?;
        let Reading::Value { from, bytes, retries } = reading else {
            return self.all_asked(core, cost);
        };
        let mut members = BTreeSet::new();
        each_member(asker.endpoint.link.landed(from, bytes), |member| {
            members.insert(member.to_vec());
        });
        asker.endpoint.staleness.conclude_reads();
        cost.read = 1;
        core.meter.add(&cost);
        let served_by = ServedBy::read_after(retries + cost.stale as u32);
        Ok(AllMembers { members, served_by, counts: cost })
    }

    /// Asks for all members, after reading has cost `cost`.
    fn all_asked(&self, core: &mut Core, cost: Counts) -> Result<AllMembers, Error> {
        let wasted = Counts { operations: 0, ..cost };
        core.meter.add(&wasted);
        let served_by = ServedBy::asked_after(cost.round_trips);
        let (list, mut counts) = self.ask_list(core, SetCommand::All.request())?;
        let items = Items::parse(&list).expect("checked when it came");
        let members = items.iter().flatten().map(<[u8]>::to_vec).collect();
        counts.add(&wasted);
        Ok(AllMembers { members, served_by, counts })
    }
}
