//! Asking for what a key holds, whatever its type.

use super::content::{HashContent, Target};
use crate::asker::PIPELINE_CHUNK;
use crate::core::Core;
use crate::counts::Counts;
use crate::elements::encoded;
use crate::error::Error;
use crate::in_flight::Ticket;
use crate::large::ask_any_size;
use remora_plan::Bytes;
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};

/// The answer, apart from the bytes, which are the session's reply.
#[derive(Clone, Copy)]
pub(crate) enum Answered {
    /// Names and values of a hash.
    Hash,
    /// A string, this part of the reply.
    Text((usize, usize)),
    /// There is nothing of that key.
    Gone,
    /// It holds something else.
    OtherType,
}

impl Answered {
    /// With the bytes of the reply.
    pub fn target<'s>(self, core: &'s Core, key: &'s [u8]) -> Target<'s> {
        match self {
            Self::Hash => Target::Hash(HashContent::of_items(key, &core.asker.endpoint.reply)),
            Self::Text(range) => Target::Text(core.in_reply(range)),
            Self::Gone => Target::Gone,
            Self::OtherType => Target::OtherType,
        }
    }
}

/// A key, and the fields that are wanted if it holds a hash; `None`: all.
pub(crate) type WantedKey<'k> = (&'k [u8], Option<&'k [Bytes]>);

/// Asks for fields of a hash, all of them if none are named, or for the string that a key holds.
/// `texts` says which of the two the last key held that was asked for: that is asked first.
pub(crate) fn ask_target(
    core: &mut Core,
    (key, names): WantedKey<'_>,
    texts: &mut bool,
) -> Result<(Answered, Counts), Error> {
    let mut counts = Counts::default();
    // A key that turns from one into the other between two questions holds something else each time.
    for _ in 0..2 {
        let answer = match *texts {
            true => ask_text(core, key),
            false => ask_hash(core, key, names),
        };
        match answer {
            Err(Error::Refused(Status::WrongType)) => {
                counts.round_trips += 1;
                *texts = !*texts;
            }
            answer => {
                let (answered, cost) = answer?;
                counts.add(&cost);
                return Ok((answered, counts));
            }
        }
    }
    counts.asked = 1;
    counts.operations = 1;
    Ok((Answered::OtherType, counts))
}

/// Asks for many: `wanted` says keys and names, as for [`ask_target`]. Calls `each` with the number of each key.
/// Strings are asked for in one pipeline. Hashes come one after the other: their replies have parts, and a
/// session has one such request under way.
pub(crate) fn ask_targets(
    core: &mut Core,
    wanted: &[WantedKey<'_>],
    texts: &mut bool,
    each: &mut dyn FnMut(&Core, usize, Answered),
) -> Result<(), Error> {
    let mut alone: Vec<usize> = Vec::new();
    if *texts {
        let mut tickets = Vec::new();
        for (chunk, from) in wanted.chunks(PIPELINE_CHUNK).zip((0..).step_by(PIPELINE_CHUNK)) {
            tickets.clear();
            let asked =
                ask_texts(
                    core,
                    chunk,
                    &mut tickets,
                    &mut |core, number, answered| match answered {
                        Some(answered) => each(core, from + number, answered),
                        None => alone.push(from + number),
                    },
                );
            if asked.is_err() {
                core.asker.abandon_all(tickets.iter().copied());
            }
            asked?;
        }
    } else {
        alone.extend(0..wanted.len());
    }
    for number in alone {
        let (answered, _) = ask_target(core, wanted[number], texts)?;
        each(core, number, answered);
    }
    Ok(())
}

/// Asks for some strings; tells of each what came, `None` if it is to be asked for alone.
fn ask_texts(
    core: &mut Core,
    wanted: &[WantedKey<'_>],
    tickets: &mut Vec<(usize, Ticket)>,
    each: &mut dyn FnMut(&Core, usize, Option<Answered>),
) -> Result<(), Error> {
    for (key, _) in wanted {
        tickets.push(core.send(&Command::Get { key })?);
    }
    for (number, &(shard, ticket)) in tickets.iter().enumerate() {
        let answer = core.collect(shard, ticket)?;
        let answered = match core.accepted(answer) {
            Ok(answer) => Some(answer.value.map_or(Answered::Gone, Answered::Text)),
            Err(Error::Refused(Status::WrongType | Status::NeedsBuffer)) => None,
            Err(error) => return Err(error),
        };
        each(core, number, answered);
    }
    Ok(())
}

fn ask_text(core: &mut Core, key: &[u8]) -> Result<(Answered, Counts), Error> {
    let answer = ask_any_size(core, &Command::Get { key })?;
    Ok((answer.value.map_or(Answered::Gone, Answered::Text), answer.counts))
}

fn ask_hash(
    core: &mut Core,
    key: &[u8],
    names: Option<&[Bytes]>,
) -> Result<(Answered, Counts), Error> {
    let (shard, ticket) = send_hash(core, key, names)?;
    let (list, counts) = core.collect_list(shard, ticket)?;
    match hash_of(core, list, names) {
        Some(answered) => Ok((answered, counts)),
        // No such field, or no hash: all of it, in one look, says which.
        None => ask_hash(core, key, None),
    }
}

fn send_hash(
    core: &mut Core,
    key: &[u8],
    names: Option<&[Bytes]>,
) -> Result<(usize, Ticket), Error> {
    let Some(names) = names else {
        let request = HashCommand::All { told: Told::Both }.request();
        return core.send(&Command::Of { key, request });
    };
    let list = encoded(names.iter().map(|name| &name[..]));
    let names = Items::parse(&list).expect("it was just made");
    core.send(&Command::Of { key, request: HashCommand::GetMany { names }.request() })
}

/// What a list of a hash's fields says, which becomes the session's reply; `None` if named fields are not
/// there.
fn hash_of(core: &mut Core, list: Vec<u8>, names: Option<&[Bytes]>) -> Option<Answered> {
    let pairs = match names {
        None if list.is_empty() => return Some(Answered::Gone),
        None => list,
        Some(names) => {
            let values = Items::parse(&list).expect("checked when it came");
            let mut pairs = Vec::new();
            for (name, value) in names.iter().zip(values.fields()) {
                if let Some(value) = value {
                    Items::push(&mut pairs, name);
                    Items::push_field(&mut pairs, value);
                }
            }
            pairs
        }
    };
    if pairs.is_empty() {
        return None;
    }
    core.asker.endpoint.reply = pairs;
    Some(Answered::Hash)
}
