//! Cursors: queries whose next documents a client may ask for, over any of its connections.
//!
//! Invariants: the number of cursors and the bytes that they keep are bounded; a cursor that nothing asks
//! for ends; a cursor is at one connection at a time, taken out while a batch of it is made.

use crate::query::Query;
use crate::reply::{CommandError, ErrorCode};
use crate::scram::keyed_number;
use remora_layout::limits::{CURSOR_IDLE_MS, MAX_CURSOR_BYTES, MAX_CURSORS};
use std::collections::{BTreeMap, HashMap};

/// A cursor between two batches.
pub struct Cursor {
    /// What it goes on with.
    pub query: Query,
    /// The user that began it.
    pub user: Option<Vec<u8>>,
    /// It lives as long as the server does if nothing asks for it.
    pub is_patient: bool,
    last_used_ms: u64,
    bytes: usize,
}

/// What is to be done about a cursor's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Killed {
    /// It has ended.
    Ended,
    /// A batch of it is being made: it ends with that.
    Busy,
    /// There is none.
    Unknown,
}

/// A cursor of which a batch is being made.
struct Busy {
    /// The user that began it.
    user: Option<Vec<u8>>,
    /// It is to end.
    is_killed: bool,
}

/// Those of a server.
pub struct Cursors {
    open: HashMap<i64, Cursor>,
    /// Those that are taken out, by their numbers.
    busy: BTreeMap<i64, Busy>,
    bytes: usize,
    secret: [u8; 32],
    made: u64,
    /// Those that ended because nothing asked for them.
    pub timed_out: u64,
}

impl Cursors {
    /// None, with numbers from this secret: one client cannot guess those of another.
    pub fn new(secret: [u8; 32]) -> Self {
        let (open, busy) = (HashMap::new(), BTreeMap::new());
        Self { open, busy, bytes: 0, secret, made: 0, timed_out: 0 }
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len() + self.busy.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that they keep.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a query; its number.
    ///
    /// # Errors
    /// There are too many, or they keep too much.
    pub fn add(
        &mut self,
        query: Query,
        (user, is_patient): (Option<Vec<u8>>, bool),
        now_ms: u64,
    ) -> Result<i64, CommandError> {
        self.end_idle(now_ms);
        self.made += 1;
        // Drivers take 0 for no cursor, and some show negative numbers badly.
        let number = (keyed_number(&self.secret, self.made) & i64::MAX).max(1);
        if self.open.contains_key(&number) || self.busy.contains_key(&number) {
            return Err(CommandError::new(ErrorCode::InternalError, "two cursors have one number"));
        }
        self.keep(number, Cursor { query, user, is_patient, last_used_ms: now_ms, bytes: 0 })?;
        Ok(number)
    }

    fn keep(&mut self, number: i64, mut cursor: Cursor) -> Result<(), CommandError> {
        cursor.bytes = cursor.query.kept_bytes();
        let fits = self.len() < MAX_CURSORS && self.bytes + cursor.bytes <= MAX_CURSOR_BYTES;
        if !fits {
            let text = format!(
                "more than {MAX_CURSORS} cursors, or {} MiB kept for them: read or close some first",
                MAX_CURSOR_BYTES >> 20
            );
            return Err(CommandError::new(ErrorCode::ExceededMemoryLimit, text));
        }
        self.bytes += cursor.bytes;
        self.open.insert(number, cursor);
        Ok(())
    }

    /// Takes a cursor out, to make a batch of it: [`Cursors::put_back`] or [`Cursors::end`] follows.
    ///
    /// # Errors
    /// There is none of this number, of this user and namespace, or a batch of it is being made.
    pub fn take(
        &mut self,
        number: i64,
        user: Option<&[u8]>,
        namespace: &[u8],
    ) -> Result<Cursor, CommandError> {
        if self.busy.get(&number).is_some_and(|busy| busy.user.as_deref() == user) {
            let text = format!("cursor id {number} is already in use");
            return Err(CommandError::new(ErrorCode::CursorInUse, text));
        }
        let is_its = |cursor: &Cursor| cursor.user.as_deref() == user;
        let Some(cursor) = self.open.get(&number).filter(|cursor| is_its(cursor)) else {
            let text = format!("cursor id {number} not found");
            return Err(CommandError::new(ErrorCode::CursorNotFound, text));
        };
        if cursor.query.namespace() != namespace {
            let text = format!(
                "Requested getMore on namespace '{}', but cursor belongs to a different namespace {}",
                String::from_utf8_lossy(namespace),
                String::from_utf8_lossy(cursor.query.namespace()),
            );
            return Err(CommandError::new(ErrorCode::Unauthorized, text));
        }
        let cursor = self.open.remove(&number).expect("it was found above");
        self.bytes -= cursor.bytes;
        self.busy.insert(number, Busy { user: cursor.user.clone(), is_killed: false });
        Ok(cursor)
    }

    /// A batch is made, and there may be more.
    ///
    /// # Errors
    /// The cursor was ended meanwhile, or it keeps too much by now: it is gone, and what it had not given is lost.
    pub fn put_back(
        &mut self,
        number: i64,
        cursor: Cursor,
        now_ms: u64,
    ) -> Result<(), CommandError> {
        if self.busy.remove(&number).is_none_or(|busy| busy.is_killed) {
            let text = format!("cursor id {number} was killed");
            return Err(CommandError::new(ErrorCode::CursorKilled, text));
        }
        self.keep(number, Cursor { last_used_ms: now_ms, ..cursor })
    }

    /// Its last batch is made, or it has failed.
    pub fn end(&mut self, number: i64) {
        self.busy.remove(&number);
    }

    /// Ends a cursor.
    pub fn kill(&mut self, number: i64, user: Option<&[u8]>) -> Killed {
        if let Some(busy) = self.busy.get_mut(&number) {
            if busy.user.as_deref() != user {
                return Killed::Unknown;
            }
            busy.is_killed = true;
            return Killed::Busy;
        }
        match self.open.get(&number) {
            Some(cursor) if cursor.user.as_deref() == user => {
                self.remove(number);
                Killed::Ended
            }
            _ => Killed::Unknown,
        }
    }

    fn remove(&mut self, number: i64) {
        if let Some(cursor) = self.open.remove(&number) {
            self.bytes -= cursor.bytes;
        }
    }

    /// Ends those that nothing has asked for. Bounded: it looks at them all, which are few.
    fn end_idle(&mut self, now_ms: u64) {
        let is_idle = |cursor: &Cursor| {
            !cursor.is_patient && now_ms.saturating_sub(cursor.last_used_ms) > CURSOR_IDLE_MS
        };
        let idle = self.open.iter().filter(|(_, cursor)| is_idle(cursor));
        let idle: Vec<i64> = idle.map(|(number, _)| *number).collect();
        self.timed_out += idle.len() as u64;
        idle.into_iter().for_each(|number| self.remove(number));
    }
}
