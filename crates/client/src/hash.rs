//! Hashes: changes are asked, and fields are read by either way.
//!
//! What it keeps true: a field counts only with its hash. A small hash is one
//! record, which proves itself. A field of a large one is believed only if the
//! same batch of READs finds the root record live, of the generation under which
//! the field was looked for, and not expired. That a field is not there is the
//! owner's word.

mod read;

use crate::api::{Counts, Got, Path, Via};
use crate::ask::Answer;
use crate::choose::{Way, key_class};
use crate::error::Error;
use crate::read::{Found, Place, Reading};
use crate::session::Session;
use remora_index::hash::ObjectRef;
use remora_layout::hash::KeyHash;
use remora_layout::limits::MAX_KEPT_RECORDS;
use remora_layout::pointer::RemotePointer;
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};
use std::collections::BTreeMap;

/// What has happened to the reads of a hash's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HashEvents {
    /// A field of a hash with parts was read by READs.
    pub part_read: u64,
    /// A field did not lie any more where it had.
    pub part_gone: u64,
    /// The hash did not lie any more where it had.
    pub root_gone: u64,
    /// The hash may have expired.
    pub expired: u64,
    /// A hash that had lain whole in its record has parts.
    pub grown: u64,
}

/// A session's view of one hash: where it lies, and its fields, as far as that was
/// told or read. All of it is a hint.
#[derive(Debug)]
pub struct OpenHash {
    key: Box<[u8]>,
    hash: KeyHash,
    shard: usize,
    held: Held,
    /// When it was last known it lay whole in its record.
    was_whole: bool,
    events: HashEvents,
}

/// What is known of where a hash lies.
#[derive(Debug)]
enum Held {
    /// Nothing.
    Unknown,
    /// Whole in this record.
    Whole(RemotePointer),
    /// It has parts; where some of them lie, by the hashes of their names.
    Parts { object: Box<ObjectRef>, fields: BTreeMap<u64, RemotePointer> },
}

impl OpenHash {
    /// The hash's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// What has happened to the reads of its fields.
    pub fn events(&self) -> HashEvents {
        self.events
    }

    /// Learns where it lies.
    fn hold(&mut self, held: Held) {
        let is_whole = matches!(held, Held::Whole(_));
        self.events.grown += u64::from(self.was_whole && !is_whole);
        (self.held, self.was_whole) = (held, is_whole);
    }

    /// Whether one READ is enough for this field, as far as is known.
    fn knows(&self, name: &[u8]) -> bool {
        match &self.held {
            Held::Unknown => false,
            Held::Whole(_) => true,
            Held::Parts { object, fields } => fields.contains_key(&object.hash(name).0),
        }
    }

    /// Keeps where a field of the present hash with parts lies. Where there are too
    /// many, it begins anew, as with the records of trees.
    fn keep(&mut self, name: &[u8], pointer: RemotePointer) {
        if let Held::Parts { object, fields } = &mut self.held {
            if fields.len() == MAX_KEPT_RECORDS {
                fields.clear();
            }
            fields.insert(object.hash(name).0, pointer);
        }
    }
}

/// Names and values, in turn, as requests have them.
fn encoded<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut list = Vec::new();
    items.into_iter().for_each(|item| Items::push(&mut list, item));
    list
}

impl Session {
    /// A view of the hash that a key holds, or will hold. Nothing is asked.
    ///
    /// # Errors
    /// The key is too long.
    ///
    /// # Example
    /// ```no_run
    /// use remora_client::{Address, Options, Path, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut session = Session::connect("/tmp/remora.sock".parse::<Address>()?, &Options::default())?;
    /// let mut courier = session.open_hash(b"courier:7")?;
    /// session.hash_set(&courier, &[(b"state", b"free"), (b"zone", b"north")])?;
    /// let state = session.hash_get(&mut courier, b"state", Path::Read)?;
    /// assert_eq!(state.value, Some(&b"free"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_hash(&self, key: &[u8]) -> Result<OpenHash, Error> {
        let (hash, shard) = self.route(key)?;
        let (held, events) = (Held::Unknown, HashEvents::default());
        Ok(OpenHash { key: key.into(), hash, shard, held, was_whole: false, events })
    }

    /// The value of a field; none without the field or the key. Valid until the
    /// session is used again.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Example
    /// ```no_run
    /// # use remora_client::{Error, OpenHash, Path, Session};
    /// # fn zone(session: &mut Session, courier: &mut OpenHash) -> Result<(), Error> {
    /// // The first READ finds the hash; from then on a field is one round trip.
    /// let zone = session.hash_get(courier, b"zone", Path::Choose)?;
    /// println!("{:?}, {:?}, {} round trips", zone.value, zone.via, zone.counts.round_trips);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_get(
        &mut self,
        open: &mut OpenHash,
        name: &[u8],
        path: Path,
    ) -> Result<Got<'_>, Error> {
        self.check()?;
        self.send_gathered()?;
        let cost = Counts { operations: 1, ..Counts::default() };
        if path == Path::Ask {
            let begun = self.begin_given(Way::Ask)?;
            let found = self.field_asked(open, name, cost)?;
            self.end_given(begun, found.via)?;
            return Ok(self.got(found));
        }
        if !self.may_read(open.shard) {
            let cost = Counts { behind_writes: 1, ..cost };
            let found = self.field_asked(open, name, cost)?;
            return Ok(self.got(found));
        }
        let class = if open.knows(name) { key_class::CACHED } else { key_class::COLD };
        let begun = self.begin_key(path, class)?;
        let found = match begun.way {
            Way::Ask => self.field_asked(open, name, cost)?,
            Way::Read => self.field_read(open, name, cost)?,
        };
        self.end_key(begun, class, &found)?;
        Ok(self.got(found))
    }

    /// A field, by READs as far as they go.
    fn field_read(
        &mut self,
        open: &mut OpenHash,
        name: &[u8],
        mut cost: Counts,
    ) -> Result<Found, Error> {
        let reading = self.read_field(open, name, &mut cost)?;
        let Reading::Value { from, bytes, retries } = reading else {
            return self.field_asked(open, name, cost);
        };
        cost.read = 1;
        self.totals.add(&cost);
        let via = Via::read_after(retries + cost.stale as u32);
        Ok(Found { place: Place::Landed { from, bytes }, via, counts: cost })
    }

    /// Asks for a field, after reading has cost `cost`, and learns where it lies.
    fn field_asked(
        &mut self,
        open: &mut OpenHash,
        name: &[u8],
        cost: Counts,
    ) -> Result<Found, Error> {
        let wasted = Counts { operations: 0, ..cost };
        self.totals.add(&wasted);
        let via = if cost.round_trips == 0 { Via::Asked } else { Via::AskedAfterRead };
        let request = HashCommand::Get { name }.request();
        let (value, mut counts) = match self.ask(&Command::Of { key: &open.key, request }) {
            Ok(answer) => {
                self.learn(open, name, &answer);
                (answer.value, answer.counts)
            }
            // No frame carries it: in parts, as a list of one.
            Err(Error::Refused(Status::NeedsBuffer)) => {
                let names = encoded([name]);
                let names = Items::parse(&names).expect("one name");
                let command = HashCommand::GetMany { names };
                let (list, counts) = self.ask_list(open.shard, &open.key, &command)?;
                let item = Items::split(&list).and_then(|(item, _)| item);
                let range = item.map(|item| (0, item.len()));
                self.reply = item.unwrap_or_default().to_vec();
                (range, counts)
            }
            Err(error) => return Err(error),
        };
        counts.add(&wasted);
        Ok(Found { place: Place::Reply(value), via, counts })
    }

    /// Learns from the answer to a [`HashCommand::Get`] where a hash lies.
    fn learn(&mut self, open: &mut OpenHash, name: &[u8], answer: &Answer) {
        let (pointer, root) = (answer.pointer, answer.number as u64);
        if answer.status != Status::Ok || !self.is_readable(pointer, open.shard) {
            return;
        }
        if root == 0 {
            return open.hold(Held::Whole(pointer));
        }
        let is_known = matches!(&open.held, Held::Parts { object, .. } if object.is_root(root));
        if !is_known {
            let (table, seed) = (&self.shards[open.shard].table, self.connection.hash_seed);
            let object = Box::new(ObjectRef::of_root(table, seed, root));
            open.hold(Held::Parts { object, fields: BTreeMap::new() });
        }
        open.keep(name, pointer);
    }

    /// Asks for what comes as a list, in as many replies as it takes.
    fn ask_list(
        &mut self,
        shard: usize,
        key: &[u8],
        command: &HashCommand<'_>,
    ) -> Result<(Vec<u8>, Counts), Error> {
        let ticket = self.send_to(shard, &Command::Of { key, request: command.request() })?;
        let (mut list, mut counts) = (Vec::new(), Counts::default());
        // Bounded by the bytes that a search may give.
        loop {
            let answer = self.collect(shard, ticket)?;
            let answer = self.accepted(answer)?;
            counts.add(&answer.counts);
            if let Some((from, to)) = answer.value {
                list.extend_from_slice(&self.reply[from..to]);
            }
            if !answer.is_followed {
                return match Items::parse(&list) {
                    Some(_) => Ok((list, counts)),
                    None => Err(self.end(Error::Protocol("a list that is none"))),
                };
            }
        }
    }

    fn ask_of(&mut self, open: &OpenHash, command: &HashCommand<'_>) -> Result<Answer, Error> {
        self.ask(&Command::Of { key: &open.key, request: command.request() })
    }

    /// Sets fields, as one change; gives how many of them are new.
    ///
    /// # Errors
    /// See [`Error`]. Without any field it is refused as malformed.
    ///
    /// # Example
    /// ```no_run
    /// # use remora_client::{Error, OpenHash, Session};
    /// # fn set(session: &mut Session, courier: &OpenHash) -> Result<(), Error> {
    /// session.hash_set(courier, &[(b"state", b"busy"), (b"order", b"4711")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_set(&mut self, open: &OpenHash, fields: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        let list = encoded(fields.iter().flat_map(|(name, value)| [*name, *value]));
        let pairs = Items::parse(&list).expect("it was just made");
        Ok(self.ask_of(open, &HashCommand::Set { pairs })?.number as u64)
    }

    /// Removes fields; gives how many of them were there. The key is gone with its
    /// last field.
    ///
    /// # Errors
    /// See [`Error`]. Without any name it is refused as malformed.
    ///
    /// # Example
    /// ```no_run
    /// # use remora_client::{Error, OpenHash, Session};
    /// # fn delivered(session: &mut Session, courier: &OpenHash) -> Result<(), Error> {
    /// session.hash_remove(courier, &[b"order"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_remove(&mut self, open: &OpenHash, names: &[&[u8]]) -> Result<u64, Error> {
        let list = encoded(names.iter().copied());
        let names = Items::parse(&list).expect("it was just made");
        Ok(self.ask_of(open, &HashCommand::Remove { names })?.number as u64)
    }

    /// Adds to the integer in a field, 0 if it is not there; gives the sum.
    ///
    /// # Errors
    /// See [`Error`]; the value may not be an integer, or the sum not fit.
    ///
    /// # Example
    /// ```no_run
    /// # use remora_client::{Error, OpenHash, Session};
    /// # fn count(session: &mut Session, courier: &OpenHash) -> Result<(), Error> {
    /// let today = session.hash_increment(courier, b"orders today", 1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_increment(&mut self, open: &OpenHash, name: &[u8], by: i64) -> Result<i64, Error> {
        Ok(self.ask_of(open, &HashCommand::Increment { name, by })?.number)
    }

    /// Number of fields; 0 without the key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Example
    /// ```no_run
    /// # use remora_client::{Error, OpenHash, Session};
    /// # fn is_known(session: &mut Session, courier: &OpenHash) -> Result<bool, Error> {
    /// Ok(session.hash_len(courier)? > 0)
    /// # }
    /// ```
    pub fn hash_len(&mut self, open: &OpenHash) -> Result<u64, Error> {
        Ok(self.ask_of(open, &HashCommand::Length)?.number as u64)
    }

    /// The values of fields, in the order of the names: one look at the hash.
    ///
    /// # Errors
    /// See [`Error`]. Without any name it is refused as malformed.
    ///
    /// # Example
    /// ```no_run
    /// # use remora_client::{Error, OpenHash, Session};
    /// # fn both(session: &mut Session, courier: &OpenHash) -> Result<(), Error> {
    /// let values = session.hash_get_many(courier, &[b"state", b"zone"])?;
    /// assert_eq!(values.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_get_many(
        &mut self,
        open: &OpenHash,
        names: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let names = encoded(names.iter().copied());
        let names = Items::parse(&names).expect("it was just made");
        let command = HashCommand::GetMany { names };
        let (list, _) = self.ask_list(open.shard, &open.key, &command)?;
        let items = Items::parse(&list).expect("checked when it came");
        Ok(items.iter().map(|item| item.map(<[u8]>::to_vec)).collect())
    }

    /// All fields and their values, as they are when the server begins to answer.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Example
    /// ```no_run
    /// # use remora_client::{Error, OpenHash, Session};
    /// # fn show(session: &mut Session, courier: &OpenHash) -> Result<(), Error> {
    /// for (name, value) in session.hash_all(courier)? {
    ///     println!("{} = {}", name.escape_ascii(), value.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_all(&mut self, open: &OpenHash) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
        let command = HashCommand::All { told: Told::Both };
        let (list, _) = self.ask_list(open.shard, &open.key, &command)?;
        let items = Items::parse(&list).expect("checked when it came");
        let mut items = items.iter().flatten().map(<[u8]>::to_vec);
        Ok(std::iter::from_fn(|| Some((items.next()?, items.next()?))).collect())
    }
}
