//! Asking for what a key holds, whatever its type.

use super::content::{HashContent, Target};
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
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

/// Asks for fields of a hash, all of them if none are named, or for the string that a key holds.
/// `texts` says which of the two the last key held that was asked for: that is asked first.
pub(crate) fn ask_target(
    core: &mut Core,
    (key, names): (&[u8], Option<&[Bytes]>),
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

fn ask_text(core: &mut Core, key: &[u8]) -> Result<(Answered, Counts), Error> {
    let answer = ask_any_size(core, &Command::Get { key })?;
    Ok((answer.value.map_or(Answered::Gone, Answered::Text), answer.counts))
}

fn ask_hash(
    core: &mut Core,
    key: &[u8],
    names: Option<&[Bytes]>,
) -> Result<(Answered, Counts), Error> {
    let (_, shard) = core.directory.locate(key)?;
    let Some(names) = names else {
        let request = HashCommand::All { told: Told::Both }.request();
        let (list, counts) = core.ask_list(shard, key, request)?;
        let answered = if list.is_empty() { Answered::Gone } else { Answered::Hash };
        core.asker.endpoint.reply = list;
        return Ok((answered, counts));
    };
    let mut list = Vec::new();
    names.iter().for_each(|name| Items::push(&mut list, name));
    let request =
        HashCommand::GetMany { names: Items::parse(&list).expect("it was just made") }.request();
    let (values, counts) = core.ask_list(shard, key, request)?;
    let mut pairs = Vec::new();
    let values = Items::parse(&values).expect("checked when it came");
    for (name, value) in names.iter().zip(values.fields()) {
        if let Some(value) = value {
            Items::push(&mut pairs, name);
            Items::push_field(&mut pairs, value);
        }
    }
    if pairs.is_empty() {
        // No such field, or no hash: all of it, in one look, says which.
        return ask_hash(core, key, None);
    }
    core.asker.endpoint.reply = pairs;
    Ok((Answered::Hash, counts))
}
