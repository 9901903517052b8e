//! Hashes that go from key to key: RENAME, COPY and MOVE, in pieces where they have
//! parts.
//!
//! One RESP client changes them, one request after another, so that it knows each key's value; ring
//! clients read them. After a connection that ended with a request under way, or a server that
//! died, the values are unknown: then the client uses other keys, of the next generation.

use super::requests::{Expect, Maker, Request};
use crate::check::keys::{If, KeyOp, Value};
use crate::probes::Probe;
use crate::values::{HashName, Register, encode};
use remora_layout::limits::DUMP_PIECE_PARTS;
use std::collections::{BTreeMap, BTreeSet};

/// Keys of one generation in each database.
pub const MOVED_KEYS: u8 = 2;

/// A key that such a hash may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MovedKey {
    database: u8,
    key: u8,
}

/// That client's knowledge.
#[derive(Default)]
pub struct Moves {
    generation: u16,
    moving: Moving,
    /// The number of each field's value, by the keys.
    held: BTreeMap<MovedKey, BTreeMap<u32, i64>>,
}

/// A client that moves the objects of keys.
pub trait Mover {
    /// Other keys from now on. There is nothing yet under them.
    fn begin_anew(&mut self, maker: &Maker);

    /// The knowledge of any of them.
    fn moving(&mut self) -> &mut Moving;

    /// Counts the moves of several pieces that came to their end.
    fn probe(&self) -> Probe;

    /// The next request.
    fn next(&mut self, maker: &Maker) -> Request;

    /// A connection to this incarnation of the server has begun. Other keys, if the one before
    /// was to another.
    fn note_connection(&mut self, maker: &Maker, incarnation: u64) {
        self.moving().database = maker.database;
        if std::mem::replace(&mut self.moving().incarnation, incarnation) != incarnation {
            self.begin_anew(maker);
        }
    }

    /// The last request was answered, or refused.
    fn answered(&mut self, maker: &Maker, is_done: bool) {
        if !is_done {
            self.begin_anew(maker);
        }
        let is_moved = std::mem::take(&mut self.moving().is_in_pieces) && is_done;
        maker.world.probes.borrow_mut().add(self.probe(), is_moved as u64);
    }
}

/// The knowledge of each of them.
#[derive(Default)]
pub struct Moving {
    /// The incarnation of the server that has the keys.
    incarnation: u64,
    /// The database that the connection has selected.
    database: u8,
    /// The last request moves an object of several pieces.
    pub is_in_pieces: bool,
}

impl Mover for Moves {
    fn begin_anew(&mut self, maker: &Maker) {
        self.generation += 1;
        self.held.clear();
        maker.world.moved.set(self.generation);
    }

    fn moving(&mut self) -> &mut Moving {
        &mut self.moving
    }

    fn probe(&self) -> Probe {
        Probe::HashMoved
    }

    fn next(&mut self, maker: &Maker) -> Request {
        let databases = maker.world.swarm.databases;
        let place = |database| MovedKey { database, key: maker.draw(MOVED_KEYS as u64) as u8 };
        let from = place(self.moving.database);
        let other = MovedKey { key: MOVED_KEYS - 1 - from.key, ..from };
        let elsewhere = place(maker.draw(databases as u64) as u8);
        let is_there = self.held.contains_key(&from);
        match maker.draw(20) {
            0 if databases > 1 => {
                self.moving.database = (self.moving.database + 1) % databases as u8;
                maker.select(self.moving.database)
            }
            1 | 2 if is_there => self.remove(maker, from),
            3 if is_there => self.del(maker, from),
            4 | 5 if is_there => self.go(maker, "RENAME", (from, other), false),
            6..9 if is_there && elsewhere != from => {
                self.go(maker, "COPY", (from, elsewhere), true)
            }
            9 | 10 if is_there && elsewhere.database != from.database => {
                let to = MovedKey { key: from.key, ..elsewhere };
                self.go(maker, "MOVE", (from, to), false)
            }
            _ => self.set(maker, from),
        }
    }
}

impl Moves {
    fn register(&self, place: MovedKey, number: u32) -> Register {
        Register { database: place.database, hash: Some(self.name(place)), number }
    }

    fn name(&self, place: MovedKey) -> HashName {
        HashName::Moved { generation: self.generation, key: place.key }
    }

    fn key(&self, place: MovedKey) -> Vec<u8> {
        self.name(place).key()
    }

    /// Some fields, twins together.
    fn some_fields(maker: &Maker) -> BTreeSet<u32> {
        let hashes = &maker.world.swarm.hashes;
        let fields = hashes.fields as u64;
        // Many at a time, so that there are several pieces.
        let most = [3, fields][maker.draw(2) as usize];
        hashes.with_twins((0..1 + maker.draw(most)).map(|_| maker.draw(fields) as u32))
    }

    fn set(&mut self, maker: &Maker, to: MovedKey) -> Request {
        let number = maker.world.next_number();
        let (mut words, mut ops) = (vec![b"HSET".to_vec(), self.key(to)], Vec::new());
        let mut new = 0;
        for field in Self::some_fields(maker) {
            let register = self.register(to, field);
            let lengths = maker.world.swarm.lengths_of(register);
            words.extend([register.name(), encode(register, number, lengths)]);
            ops.push((register, written(number)));
            new += self.held.entry(to).or_default().insert(field, number).is_none() as i64;
        }
        Request::new(words, Expect::Exactly(new), ops)
    }

    fn remove(&mut self, maker: &Maker, from: MovedKey) -> Request {
        let (mut words, mut ops) = (vec![b"HDEL".to_vec(), self.key(from)], Vec::new());
        let mut removed = 0;
        for field in Self::some_fields(maker) {
            let register = self.register(from, field);
            words.push(register.name());
            ops.push((register, GONE));
            let held = self.held.get_mut(&from).expect("it is there");
            removed += held.remove(&field).is_some() as i64;
        }
        self.held.retain(|_, fields| !fields.is_empty());
        Request::new(words, Expect::Exactly(removed), ops)
    }

    fn del(&mut self, maker: &Maker, from: MovedKey) -> Request {
        self.held.remove(&from);
        let ops = self.ops_of(maker, from);
        Request::new(vec![b"DEL".to_vec(), self.key(from)], Expect::Exactly(1), ops)
    }

    /// A key's present value, as operations that result in it.
    fn ops_of(&self, maker: &Maker, place: MovedKey) -> Vec<(Register, KeyOp)> {
        let held = self.held.get(&place);
        let number = |field| held.and_then(|held| held.get(&field)).copied();
        let op = |field| (self.register(place, field), number(field).map_or(GONE, written));
        (0..maker.world.swarm.hashes.fields).map(op).collect()
    }

    /// A hash, or a copy of it, moves to another key.
    fn go(
        &mut self,
        maker: &Maker,
        command: &str,
        (from, to): (MovedKey, MovedKey),
        keeps: bool,
    ) -> Request {
        let mut words = vec![command.as_bytes().to_vec(), self.key(from)];
        let database = to.database.to_string().into_bytes();
        let replaces = match command {
            "MOVE" => {
                words.push(database);
                false
            }
            "COPY" => {
                words.extend([self.key(to), b"DB".to_vec(), database]);
                let replaces = maker.draw(4) > 0;
                words.extend(replaces.then(|| b"REPLACE".to_vec()));
                replaces
            }
            _ => {
                words.push(self.key(to));
                true
            }
        };
        let is_done = replaces || !self.held.contains_key(&to);
        let expect = if command == "RENAME" { Expect::Ok } else { Expect::Exactly(is_done as i64) };
        let mut ops = Vec::new();
        if is_done {
            let fields = match keeps {
                true => self.held.get(&from).cloned(),
                false => self.held.remove(&from),
            };
            let fields = fields.expect("it is there");
            self.moving.is_in_pieces = fields.len() > DUMP_PIECE_PARTS;
            self.held.insert(to, fields);
            ops = self.ops_of(maker, to);
            if !keeps {
                ops.extend(self.ops_of(maker, from));
            }
        }
        Request::new(words, expect, ops)
    }
}

const GONE: KeyOp = KeyOp::Del { removed: None };

fn written(number: i64) -> KeyOp {
    KeyOp::Set { value: Value { number, expiry: None }, condition: If::Always, done: None }
}
