//! Hashes: their fields, and the changes of them.

use crate::core::Core;
use crate::elements::{InWhole, ObjectEvents, OpenObject, Readable, encoded};
use crate::error::Error;
use remora_layout::kind::Kind;
use remora_layout::packed;
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

    fn request(name: &[u8]) -> Request<'_> {
        HashCommand::Get { name }.request()
    }

    fn in_reply(_status: Status, value: Option<(usize, usize)>) -> Option<(usize, usize)> {
        value
    }

    fn in_parts(names: Items<'_>) -> Option<Request<'_>> {
        Some(HashCommand::GetMany { names }.request())
    }

    fn in_whole<'v>(value: &'v [u8], name: &[u8]) -> InWhole<'v> {
        packed::find(value, name).map_or(InWhole::Unknown, InWhole::Value)
    }
}

impl OpenHash {
    /// Sets fields, as one change; gives how many of them are new.
    pub(crate) fn set(&self, core: &mut Core, fields: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        let list = encoded(fields.iter().flat_map(|(name, value)| [*name, *value]));
        let pairs = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, HashCommand::Set { pairs }.request())?.number as u64)
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
