//! Batches of cursors: the first one, `getMore`, `killCursors`.

use crate::command::Command;
use crate::cursors::{Cursor, Killed};
use crate::fields::namespace;
use crate::limits::MAX_DOCUMENT_BYTES;
use crate::query::{Batch, Query};
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context, MongoServer, Running, Step, ok_body};
use crate::spec::{Right, Spec};
use bson::{RawDocumentBuf, cstr};
use remora_frontend::OwnedReply;
use remora_layout::limits::FIRST_BATCH_DOCUMENTS;
use std::sync::Arc;

pub(super) static COMMANDS: &[Spec] = &[
    Spec {
        names: &["getMore"],
        summary: "Gives the next documents of a cursor.",
        right: Right::Login,
        fields: &["collection", "batchSize"],
        begin: get_more,
    },
    Spec {
        names: &["killCursors"],
        summary: "Ends cursors.",
        right: Right::Login,
        fields: &["cursors"],
        begin: kill_cursors,
    },
];

/// Documents of a first batch that is asked to have so many.
pub(super) fn first_batch_size(size: Option<i64>) -> Result<usize, CommandError> {
    match size {
        None => Ok(FIRST_BATCH_DOCUMENTS),
        Some(size) => usize::try_from(size).map_err(|_| {
            let text = format!("BSON field 'batchSize' value must be >= 0, actual value '{size}'");
            CommandError::numbered(51024, text)
        }),
    }
}

/// A query's first batch that is being made.
pub(super) struct FirstBatch {
    query: Option<Query>,
    batch: Batch,
    is_single: bool,
    is_patient: bool,
    user: Option<Vec<u8>>,
}

impl FirstBatch {
    /// Of so many documents at most; whether there is no other one; whether its cursor has no end of time.
    pub(super) fn new(
        query: Query,
        (size, is_single, is_patient): (usize, bool, bool),
        context: &Context<'_>,
    ) -> Self {
        let user = context.user.clone();
        Self { query: Some(query), batch: Batch::new(size), is_single, is_patient, user }
    }
}

impl Running for FirstBatch {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        let query = self.query.as_mut().expect("it is not over");
        if answer.is_some() {
            query.take(answer)?;
        }
        if !self.batch.fill(query)? {
            return Ok(query.question());
        }
        let query = self.query.take().expect("it is not over");
        let namespace = String::from_utf8_lossy(query.namespace()).into_owned();
        let id = match query.is_over() || self.is_single {
            true => 0,
            false => {
                let of = (self.user.take(), self.is_patient);
                context.server.cursors().add(query, of, context.now_ms)?
            }
        };
        Ok(Step::Done(ok_body(|reply| {
            reply.document(cstr!("cursor"), |cursor| {
                cursor.array(cstr!("firstBatch"), |batch| self.batch.write(batch));
                cursor.i64(cstr!("id"), id);
                cursor.str(cstr!("ns"), &namespace);
            });
        })))
    }
}

/// The next batch of a cursor that is being made. The cursor ends with it, unless it is put back.
struct NextBatch {
    server: Arc<MongoServer>,
    number: i64,
    cursor: Option<Cursor>,
    batch: Batch,
}

impl Drop for NextBatch {
    fn drop(&mut self) {
        if self.cursor.is_some() {
            self.server.cursors().end(self.number);
        }
    }
}

fn get_more(command: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    let Some(number) = command.first().as_i64() else {
        let text = "BSON field 'getMore.getMore' is the wrong type, expected type 'long'";
        return Err(CommandError::new(ErrorCode::TypeMismatch, text));
    };
    let Some(collection) = command.str("collection")? else {
        let text = "BSON field 'getMore.collection' is missing but a required field";
        return Err(CommandError::new(ErrorCode::MissingField, text));
    };
    let size = match command.i64("batchSize")? {
        None | Some(0) => usize::MAX,
        size => first_batch_size(size)?,
    };
    let namespace = namespace(command.database(), collection)?;
    let cursor = context.server.cursors().take(number, context.user.as_deref(), &namespace)?;
    let (server, batch) = (Arc::clone(context.server), Batch::new(size));
    Begun::running(NextBatch { server, number, cursor: Some(cursor), batch })
}

impl Running for NextBatch {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        let query = &mut self.cursor.as_mut().expect("it is not over").query;
        if answer.is_some() {
            query.take(answer)?;
        }
        if !self.batch.fill(query)? {
            return Ok(query.question());
        }
        let namespace = String::from_utf8_lossy(query.namespace()).into_owned();
        let is_over = query.is_over();
        let goes_on = match self.cursor.take() {
            Some(cursor) if !is_over => {
                self.server.cursors().put_back(self.number, cursor, context.now_ms)
            }
            _ => {
                self.server.cursors().end(self.number);
                false
            }
        };
        Ok(Step::Done(ok_body(|reply| {
            reply.document(cstr!("cursor"), |cursor| {
                cursor.array(cstr!("nextBatch"), |batch| self.batch.write(batch));
                cursor.i64(cstr!("id"), if goes_on { self.number } else { 0 });
                cursor.str(cstr!("ns"), &namespace);
            });
        })))
    }
}

fn kill_cursors(command: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    namespace(command.database(), command.collection()?)?;
    let Some(numbers) = command.array("cursors")? else {
        let text = "BSON field 'killCursors.cursors' is missing but a required field";
        return Err(CommandError::new(ErrorCode::MissingField, text));
    };
    let numbers = numbers.into_iter().filter_map(Result::ok).map(|value| value.as_i64());
    let Some(numbers) = numbers.collect::<Option<Vec<i64>>>() else {
        let text = "BSON field 'killCursors.cursors' has something else than numbers of cursors";
        return Err(CommandError::new(ErrorCode::TypeMismatch, text));
    };
    let mut cursors = context.server.cursors();
    let user = context.user.as_deref();
    let killed: Vec<(i64, Killed)> =
        numbers.into_iter().map(|number| (number, cursors.kill(number, user))).collect();
    drop(cursors);
    Begun::reply(|reply| {
        let of = |is: &'static [Killed]| {
            killed.iter().filter(move |(_, killed)| is.contains(killed)).map(|(number, _)| *number)
        };
        reply.array(cstr!("cursorsKilled"), |to| {
            of(&[Killed::Ended, Killed::Busy]).for_each(|number| to.i64(number));
        });
        reply.array(cstr!("cursorsNotFound"), |to| {
            of(&[Killed::Unknown]).for_each(|number| to.i64(number))
        });
        reply.array(cstr!("cursorsAlive"), |_| {});
        reply.array(cstr!("cursorsUnknown"), |_| {});
    })
}

/// The body of a reply with a cursor that has one batch.
///
/// # Errors
/// It would be too long.
pub(super) fn write_whole_batch(
    documents: &[RawDocumentBuf],
    namespace: &str,
) -> Result<Vec<u8>, CommandError> {
    let bytes: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
    if bytes > MAX_DOCUMENT_BYTES {
        let text = "the list is longer than a reply may be: ask for less with a filter";
        return Err(CommandError::new(ErrorCode::BsonObjectTooLarge, text));
    }
    Ok(ok_body(|reply| {
        reply.document(cstr!("cursor"), |cursor| {
            cursor.array(cstr!("firstBatch"), |to| {
                documents.iter().for_each(|document| to.raw_document(document));
            });
            cursor.i64(cstr!("id"), 0);
            cursor.str(cstr!("ns"), namespace);
        });
    }))
}
