//! `$out`: the result of a pipeline becomes a collection.
//!
//! Invariant: until all documents are there, the collection is as it was. They go into another collection
//! first, which has its options and indexes, and then takes its name. If nothing goes on with that one, it
//! expires.

use super::catalog::{
    IndexStep, ask_index, describe, described, index_goes_on, indexes_of, remove, senseless,
};
use super::write::with_id;
use crate::fields::namespace;
use crate::query::{Batch, Query};
use crate::reply::CommandError;
use crate::running::{Context, Running, Step, ask, ask_key, done, ok_body};
use bson::{RawDocument, RawDocumentBuf, cstr};
use remora_frontend::OwnedReply;
use remora_layout::limits::{INSERT_STEP_BYTES, INSERT_STEP_DOCUMENTS, UNFINISHED_OUT_MS};
use remora_layout::slot::{SLOTS, slot_of};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::{Command as Question, ExpireCondition, Items};
use std::collections::VecDeque;

/// What the last question was.
enum Asked {
    Nothing,
    Describe,
    Create,
    Expire,
    Index(IndexStep),
    /// For documents of the pipeline.
    Query,
    Insert,
    Persist,
    Move,
    /// The unfinished collection is removed, because of this error.
    Remove(CommandError),
}

/// See the module's text.
pub(super) struct Out {
    query: Query,
    batch: Batch,
    /// The key of the collection, and that of the unfinished one.
    target: Vec<u8>,
    unfinished: Vec<u8>,
    indexes: VecDeque<RawDocumentBuf>,
    /// Documents that the pipeline has given.
    left: VecDeque<RawDocumentBuf>,
    expires_at_ms: u64,
    asked: Asked,
}

impl Out {
    pub(super) fn new(
        query: Query,
        (database, collection): (&str, &str),
        context: &Context<'_>,
    ) -> Result<Self, CommandError> {
        let target = namespace(database, collection)?;
        let unfinished = unfinished_key(database, &target, context.server.random_number());
        Ok(Self {
            query,
            batch: Batch::new(INSERT_STEP_DOCUMENTS),
            target,
            unfinished,
            indexes: VecDeque::new(),
            left: VecDeque::new(),
            expires_at_ms: 0,
            asked: Asked::Nothing,
        })
    }

    /// Begins to make the collection that takes the name at last.
    fn create(&mut self, told: Option<&RawDocument>) -> Step {
        let options = told.and_then(|told| told.get_document("options").ok());
        let options = options.map(RawDocument::to_owned).unwrap_or_default();
        let indexes = told.into_iter().flat_map(indexes_of).map(RawDocument::to_owned);
        self.indexes = indexes
            .filter(|index| index.get_str("name").is_ok_and(|name| name != "_id_"))
            .collect();
        self.asked = Asked::Create;
        ask(&self.unfinished, CollectionCommand::Create { options: options.as_bytes() })
    }

    fn expire(&mut self, now_ms: u64) -> Step {
        self.expires_at_ms = now_ms + UNFINISHED_OUT_MS;
        self.asked = Asked::Expire;
        let (key, at_ms) = (&self.unfinished[..], self.expires_at_ms);
        ask_key(key, &Question::Expire { key, at_ms, condition: ExpireCondition::Always })
    }

    fn index(&mut self, of: IndexStep) -> Step {
        let step = ask_index(&self.unfinished, &of);
        self.asked = Asked::Index(of);
        step
    }

    /// What follows once nothing is asked.
    fn go_on(&mut self, context: &mut Context<'_>) -> Result<Step, CommandError> {
        if self.expires_at_ms < context.now_ms + UNFINISHED_OUT_MS / 2 {
            return Ok(self.expire(context.now_ms));
        }
        if let Some(index) = self.indexes.pop_front() {
            return Ok(self.index((index, None)));
        }
        if self.left.is_empty() {
            if !self.batch.fill(&mut self.query)? {
                self.asked = Asked::Query;
                return Ok(self.query.question());
            }
            self.left = self.batch.take().into();
        }
        if self.left.is_empty() {
            self.asked = Asked::Persist;
            let key = &self.unfinished[..];
            return Ok(ask_key(key, &Question::Persist { key }));
        }
        let (mut list, mut count) = (Vec::new(), 0);
        while let Some(document) = self.left.front()
            && count < INSERT_STEP_DOCUMENTS
            && (count == 0 || list.len() + document.as_bytes().len() <= INSERT_STEP_BYTES)
        {
            let made = with_id(document, context)?;
            Items::push(&mut list, made.as_ref().unwrap_or(document).as_bytes());
            self.left.pop_front();
            count += 1;
        }
        self.asked = Asked::Insert;
        let documents = Items::parse(&list).expect("it was made here");
        Ok(ask(&self.unfinished, CollectionCommand::Insert { documents, ordered: true }))
    }

    fn step(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        match std::mem::replace(&mut self.asked, Asked::Nothing) {
            Asked::Nothing => {
                self.asked = Asked::Describe;
                return Ok(describe(&self.target));
            }
            Asked::Describe => {
                let told = described(answer)?;
                return Ok(self.create(told.as_deref()));
            }
            Asked::Create | Asked::Expire => _ = done(answer)?,
            Asked::Index((spec, _)) => {
                if let Some(at) = index_goes_on(&done(answer)?) {
                    return Ok(self.index((spec, Some(at))));
                }
            }
            Asked::Query => self.query.take(answer)?,
            Asked::Insert => {
                if let Some(error) = first_failure(&done(answer)?) {
                    return Err(error);
                }
            }
            Asked::Persist => {
                done(answer)?;
                self.asked = Asked::Move;
                let (from, to) = (self.unfinished.clone(), self.target.clone());
                return Ok(Step::Move { from, to, replaces: true });
            }
            Asked::Move => {
                return match done(answer)?.number {
                    1 => Ok(Step::Done(no_documents(self.query.namespace()))),
                    _ => Err(senseless()),
                };
            }
            Asked::Remove(error) => return Err(error),
        }
        self.go_on(context)
    }
}

impl Running for Out {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        let is_removed = matches!(self.asked, Asked::Remove(_));
        self.step(answer, context).or_else(|error| {
            if is_removed {
                return Err(error);
            }
            self.asked = Asked::Remove(error);
            Ok(remove(&self.unfinished))
        })
    }
}

/// A key for an unfinished collection, at the shard of the finished one.
fn unfinished_key(database: &str, target: &[u8], random: u64) -> Vec<u8> {
    // What stands in the first braces, if anything does, says a key's shard.
    let open = target.iter().position(|&byte| byte == b'{').map(|at| at + 1);
    let tag = open.and_then(|open| {
        let length = target[open..].iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &target[open..open + length])
    });
    if tag.is_none() && target.contains(&b'}') {
        // Such a name cannot stand between braces. One key in as many as there are slots has the slot.
        let keys = (0..64 * SLOTS as u64).map(|at| {
            let random = random.wrapping_add(at);
            format!("{database}.tmp.agg_out.{random:016x}").into_bytes()
        });
        let found = keys.into_iter().find(|key| slot_of(key) == slot_of(target));
        return found.expect("each of so many keys misses a slot by a chance of e^-64");
    }
    let mut key = format!("{database}.tmp.agg_out.{random:016x}.{{").into_bytes();
    key.extend_from_slice(tag.unwrap_or(target));
    key.push(b'}');
    key
}

/// The first failure that the answer to an insertion tells.
pub(super) fn first_failure(answer: &OwnedReply) -> Option<CommandError> {
    let list = Items::parse(answer.value.as_deref().unwrap_or_default())?;
    let first = RawDocument::from_bytes(list.iter().next()??).ok()?;
    Some(CommandError::described(first))
}

/// The reply to a pipeline whose documents went elsewhere.
pub(super) fn no_documents(namespace: &[u8]) -> Vec<u8> {
    let namespace = String::from_utf8_lossy(namespace);
    ok_body(|reply| {
        reply.document(cstr!("cursor"), |cursor| {
            cursor.array(cstr!("firstBatch"), |_| {});
            cursor.i64(cstr!("id"), 0);
            cursor.str(cstr!("ns"), &namespace);
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_collection_has_the_slot_of_the_finished_one() {
        for target in ["db.c", "db.{a}b", "db.a}b", "db.{}x", "db.{a{b}c}", "db.{a"] {
            let key = unfinished_key("db", target.as_bytes(), 7);
            assert_eq!(slot_of(&key), slot_of(target.as_bytes()), "{target}");
        }
    }
}
