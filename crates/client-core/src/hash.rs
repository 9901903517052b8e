//! Hashes: their fields, and the changes of them.

use crate::choose::Route;
use crate::core::Core;
use crate::counts::Counts;
use crate::elements::{Askable, InWhole, ObjectEvents, OpenObject, Readable, encoded, push_link};
use crate::error::Error;
use crate::found::Reading;
use crate::links::{FieldValue, Link, field_of};
use crate::path::{Path, ServedBy};
use remora_fabric::Link as _;
use remora_layout::kind::Kind;
use remora_layout::packed::{self, Field};
use remora_layout::record::{CHECKED_FROM, Lengths};
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::message::Status;
use remora_protocol::{Items, Request};
use std::collections::BTreeMap;

/// Events of the READs of a hash's fields.
pub type HashEvents = ObjectEvents;

/// A session's view of one hash.
pub type OpenHash = OpenObject<Fields>;

/// The fields of hashes: each part is one, and has its name.
#[derive(Debug)]
pub struct Fields;

impl Readable for Fields {
    const KIND: Kind = Kind::HASH;
    const PART: Kind = Kind::HASH_FIELD;
    const WALKS: bool = true;

    fn in_whole<'v>(value: &'v [u8], name: &[u8]) -> InWhole<'v> {
        packed::find(value, name).map_or(InWhole::Unknown, InWhole::Value)
    }
}

impl Askable for Fields {
    fn request(name: &[u8]) -> Request<'_> {
        HashCommand::Get { name }.request()
    }

    fn in_reply(_status: Status, value: Option<(usize, usize)>) -> Option<(usize, usize)> {
        value
    }

    fn in_parts(names: Items<'_>) -> Option<Request<'_>> {
        Some(HashCommand::GetMany { names }.request())
    }
}

impl OpenHash {
    /// The link in a field; none if it is not there, or no link.
    pub(crate) fn link(
        &mut self,
        core: &mut Core,
        name: &[u8],
        path: Path,
    ) -> Result<Option<Link>, Error> {
        core.asker.ready()?;
        let mut cost = Counts { operations: 1, ..Counts::default() };
        let may_read = core.asker.may_read(self.shard());
        if path == Path::Ask || !may_read {
            cost.behind_writes = u64::from(path != Path::Ask);
            return self.link_asked(core, name, cost);
        }
        let class = self.key_class(name);
        let timing = core.router.begin_key(&mut core.asker.endpoint, path, class)?;
        let read = match timing.route {
            Route::Ask => None,
            Route::Read => self.field_read(core, name, &mut cost)?,
        };
        let (link, served_by) = match read {
            Some(link) => (link, ServedBy::read_after((cost.retries + cost.stale) as u32)),
            None => {
                let served_by = ServedBy::asked_after(cost.round_trips);
                (self.link_asked(core, name, cost)?, served_by)
            }
        };
        let Core { router, asker, .. } = &mut *core;
        router.end_key(&mut asker.endpoint, timing, class, served_by, &cost)?;
        Ok(link)
    }

    /// The link in a field, if it is one, by READs; `None` if only the owner knows.
    fn field_read(
        &mut self,
        core: &mut Core,
        name: &[u8],
        cost: &mut Counts,
    ) -> Result<Option<Option<Link>>, Error> {
        let Core { asker, directory, .. } = &mut *core;
        let Reading::Value { from, bytes, .. } =
            self.read((&mut asker.endpoint, directory), Some(name), cost)?
        else {
            return Ok(None);
        };
        asker.endpoint.staleness.conclude_reads();
        // The verified record of the field, or of the whole hash, begins the landing memory. Hints
        // follow the value.
        let header = asker.endpoint.link.landed(0, from + bytes);
        let word = header.get(CHECKED_FROM..).and_then(<[u8]>::first_chunk);
        let lengths = word.and_then(|word| Lengths::from_word(u64::from_le_bytes(*word)));
        let Some(lengths) = lengths else { return Ok(None) };
        let record = asker.endpoint.link.landed(0, lengths.record_bytes());
        let field = field_of(lengths.kind, lengths.key_bytes as usize, record, name);
        let link = field.and_then(|field| field.link(self.key(), name));
        cost.read = 1;
        core.meter.add(cost);
        Ok(Some(link))
    }

    /// Asks for the link in a field, after reading has cost `cost`. No hint comes with the answer.
    fn link_asked(
        &self,
        core: &mut Core,
        name: &[u8],
        cost: Counts,
    ) -> Result<Option<Link>, Error> {
        core.meter.add(&Counts { operations: 0, ..cost });
        let names = encoded([name]);
        let names = Items::parse(&names).expect("it was just made");
        let (list, _) = self.ask_list(core, HashCommand::GetMany { names }.request())?;
        let field = Items::split_field(&list).and_then(|(field, _)| field);
        let Some(Field { value, is_link }) = field else { return Ok(None) };
        Ok(FieldValue::from(Field { value, is_link }).without_place())
    }

    /// Sets fields, as one change; gives how many of them are new.
    pub(crate) fn set(&self, core: &mut Core, fields: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        let list = encoded(fields.iter().flat_map(|(name, value)| [*name, *value]));
        let pairs = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, HashCommand::Set { pairs }.request())?.number as u64)
    }

    /// Sets fields to links that name these keys, as one change; gives how many of them are new.
    pub(crate) fn set_links(
        &self,
        core: &mut Core,
        links: &[(&[u8], &[u8])],
    ) -> Result<u64, Error> {
        let mut list = Vec::new();
        for (name, target) in links {
            Items::push(&mut list, name);
            push_link(&mut list, target)?;
        }
        let pairs = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, HashCommand::Set { pairs }.request())?.number as u64)
    }

    /// Removes those of these fields that are links; gives how many of them there were.
    pub(crate) fn remove_links(&self, core: &mut Core, names: &[&[u8]]) -> Result<u64, Error> {
        let list = encoded(names.iter().copied());
        let names = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, HashCommand::RemoveLinks { names }.request())?.number as u64)
    }

    /// Removes fields; gives how many of them were there.
    pub(crate) fn remove(&self, core: &mut Core, names: &[&[u8]]) -> Result<u64, Error> {
        let list = encoded(names.iter().copied());
        let names = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, HashCommand::Remove { names }.request())?.number as u64)
    }

    /// Adds to the integer in a field; gives the sum.
    pub(crate) fn increment(&self, core: &mut Core, name: &[u8], by: i64) -> Result<i64, Error> {
        Ok(self.ask(core, HashCommand::Increment { name, by }.request())?.number)
    }

    /// Number of fields.
    pub(crate) fn len(&self, core: &mut Core) -> Result<u64, Error> {
        Ok(self.ask(core, HashCommand::Length.request())?.number as u64)
    }

    /// The values of fields, in the order of the names.
    pub(crate) fn get_many(
        &self,
        core: &mut Core,
        names: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let names = encoded(names.iter().copied());
        let names = Items::parse(&names).expect("it was just made");
        let (list, _) = self.ask_list(core, HashCommand::GetMany { names }.request())?;
        let items = Items::parse(&list).expect("checked when it came");
        Ok(items.iter().map(|item| item.map(<[u8]>::to_vec)).collect())
    }

    /// All fields and their values.
    pub(crate) fn all(&self, core: &mut Core) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
        let (list, _) = self.ask_list(core, HashCommand::All { told: Told::Both }.request())?;
        let items = Items::parse(&list).expect("checked when it came");
        let mut items = items.iter().flatten().map(<[u8]>::to_vec);
        Ok(std::iter::from_fn(|| Some((items.next()?, items.next()?))).collect())
    }
}
