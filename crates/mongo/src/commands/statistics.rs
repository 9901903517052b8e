//! Numbers about collections and databases: `collStats` and `dbStats`.

use super::catalog::{Names, describe, described, indexes_of, namespace_of};
use crate::command::Command;
use crate::fields::check_database;
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context, Running, Step, ok_body};
use crate::spec::{Right, Spec};
use bson::{RawDocument, cstr};
use remora_frontend::OwnedReply;
use std::collections::VecDeque;

pub(super) static COMMANDS: &[Spec] = &[
    Spec {
        names: &["collStats", "collstats"],
        summary: "Tells how many documents a collection has, and how many bytes they and its indexes take.",
        right: Right::Collection("doc.info"),
        fields: &["scale"],
        begin: coll_stats,
    },
    Spec {
        names: &["dbStats", "dbstats"],
        summary: "Tells the same of all collections of a database.",
        right: Right::Database("doc.info"),
        fields: &["scale", "freeStorage"],
        begin: db_stats,
    },
];

/// By what bytes are divided.
fn scale_of(command: &Command<'_>) -> Result<i64, CommandError> {
    match command.i64("scale")? {
        None => Ok(1),
        Some(scale @ 1..) => Ok(scale),
        Some(scale) => {
            let text = format!("BSON field 'scale' value must be >= 1, actual value '{scale}'");
            Err(CommandError::numbered(51024, text))
        }
    }
}

/// What collections have together.
#[derive(Default)]
struct Sums {
    collections: i64,
    indexes: i64,
    documents: i64,
    /// Bytes of the documents, of what they take in memory, and of the indexes.
    size: i64,
    storage: i64,
    index_bytes: i64,
}

impl Sums {
    fn add(&mut self, told: &RawDocument) {
        let number = |name: &str| told.get_i64(name).unwrap_or_default();
        let sizes = told.get_document("indexSizes").ok();
        let sizes = sizes.into_iter().flatten().flatten();
        self.collections += 1;
        self.indexes += indexes_of(told).count() as i64;
        self.documents += number("count");
        self.size += number("size");
        self.storage += number("storageSize");
        self.index_bytes += sizes.filter_map(|(_, size)| size.as_i64()).sum::<i64>();
    }

    fn average(&self) -> i64 {
        self.size.checked_div(self.documents).unwrap_or_default()
    }
}

struct CollStats {
    namespace: Vec<u8>,
    scale: i64,
    is_asked: bool,
}

fn coll_stats(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    let (namespace, scale) = (namespace_of(command)?, scale_of(command)?);
    Begun::running(CollStats { namespace, scale, is_asked: false })
}

impl Running for CollStats {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if !std::mem::replace(&mut self.is_asked, true) {
            return Ok(describe(&self.namespace));
        }
        let told = described(answer)?;
        let (mut sums, scale) = (Sums::default(), self.scale);
        if let Some(told) = &told {
            sums.add(told);
        }
        Ok(Step::Done(ok_body(|reply| {
            reply.str(cstr!("ns"), &String::from_utf8_lossy(&self.namespace));
            reply.i64(cstr!("size"), sums.size / scale);
            reply.i64(cstr!("count"), sums.documents);
            if sums.documents > 0 {
                reply.i64(cstr!("avgObjSize"), sums.average());
            }
            reply.i64(cstr!("storageSize"), sums.storage / scale);
            reply.bool(cstr!("capped"), false);
            reply.i64(cstr!("nindexes"), sums.indexes);
            reply.i64(cstr!("totalIndexSize"), sums.index_bytes / scale);
            reply.i64(cstr!("totalSize"), (sums.storage + sums.index_bytes) / scale);
            reply.document(cstr!("indexSizes"), |to| {
                let sizes = told.as_deref().and_then(|told| told.get_document("indexSizes").ok());
                for (name, size) in sizes.into_iter().flatten().flatten() {
                    to.i64(name, size.as_i64().unwrap_or_default() / scale);
                }
            });
            reply.i64(cstr!("scaleFactor"), scale);
        })))
    }
}

struct DbStats {
    database: String,
    scale: i64,
    names: Option<Names>,
    left: VecDeque<Vec<u8>>,
    sums: Sums,
}

fn db_stats(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    let database = command.database().to_owned();
    check_database(&database)?;
    // Any type of numbers: drivers send an int.
    if command.i64(command.name())? != Some(1) {
        let text = "dbStats needs the value 1";
        return Err(CommandError::new(ErrorCode::BadValue, text));
    }
    let (names, scale) =
        (Names::of(format!("{database}.").into_bytes(), describe), scale_of(command)?);
    let (names, left, sums) = (Some(names), VecDeque::new(), Sums::default());
    Begun::running(DbStats { database, scale, names, left, sums })
}

impl Running for DbStats {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(names) = &mut self.names {
            if let Some(step) = names.next(answer, context)? {
                return Ok(step);
            }
            self.left = names.take().into();
            self.names = None;
        } else if let Some(told) = described(answer)? {
            self.sums.add(&told);
        }
        if let Some(key) = self.left.pop_front() {
            return Ok(describe(&key));
        }
        let (sums, scale) = (&self.sums, self.scale);
        Ok(Step::Done(ok_body(|reply| {
            reply.str(cstr!("db"), &self.database);
            reply.i64(cstr!("collections"), sums.collections);
            reply.i64(cstr!("views"), 0);
            reply.i64(cstr!("objects"), sums.documents);
            reply.f64(cstr!("avgObjSize"), sums.average() as f64);
            reply.i64(cstr!("dataSize"), sums.size / scale);
            reply.i64(cstr!("storageSize"), sums.storage / scale);
            reply.i64(cstr!("indexes"), sums.indexes);
            reply.i64(cstr!("indexSize"), sums.index_bytes / scale);
            reply.i64(cstr!("totalSize"), (sums.storage + sums.index_bytes) / scale);
            reply.i64(cstr!("scaleFactor"), scale);
        })))
    }
}
