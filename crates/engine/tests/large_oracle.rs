//! Large values against a plain model: uploads in pieces of any size, downloads
//! that outlive their keys, edits in place, all interleaved with other commands
//! on the same keys, while readers look in between. In the end no byte is lost.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Download, LargeSet, Outcome, Upload};
use remora_engine::{Now, Shard, ShardOptions};
use remora_index::hash::{AskReason, walk_locally};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{ASK_ONLY_BYTES, REPUBLISH_AFTER_S, STREAM_BYTES};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::verify;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};
use remora_testing::Random;
use std::collections::HashMap;

const SECRET: u64 = 0x5ec2e7;
const KEYS: u64 = 5;

/// Around every limit, seldom longer.
fn bytes(random: &mut Random, most: u64) -> Vec<u8> {
    let length = match random.below(8) {
        0 => random.below(40),
        1 => ASK_ONLY_BYTES as u64 - 20 + random.below(40),
        2 => STREAM_BYTES as u64 - 20 + random.below(40),
        _ => random.below(most),
    };
    random.bytes(length as usize)
}

/// A value and its expiry (0: never).
type Held = (Vec<u8>, u64);

struct Uploading {
    upload: Upload,
    key: Vec<u8>,
    value: Vec<u8>,
    sent: usize,
    condition: Condition,
    expiry: Expiry,
    get: bool,
}

struct Downloading {
    download: Download,
    value: Vec<u8>,
    got: usize,
}

#[derive(Default)]
struct OracleCounts {
    uploaded: u32,
    streamed: u32,
    edited: u32,
    asked: u32,
    read: u32,
    old_pointers: u32,
    full: u32,
}

struct World {
    shard: Shard,
    random: Random,
    model: HashMap<Vec<u8>, Held>,
    uploads: Vec<Uploading>,
    downloads: Vec<Downloading>,
    /// Pointers that replies brought, with the values that they were for.
    pointers: Vec<(Vec<u8>, RemotePointer, Vec<u8>)>,
    now: Now,
    counts: OracleCounts,
}

fn shard(arena_bytes: usize) -> Shard {
    let options =
        ShardOptions { hash_seed: 3, buckets: 8, record_secret: SECRET, ..ShardOptions::default() };
    Shard::new(Owner::heap(arena_bytes, NoJournal), options)
}

impl World {
    fn new(seed: u64, arena_bytes: usize) -> Self {
        Self {
            shard: shard(arena_bytes),
            random: Random::new(seed),
            model: HashMap::new(),
            uploads: Vec::new(),
            downloads: Vec::new(),
            pointers: Vec::new(),
            now: Now { unix_ms: 1_000_000, since_start_s: 100 },
            counts: OracleCounts::default(),
        }
    }

    fn key(&mut self) -> (Vec<u8>, KeyHash) {
        let number = self.random.below(KEYS);
        let key = vec![b'k'; 1 + 37 * number as usize];
        let hash = self.shard.hash(&key);
        (key, hash)
    }

    fn present(&mut self, key: &[u8]) -> Option<Held> {
        let now_ms = self.now.unix_ms;
        self.model.retain(|_, (_, at)| *at == 0 || *at > now_ms);
        self.model.get(key).cloned()
    }

    fn expiry(&mut self) -> Expiry {
        match self.random.below(6) {
            0 => Expiry::At(self.now.unix_ms + 1 + self.random.below(4_000)),
            1 => Expiry::Keep,
            _ => Expiry::Never,
        }
    }

    fn condition(&mut self) -> Condition {
        [Condition::Always, Condition::Always, Condition::IfAbsent, Condition::IfPresent]
            [self.random.below(4) as usize]
    }

    /// Keeps an outcome's value if it is a download. The reply's parts.
    fn take(
        outcome: Outcome<'_>,
        downloads: &mut Vec<Downloading>,
        expected: Option<&[u8]>,
    ) -> (Status, i64, RemotePointer) {
        match outcome {
            Outcome::Reply(reply) => {
                assert!(reply.value.is_none_or(|value| value.len() <= STREAM_BYTES));
                assert_eq!(reply.value, expected);
                (reply.status, reply.number, reply.pointer)
            }
            Outcome::Stream(reply, download) => {
                let value = expected.expect("a value is expected").to_vec();
                assert!(value.len() > STREAM_BYTES && reply.value.is_none());
                assert_eq!(download.len(), value.len());
                downloads.push(Downloading { download, value, got: 0 });
                (reply.status, reply.number, reply.pointer)
            }
        }
    }

    fn begin_upload(&mut self) {
        let (key, hash) = self.key();
        let (value, condition, expiry) =
            (bytes(&mut self.random, 300_000), self.condition(), self.expiry());
        let get = self.random.below(2) == 0;
        let value_bytes = value.len();
        let set = LargeSet { key: &key, hash, value_bytes, condition, expiry, get };
        match self.shard.begin_upload(set, self.now) {
            Ok(upload) => {
                self.uploads.push(Uploading {
                    upload,
                    key,
                    value,
                    sent: 0,
                    condition,
                    expiry,
                    get,
                });
            }
            Err(status) => {
                assert_eq!(status, Status::OutOfMemory);
                self.counts.full += 1;
            }
        }
    }

    fn upload_some(&mut self) {
        if self.uploads.is_empty() {
            return self.begin_upload();
        }
        let at = self.random.below(self.uploads.len() as u64) as usize;
        let up = &mut self.uploads[at];
        let left = up.value.len() - up.sent;
        assert_eq!(up.upload.missing(), left);
        if left > 0 {
            let most = if self.random.below(3) == 0 { 12 } else { 200_000 };
            let piece = (self.random.below(most) as usize).min(left);
            let bytes = &up.value[up.sent..up.sent + piece];
            assert_eq!(self.shard.upload(&mut up.upload, bytes), Ok(()));
            up.sent += piece;
            return;
        }
        let up = self.uploads.swap_remove(at);
        self.finish_upload(up);
    }

    fn finish_upload(&mut self, mut up: Uploading) {
        assert_eq!(self.shard.upload(&mut up.upload, b"x"), Err(Status::Malformed));
        let before = self.present(&up.key);
        let old = before.as_ref().map(|(value, _)| value.clone()).filter(|_| up.get);
        let outcome = self.shard.finish_upload(up.upload, self.now);
        if let Outcome::Reply(reply) = &outcome
            && reply.status == Status::OutOfMemory
        {
            self.counts.full += 1;
            return;
        }
        let (status, _, pointer) = Self::take(outcome, &mut self.downloads, old.as_deref());
        let allowed = match up.condition {
            Condition::Always => true,
            Condition::IfAbsent => before.is_none(),
            Condition::IfPresent => before.is_some(),
        };
        assert_eq!(status, if allowed { Status::Ok } else { Status::NotDone });
        if allowed {
            let at = match up.expiry {
                Expiry::Never => 0,
                Expiry::Keep => before.map_or(0, |(_, at)| at),
                // It may have passed while the value came.
                Expiry::At(at) => at,
            };
            self.pointers.push((up.key.clone(), pointer, up.value.clone()));
            self.model.insert(up.key, (up.value, at));
            self.counts.uploaded += 1;
        }
    }

    fn download_some(&mut self) {
        if self.downloads.is_empty() {
            return;
        }
        let at = self.random.below(self.downloads.len() as u64) as usize;
        let down = &mut self.downloads[at];
        let most = 1 + self.random.below(100_000) as usize;
        let piece = self.shard.piece(&down.download, down.got, most);
        let to = (down.got + most).min(down.value.len());
        assert!(piece == &down.value[down.got..to], "the value of the command's moment");
        down.got = to;
        if to == down.value.len() || self.random.below(20) == 0 {
            let down = self.downloads.swap_remove(at);
            assert_eq!(self.shard.piece(&down.download, down.value.len(), 9), b"");
            self.shard.end_download(down.download, self.now);
            self.counts.streamed += 1;
        }
    }

    /// GET and its kin.
    fn look(&mut self) {
        let (key, hash) = self.key();
        let present = self.present(&key);
        let value = present.as_ref().map(|(value, _)| value.clone());
        let bytes = value.as_ref().map_or(0, Vec::len);
        let key = key.as_slice();
        let (command, expected) = match self.random.below(8) {
            0 => (Command::GetDel { key }, value.clone()),
            1 => (Command::GetEx { key, at_ms: None }, value.clone()),
            2 => (Command::GetEx { key, at_ms: Some(self.now.unix_ms) }, value.clone()),
            3 => {
                let start = self.random.below(bytes as u64 + 2) as i32;
                let part = value.clone().unwrap_or_default();
                let part = part.get(start as usize..).unwrap_or_default().to_vec();
                (Command::GetRange { key, start, end: -1 }, Some(part))
            }
            _ => (Command::Get { key }, value.clone()),
        };
        let outcome = self.shard.execute_or_stream(&command, hash, self.now);
        let (_, _, pointer) = Self::take(outcome, &mut self.downloads, expected.as_deref());
        match (command, value) {
            (Command::GetDel { .. } | Command::GetEx { at_ms: Some(_), .. }, _) => {
                self.model.remove(key);
            }
            (Command::GetEx { .. }, Some(_)) => self.model.get_mut(key).unwrap().1 = 0,
            (Command::Get { .. }, Some(value)) if pointer.is_some() => {
                self.pointers.push((key.to_vec(), pointer, value));
            }
            _ => {}
        }
    }

    /// APPEND, SETRANGE, SETBIT.
    fn edit(&mut self) {
        let (key, hash) = self.key();
        let before = self.present(&key);
        let (mut new, at) = before.unwrap_or_default();
        let key = key.as_slice();
        let part =
            if self.random.below(3) == 0 { bytes(&mut self.random, 30_000) } else { vec![7; 9] };
        let most = (new.len() as u64 + 30).min(400_000);
        let offset = self.random.below(most);
        let mut write = |offset: usize, part: &[u8]| {
            new.resize(new.len().max(offset + part.len()), 0);
            new[offset..offset + part.len()].copy_from_slice(part);
        };
        let kind = if most > 300_000 { 1 + self.random.below(2) } else { self.random.below(3) };
        let length = self.model.get(key).map_or(0, |(value, _)| value.len());
        let command = match kind {
            0 => {
                write(length, &part);
                Command::Append { key, value: &part }
            }
            1 => {
                write(offset as usize, &part);
                Command::SetRange { key, offset, value: &part }
            }
            _ => {
                let old = self.model.get(key).and_then(|(value, _)| value.get(offset as usize));
                write(offset as usize, &[old.copied().unwrap_or(0) | 0x80]);
                Command::SetBit { key, offset: offset as u32 * 8, bit: true }
            }
        };
        if kind == 1 && part.is_empty() {
            return;
        }
        let reply = self.shard.execute(&command, hash, self.now);
        if reply.status == Status::OutOfMemory {
            self.counts.full += 1;
            return;
        }
        assert_eq!(reply.status, Status::Ok);
        self.counts.edited += 1;
        if kind < 2 {
            assert_eq!(reply.number as usize, new.len());
        }
        self.model.insert(key.to_vec(), (new, at));
    }

    /// Other commands, and time.
    fn other(&mut self) {
        let (key, hash) = self.key();
        let present = self.present(&key).is_some();
        let key = key.as_slice();
        match self.random.below(20) {
            0..=3 => {
                let reply = self.shard.execute(&Command::Del { key }, hash, self.now);
                assert_eq!(reply.number, present as i64);
                self.model.remove(key);
            }
            4 if self.random.below(10) == 0 => {
                self.shard.execute(&Command::Flush, hash, self.now);
                self.model.clear();
            }
            5..=8 => {
                let (value, get) = (bytes(&mut self.random, 200_000), self.random.below(2) == 0);
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                let set = Command::Set { key, value: &value, condition, expiry, get };
                let old = self.model.get(key).map(|(value, _)| value.clone()).filter(|_| get);
                let outcome = self.shard.execute_or_stream(&set, hash, self.now);
                if let Outcome::Reply(reply) = &outcome
                    && reply.status == Status::OutOfMemory
                {
                    self.counts.full += 1;
                    return;
                }
                Self::take(outcome, &mut self.downloads, old.as_deref());
                self.model.insert(key.to_vec(), (value, 0));
            }
            9 if !self.uploads.is_empty() => {
                let up = self.uploads.pop().unwrap();
                if up.sent < up.value.len() && self.random.below(2) == 0 {
                    let outcome = self.shard.finish_upload(up.upload, self.now);
                    let Outcome::Reply(reply) = outcome else { panic!("no value") };
                    assert_eq!(reply.status, Status::Malformed);
                } else {
                    self.shard.abandon_upload(up.upload, self.now);
                }
            }
            10..=13 => {
                self.now.unix_ms += self.random.below(700);
                self.now.since_start_s += (self.random.below(3) == 0) as u64;
            }
            _ => self.shard.tick(self.now),
        }
    }

    /// A reader's present result: by its key, and by a former pointer.
    fn read(&mut self) {
        let (key, hash) = self.key();
        let present = self.present(&key);
        let words = self.shard.owner().view().clone();
        let mut scratch = Vec::new();
        match walk_locally(
            &words,
            &mut self.shard.table_ref(),
            &key,
            hash,
            Kind::STRING,
            &mut scratch,
        ) {
            Ok(found) if found.mutable.expires_at_ms != 0 && present.is_none() => {
                assert!(found.mutable.expires_at_ms <= self.now.unix_ms);
            }
            Ok(found) => {
                assert!(Some(found.value) == present.as_ref().map(|(value, _)| &value[..]));
                self.counts.read += 1;
            }
            Err(AskReason::Pending) => self.counts.asked += 1,
            Err(reason) => {
                assert!(present.is_none(), "a quiet shard can be read: {reason:?}");
            }
        }
        if self.pointers.is_empty() {
            return;
        }
        let at = self.random.below(self.pointers.len() as u64) as usize;
        let (key, pointer, value) = &self.pointers[at];
        let mut bytes = vec![0; pointer.length as usize];
        words.copy_out(pointer.offset() as usize, &mut bytes);
        let generation = Some(pointer.generation);
        let found =
            verify(&bytes, SECRET, pointer.region, pointer.slot, generation, Kind::STRING, key);
        match found {
            Ok(found) => {
                assert!(found.value == value, "one generation is one value");
                self.counts.old_pointers += 1;
            }
            Err(_) => drop(self.pointers.swap_remove(at)),
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0 => self.begin_upload(),
            1..=4 => self.upload_some(),
            5..=6 => self.look(),
            7..=8 => self.download_some(),
            9..=13 => self.edit(),
            14..=16 => self.other(),
            _ => self.read(),
        }
        if self.uploads.len() > 3 {
            let up = self.uploads.remove(0);
            self.shard.abandon_upload(up.upload, self.now);
        }
        if self.downloads.len() > 5 {
            let down = self.downloads.remove(0);
            self.shard.end_download(down.download, self.now);
        }
    }

    /// Everything ends; every byte is free again.
    fn end(&mut self) {
        for down in std::mem::take(&mut self.downloads) {
            assert!(self.shard.piece(&down.download, 0, usize::MAX) == down.value);
            self.shard.end_download(down.download, self.now);
        }
        for up in std::mem::take(&mut self.uploads) {
            self.shard.abandon_upload(up.upload, self.now);
        }
        assert_eq!(self.shard.stats().pinned, 0);
        // A value that is no longer changed becomes readable again.
        for _ in 0..200 {
            self.now.since_start_s += REPUBLISH_AFTER_S;
            self.shard.tick(self.now);
        }
        assert_eq!(self.shard.stats().ask_only, 0);
        self.present(b"");
        for (key, (value, _)) in &self.model {
            let hash = self.shard.hash(key);
            let words = self.shard.owner().view().clone();
            let mut scratch = Vec::new();
            let table = &mut self.shard.table_ref();
            let found = walk_locally(&words, table, key, hash, Kind::STRING, &mut scratch).unwrap();
            assert!(found.value == value);
        }
        self.shard.execute(&Command::Flush, KeyHash(0), self.now);
        self.now.since_start_s += 1_000;
        self.shard.tick(self.now);
        let slots = self.shard.stats().slots;
        assert_eq!((slots.used_bytes, slots.quarantine_bytes), (0, 0));
        assert!(!self.shard.wants_ticks());
    }
}

fn run(seed: u64, arena_bytes: usize, steps: u32) -> OracleCounts {
    let mut world = World::new(seed, arena_bytes);
    let total = world.shard.stats().slots.total_bytes();
    for _ in 0..steps {
        world.step();
        assert_eq!(world.shard.stats().slots.total_bytes(), total);
    }
    world.end();
    world.counts
}

#[test]
fn large_values_agree_with_a_model() {
    for seed in 1..=3 {
        let counts = run(seed, 32 << 20, 6_000);
        assert!(counts.uploaded > 50 && counts.streamed > 50 && counts.edited > 500);
        assert!(counts.asked > 50 && counts.read > 50 && counts.old_pointers > 20);
        assert_eq!(counts.full, 0);
    }
}

#[test]
fn large_values_agree_with_a_model_when_memory_is_short() {
    for seed in 11..=14 {
        let counts = run(seed, 5 << 18, 6_000);
        assert!(counts.full > 20, "{}", counts.full);
        assert!(counts.uploaded > 20 && counts.streamed > 20 && counts.edited > 200);
    }
}
