//! The log against a model; frames against corruption; cuts against all cuts.

use proptest::prelude::*;
use remora_log::{
    AssembleError, Assembler, Cursor, CursorError, Entry, Frame, Frames, Hold, KnownLog, Log,
    LogKey, LogOptions, Part, consistent_cut,
};
use std::collections::BTreeMap;

const PIECE_BYTES: usize = 48;
const LIMIT_BYTES: usize = 1024;
const HELD_BYTES: usize = 4096;
const SHARD: u32 = 3;

fn key() -> LogKey {
    LogKey::new(0x5ec2e7, SHARD)
}

fn small_log(epoch: u64) -> Log {
    Log::new(LogOptions {
        limit_bytes: LIMIT_BYTES,
        held_bytes: HELD_BYTES,
        piece_bytes: PIECE_BYTES,
        ..LogOptions::new(key(), SHARD, epoch)
    })
}

/// The appended entries.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Kept {
    epoch: u64,
    parts: Vec<Part>,
    operation: Vec<u8>,
    /// Bytes of frames before it; an entry that the log does not keep drops all.
    position: usize,
    is_passed: bool,
}

impl Kept {
    fn is(&self, entry: &Entry<'_>) -> bool {
        self.epoch == entry.epoch
            && self.parts == entry.parts.iter().collect::<Vec<_>>()
            && self.operation == entry.operation
            && !self.is_passed
    }
}

fn frame_bytes(operation: usize, parts: usize) -> usize {
    let body = operation + 16 * parts;
    let pieces = body.div_ceil(PIECE_BYTES).max(1);
    body + pieces * 40
}

#[derive(Clone, Debug)]
enum Op {
    Append { bytes: usize },
    AppendPart { bytes: usize, others: u32 },
    Pass,
    Epoch,
    Open { back: u64 },
    Read { reader: usize, most: usize },
    Hold { reader: usize },
    Release { reader: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let sizes = || prop_oneof![6 => 0usize..70, 2 => 40usize..400, 1 => 400usize..900];
    let op = prop_oneof![
        10 => sizes().prop_map(|bytes| Op::Append { bytes }),
        2 => (sizes(), 0u32..5).prop_map(|(bytes, others)| Op::AppendPart { bytes, others }),
        1 => Just(Op::Pass),
        1 => Just(Op::Epoch),
        3 => (0u64..12).prop_map(|back| Op::Open { back }),
        8 => (any::<usize>(), 0usize..600).prop_map(|(reader, most)| Op::Read { reader, most }),
        2 => any::<usize>().prop_map(|reader| Op::Hold { reader }),
        1 => any::<usize>().prop_map(|reader| Op::Release { reader }),
    ];
    prop::collection::vec(op, 1..120)
}

struct Reader {
    cursor: Cursor,
    assembler: Assembler,
    hold: Option<Hold>,
}

struct Fixture {
    log: Log,
    entries: Vec<Kept>,
    position: usize,
    readers: Vec<Reader>,
}

impl Fixture {
    fn push(&mut self, bytes: usize, others: u32) {
        let sequence = self.entries.len() as u64 + 1;
        let operation: Vec<u8> = (0..bytes).map(|at| (at as u64 * 31 + sequence) as u8).collect();
        let (a, rest) = operation.split_at(bytes / 3);
        let (b, c) = rest.split_at(rest.len() / 2);
        let mut parts: Vec<Part> = Vec::new();
        let (room, holding) = (self.log.room_bytes(), self.holding());
        let appended = if others == 0 {
            self.log.append([a, b, c])
        } else {
            parts = (10..10 + others).map(|shard| Part::new(shard, 7)).collect();
            parts.insert(others as usize / 2, Part::new(SHARD, sequence));
            self.log.append_part(&parts, [a, b, c])
        };
        assert_eq!(appended.sequence, sequence);
        assert_eq!(appended.room_bytes, self.log.room_bytes());
        // Segments are not full to their ends.
        let bytes_taken = 2 * frame_bytes(bytes, parts.len()) + LIMIT_BYTES / 4;
        assert!(holding == self.holding() || bytes_taken > room, "broken with {room} bytes left");
        let (epoch, position) = (self.log.epoch(), self.position);
        self.position += frame_bytes(bytes, parts.len());
        let is_passed = false;
        self.entries.push(Kept { epoch, parts, operation, position, is_passed });
    }

    /// Readers whose holds are unbroken.
    fn holding(&self) -> Vec<bool> {
        let is_whole = |cursor: Cursor| self.log.read(&mut { cursor }, 0, &mut Vec::new()).is_ok();
        let holds = |reader: &Reader| reader.hold.is_some() && is_whole(reader.cursor);
        self.readers.iter().map(holds).collect()
    }

    fn read(&mut self, at: usize, most: usize) {
        let at = at % self.readers.len();
        let oldest = self.log.oldest_sequence();
        let reader = &mut self.readers[at];
        let mut bytes = Vec::new();
        let frames = match self.log.read(&mut reader.cursor, most, &mut bytes) {
            Ok(frames) => frames,
            Err(lost) => {
                assert_eq!(lost.oldest, oldest);
                let next = reader.assembler.next_sequence();
                assert!(next < oldest, "lost at {next}, but {oldest} is kept");
                let gone = self.readers.remove(at);
                if let Some(hold) = gone.hold {
                    // A hold breaks only beyond the bytes that may be held.
                    let from = &self.entries[next as usize - 1];
                    let is_passed = self.entries[next as usize - 1..].iter().any(|e| e.is_passed);
                    assert!(is_passed || self.position - from.position > HELD_BYTES / 2 - 600);
                    self.log.release(hold);
                }
                return;
            }
        };
        assert!(bytes.len() <= most || frames == 1);
        let mut seen = 0;
        for frame in Frames::new(&bytes, key()) {
            seen += 1;
            let due = reader.assembler.next_sequence();
            if let Some(entry) = reader.assembler.take(frame.unwrap()).unwrap() {
                assert_eq!(entry.sequence, due);
                assert!(self.entries[due as usize - 1].is(&entry));
            }
        }
        assert_eq!(seen, frames);
        if frames == 0 {
            assert_eq!(reader.assembler.next_sequence(), self.entries.len() as u64 + 1);
        }
        if let Some(hold) = &reader.hold {
            self.log.move_hold(hold, &reader.cursor).unwrap();
        }
    }

    fn open(&mut self, back: u64) {
        let next = self.entries.len() as u64 + 1;
        let sequence = next.saturating_sub(back).max(1);
        match self.log.cursor(sequence) {
            Ok(cursor) => {
                let assembler = Assembler::new(sequence, usize::MAX);
                self.readers.push(Reader { cursor, assembler, hold: None });
            }
            Err(CursorError::Lost(lost)) => {
                assert!(lost.oldest > sequence && lost.oldest <= next);
                assert_eq!(lost.oldest, self.log.oldest_sequence());
                let gone = &self.entries[sequence as usize - 1..];
                let bytes = self.position - gone[0].position;
                let is_long = |kept: &Kept| kept.operation.len() > LIMIT_BYTES / 2 - 300;
                assert!(
                    bytes > LIMIT_BYTES / 4
                        || gone.iter().any(|kept| kept.is_passed || is_long(kept)),
                    "{sequence} of {next}: only {bytes} bytes were appended since"
                );
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(self.log.cursor(next + 1), Err(CursorError::Ahead { next }));
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Append { bytes } => self.push(bytes, 0),
            Op::AppendPart { bytes, others } => self.push(bytes, others),
            Op::Pass => {
                let (epoch, position) = (self.log.epoch(), self.position);
                assert_eq!(self.log.pass(), self.entries.len() as u64 + 1);
                let kept =
                    Kept { epoch, parts: vec![], operation: vec![], position, is_passed: true };
                self.entries.push(kept);
            }
            Op::Epoch => self.log.begin_epoch(self.log.epoch() + 2),
            Op::Open { back } => self.open(back),
            _ if self.readers.is_empty() => {}
            Op::Read { reader, most } => self.read(reader, most),
            Op::Hold { reader } => {
                let at = reader % self.readers.len();
                let reader = &mut self.readers[at];
                if reader.hold.is_none() {
                    reader.hold = self.log.hold(&reader.cursor).ok();
                }
            }
            Op::Release { reader } => {
                let at = reader % self.readers.len();
                if let Some(hold) = self.readers[at].hold.take() {
                    self.log.release(hold);
                }
            }
        }
        let is_held = self.readers.iter().any(|reader| reader.hold.is_some());
        let most = if is_held { HELD_BYTES } else { LIMIT_BYTES };
        assert!(is_held || self.log.kept_bytes() <= HELD_BYTES);
        assert!(!is_held || self.log.kept_bytes() <= most);
        assert_eq!(self.log.last_sequence(), self.entries.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn cursors_read_what_was_appended(ops in ops()) {
        let log = small_log(1);
        let mut fixture = Fixture { log, entries: Vec::new(), position: 0, readers: Vec::new() };
        for op in ops {
            fixture.step(op);
        }
        // A reader that is not lost reads to the end.
        while !fixture.readers.is_empty() {
            let readers = fixture.readers.len();
            fixture.read(0, usize::MAX);
            if fixture.readers.len() == readers {
                let last = fixture.readers.remove(0);
                let next = last.assembler.next_sequence();
                prop_assert_eq!(next, fixture.entries.len() as u64 + 1);
            }
        }
        let oldest = fixture.log.oldest_sequence() as usize;
        let kept = fixture.log.entries();
        prop_assert_eq!(kept.len(), fixture.entries.len() + 1 - oldest);
        for (kept, model) in kept.iter().zip(&fixture.entries[oldest - 1..]) {
            prop_assert!(model.is(&kept.entry()));
        }
    }

    /// Whatever happens to bytes, only a frame that was written there is accepted as one.
    #[test]
    fn corrupted_bytes_are_noticed(
        sizes in prop::collection::vec(0usize..130, 1..6),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (bytes, _) = written(&sizes);
        let frames: Vec<_> = Frames::new(&bytes, key()).map(|frame| frame.unwrap()).collect();
        let mut bad = bytes.clone();
        for (at, with) in &damage {
            bad[at.index(bytes.len())] ^= with;
        }
        if let Some(cut) = cut {
            bad.truncate(cut.index(bad.len()));
        }
        let first_bad = bad.iter().zip(&bytes).position(|(a, b)| a != b).unwrap_or(bad.len());
        let mut parser = Frames::new(&bad, key());
        let mut good = Vec::new();
        let ended = loop {
            let rest = parser.rest().len();
            match parser.next() {
                Some(Ok(frame)) => {
                    prop_assert!(bad.len() - parser.rest().len() <= first_bad);
                    good.push(frame);
                }
                Some(Err(_)) => break Some(bad.len() - rest),
                None => break None,
            }
        };
        prop_assert_eq!(&good[..], &frames[..good.len()]);
        prop_assert!(bad == bytes || bad.len() < bytes.len() || ended.is_some());
        // It ends in the frame that the first bad byte is in, not before.
        let end_of_good: usize = bad.len().min(ended.unwrap_or(bad.len()));
        prop_assert!(end_of_good <= first_bad && first_bad - end_of_good < PIECE_BYTES + 40);
    }

    /// Bytes that no log wrote never panic, and are never a frame.
    #[test]
    fn random_bytes_are_no_frames(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let first = Frames::new(&bytes, key()).next();
        prop_assert!(first.is_none_or(|frame| frame.is_err()));
    }

    /// A log that ends anywhere has exactly the entries that are whole.
    #[test]
    fn an_entry_exists_once_its_last_piece_does(sizes in prop::collection::vec(0usize..200, 1..5)) {
        let (bytes, ends) = written(&sizes);
        for cut in 0..=bytes.len() {
            let mut assembler = Assembler::new(1, 4096);
            let mut whole = 0;
            for frame in Frames::new(&bytes[..cut], key()) {
                let Ok(frame) = frame else { break };
                if let Some(entry) = assembler.take(frame).unwrap() {
                    prop_assert_eq!(entry.operation.len(), sizes[whole]);
                    whole += 1;
                }
            }
            prop_assert_eq!(whole, ends.iter().filter(|&&end| end <= cut).count());
        }
    }

    #[test]
    fn a_cut_is_the_longest_that_tears_nothing(
        lasts in prop::collection::vec((0u64..3, 0u64..5), 1..4),
        shared in prop::collection::vec(prop::collection::vec((0u32..4, 1u64..6), 2..4), 0..5),
    ) {
        let mut logs: BTreeMap<u32, KnownLog> = BTreeMap::new();
        for (shard, &(covered, more)) in lasts.iter().enumerate() {
            let log = KnownLog { covered, last: covered + more, shared: BTreeMap::new() };
            logs.insert(shard as u32, log);
        }
        for parts in &shared {
            let list: Vec<Part> = parts.iter().map(|&(shard, at)| Part::new(shard, at)).collect();
            for part in &list {
                if let Some(log) = logs.get_mut(&part.shard())
                    && (log.covered + 1..=log.last).contains(&part.sequence())
                {
                    log.shared.insert(part.sequence(), list.clone());
                }
            }
        }
        let tears = |cuts: &BTreeMap<u32, u64>| logs.iter().any(|(shard, log)| {
            log.shared.range(..=cuts[shard]).any(|(_, parts)| {
                parts.iter().any(|part| cuts.get(&part.shard()).is_none_or(|&cut| part.sequence() > cut))
            })
        });
        // All cuts there are: of those that tear nothing one is the longest everywhere.
        let mut longest: BTreeMap<u32, u64> = logs.iter().map(|(&s, log)| (s, log.covered)).collect();
        let mut all = vec![BTreeMap::new()];
        for (&shard, log) in &logs {
            all = all.iter().flat_map(|cuts: &BTreeMap<u32, u64>| {
                (log.covered..=log.last).map(move |cut| {
                    let mut cuts = cuts.clone();
                    cuts.insert(shard, cut);
                    cuts
                })
            }).collect();
        }
        for cuts in all.iter().filter(|cuts| !tears(cuts)) {
            for (shard, &cut) in cuts {
                let longest = longest.get_mut(shard).unwrap();
                *longest = cut.max(*longest);
            }
        }
        prop_assert_eq!(consistent_cut(&logs), longest);
    }
}

/// A log with entries of these sizes: its bytes, and where each entry ends.
fn written(sizes: &[usize]) -> (Vec<u8>, Vec<usize>) {
    let mut log =
        Log::new(LogOptions { piece_bytes: PIECE_BYTES, ..LogOptions::new(key(), SHARD, 5) });
    let mut cursor = log.oldest_cursor();
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for (at, &size) in sizes.iter().enumerate() {
        log.append([&vec![at as u8; size], &[], &[]]);
        log.read(&mut cursor, usize::MAX, &mut bytes).unwrap();
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn parsed(bytes: &[u8], key: LogKey) -> usize {
    Frames::new(bytes, key).take_while(Result::is_ok).count()
}

/// A client writes whole frames into its value: they are its value's bytes, and
/// frames nowhere.
#[test]
fn what_a_value_holds_is_no_frame() {
    let (forged, _) = written(&[30, 30, 30]);
    assert_eq!(parsed(&forged, key()), 3);
    // Without the secret, of another shard, of another epoch's seed.
    for other in [LogKey::new(0, SHARD), LogKey::new(0x5ec2e7, SHARD + 1)] {
        assert_eq!(parsed(&forged, other), 0);
    }
    // Even a real frame of the log does not continue at another place.
    let mut assembler = Assembler::new(1, 4096);
    let frames: Vec<_> = Frames::new(&forged, key()).map(|frame| frame.unwrap()).collect();
    assert!(assembler.take(frames[0]).unwrap().is_some());
    let twice = AssembleError::Gap { expected: 2, sequence: 1 };
    assert_eq!(assembler.take(frames[0]), Err(twice));
    let ahead = AssembleError::Gap { expected: 2, sequence: 3 };
    assert_eq!(assembler.take(frames[2]), Err(ahead));
}

#[test]
fn an_assembler_takes_pieces_in_order_and_not_too_many() {
    let (bytes, _) = written(&[3 * PIECE_BYTES, 10]);
    let frames: Vec<_> = Frames::new(&bytes, key()).map(|frame| frame.unwrap()).collect();
    assert_eq!(frames.len(), 4);
    let mut assembler = Assembler::new(1, 4096);
    assert_eq!(assembler.take(frames[1]), Err(AssembleError::Piece { expected: 0, piece: 1 }));
    assert_eq!(assembler.take(frames[0]), Ok(None));
    assert_eq!(assembler.take(frames[2]), Err(AssembleError::Piece { expected: 1, piece: 2 }));
    let gap = AssembleError::Gap { expected: 1, sequence: 2 };
    assert_eq!(assembler.take(frames[3]), Err(gap));
    assert_eq!(assembler.take(frames[1]), Ok(None));
    assert_eq!(assembler.take(frames[2]).unwrap().unwrap().operation.len(), 3 * PIECE_BYTES);
    assert!(assembler.take(frames[3]).unwrap().is_some());
    let limit = 3 * PIECE_BYTES - 1;
    let mut assembler = Assembler::new(1, limit);
    assert_eq!(assembler.take(frames[0]), Ok(None));
    assert_eq!(assembler.take(frames[1]), Ok(None));
    assert_eq!(assembler.take(frames[2]), Err(AssembleError::TooLarge { limit }));
}

#[test]
fn an_entry_without_its_parts_has_not_come() {
    let (bytes, _) = written(&[2 * PIECE_BYTES, 0]);
    let frames: Vec<_> = Frames::new(&bytes, key()).map(|frame| frame.unwrap()).collect();
    for pieces in [&frames[2..], &frames[..2]] {
        let next = pieces[0].sequence;
        let mut assembler = Assembler::new(next, 4096);
        let pieces = pieces.iter().map(|&piece| Frame { parts: 200, ..piece });
        let taken: Vec<_> =
            pieces.map(|piece| assembler.take(piece).map(|entry| entry.is_some())).collect();
        assert_eq!(taken.last(), Some(&Err(AssembleError::Parts)));
        assert_eq!(assembler.next_sequence(), next, "it has not come");
    }
}

/// A hold keeps entries, and shows a shard how much room is left; beyond that its cursor reports
/// that it is lost.
#[test]
fn a_hold_breaks_only_when_the_room_is_used_up() {
    let mut log = small_log(1);
    assert_eq!(log.append([b"first", b"", b""]).room_bytes, usize::MAX);
    let mut cursor = log.oldest_cursor();
    let hold = log.hold(&cursor).unwrap();
    let mut room = usize::MAX;
    // Bounded: each entry takes room.
    while room > 0 {
        let appended = log.append([&[7; 40], b"", b""]);
        assert!(appended.room_bytes <= room && appended.room_bytes < HELD_BYTES);
        room = appended.room_bytes;
        assert_eq!(log.oldest_sequence(), 1, "room is left");
    }
    while log.oldest_sequence() == 1 {
        log.append([&[7; 40], b"", b""]);
    }
    let lost = log.read(&mut cursor, 100, &mut Vec::new()).unwrap_err();
    assert_eq!(lost.oldest, log.oldest_sequence());
    assert_eq!(log.move_hold(&hold, &log.oldest_cursor()), Err(lost));
    log.release(hold);
    for _ in 0..30 {
        log.append([&[7; 40], b"", b""]);
    }
    assert!(
        log.kept_bytes() <= LIMIT_BYTES && log.append([b"", b"", b""]).room_bytes == usize::MAX
    );
}

/// A reader that has caught up gives the room back at once: a shard that refuses changes for want of
/// room appends nothing that would drop segments first.
#[test]
fn a_hold_that_catches_up_gives_its_room_back() {
    let mut log = small_log(1);
    let mut cursor = log.oldest_cursor();
    let hold = log.hold(&cursor).unwrap();
    let free = log.append([b"first", b"", b""]).room_bytes;
    while log.append([&[7; 40], b"", b""]).room_bytes > 0 {}
    let mut frames = Vec::new();
    while log.room_bytes() < free {
        let (before, read) = (log.room_bytes(), log.read(&mut cursor, 200, &mut frames).unwrap());
        assert!(read > 0, "all is read, and {before} bytes of {free} are left");
        log.move_hold(&hold, &cursor).unwrap();
        assert!(log.room_bytes() >= before);
    }
    log.append([b"", b"", b""]);
    assert_eq!(log.oldest_sequence(), 1, "nothing is dropped before a segment begins");
    log.release(hold);
}

/// A log that may keep more without a hold does, and gives it back with the next segment once it may
/// not. A reader within these bytes goes on.
#[test]
fn a_log_keeps_as_much_without_a_hold_as_it_may() {
    let mut log = small_log(1);
    let fill = |log: &mut Log, entries: usize| {
        (0..entries).for_each(|_| _ = log.append([&[7; 40], b"", b""]));
    };
    log.append([b"first", b"", b""]);
    let mut cursor = log.oldest_cursor();
    log.set_limit(3 * LIMIT_BYTES);
    fill(&mut log, 30);
    assert!(log.kept_bytes() > LIMIT_BYTES && log.room_bytes() == usize::MAX);
    assert_eq!(log.read(&mut cursor, usize::MAX, &mut Vec::new()), Ok(31));
    fill(&mut log, 200);
    assert!(log.kept_bytes() <= 3 * LIMIT_BYTES && log.kept_bytes() > 2 * LIMIT_BYTES);
    assert!(log.oldest_sequence() > 31, "the oldest have gone");
    // What a hold keeps counts for its room alone.
    let hold = log.hold(&log.cursor(log.last_sequence() + 1).unwrap()).unwrap();
    assert_eq!(log.room_bytes(), HELD_BYTES - LIMIT_BYTES / 4);
    log.release(hold);
    log.set_limit(0);
    fill(&mut log, LIMIT_BYTES / 4 / 80);
    assert!(log.kept_bytes() <= LIMIT_BYTES && log.limit_bytes() == LIMIT_BYTES);
    log.set_limit(usize::MAX);
    assert_eq!(log.limit_bytes(), HELD_BYTES);
}
