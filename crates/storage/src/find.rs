//! What lies in a data directory, checked byte by byte.
//!
//! The log ends somewhere in its last segment: a crash leaves a torn tail. What lies behind the
//! first bad run is cut, unless some later run says that these bytes were on the disk when it was
//! written: then they have changed since, and the directory is refused. In every other segment the
//! next one says how many bytes count, and all of them must be whole.
//!
//! Nothing may be missing either: without a snapshot the log begins with segment 1, and with one it
//! has the incarnation that wrote the snapshot, from the snapshot's sequences on.
//!
//! Invariant: nothing is changed here.

use crate::error::StorageError;
use crate::identity::Identity;
use crate::runs::{RUN_ALIGN_BYTES, RUN_HEADER_BYTES, RunHeader};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_name, segment_number};
use crate::volume::{Volume, VolumeFile, read_from};
use crate::window::Window;
use remora_layout::limits::LOG_UNSYNCED_BYTES;
use remora_log::{Assembler, Frames, KnownLog, LogKey, Part, consistent_cut};
use std::collections::BTreeMap;
use std::io;

/// Longest run that is read. The writer's are much shorter.
const MOST_RUN_BYTES: usize = LOG_UNSYNCED_BYTES;
/// Bytes of a torn tail that are looked at together.
const BLOCK_BYTES: usize = 64 << 10;

/// A segment that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentAt {
    /// Its number.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// Bytes of it that count.
    pub bytes: u64,
    /// Bytes of it that are known to be on the disk.
    pub synced: u64,
    /// Bytes up to the end of its last run with entries.
    pub entry_bytes: u64,
    /// Its runs.
    pub runs: u64,
    pub(crate) header: SegmentHeader,
}

/// What one incarnation of a server has written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Incarnation {
    /// Its epoch.
    pub epoch: u64,
    /// Its segments, oldest first.
    pub segments: Vec<SegmentAt>,
    /// By shard, the first sequence that its segments have.
    pub first: Vec<u64>,
    /// By shard, whether they have only the end of that entry: a snapshot has it, and the segment in
    /// which it begins is gone.
    pub(crate) starts_mid: Vec<bool>,
    /// By shard, the last sequence that counts.
    pub last: Vec<u64>,
    /// By shard, bytes that its data took at the end.
    pub used_bytes: Vec<u64>,
}

impl Incarnation {
    /// The first entry of a shard of which its segments have all.
    pub fn first_entry(&self, shard: usize) -> u64 {
        self.first[shard].saturating_add(self.starts_mid[shard].into())
    }
}

/// A torn tail: to be told, and left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The segment.
    pub name: String,
    /// Where it is cut, bytes.
    pub offset: u64,
    /// Bytes behind.
    pub bytes: u64,
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, offset, bytes } = self;
        write!(
            f,
            "torn {name} offset={offset}: {bytes} bytes that no sync is known to cover are left out"
        )
    }
}

/// The log in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Incarnations, oldest first.
    pub incarnations: Vec<Incarnation>,
    /// What was torn.
    pub notices: Vec<Notice>,
    /// Numbers of segments that the snapshot covers whole: left there by a crash.
    pub left: Vec<u64>,
    /// The latest time in it, Unix ms; 0 for none.
    pub time_ms: u64,
}

impl Found {
    /// Numbers of all segments.
    pub fn numbers(&self) -> Vec<u64> {
        let segments = self.incarnations.iter().flat_map(|incarnation| &incarnation.segments);
        let numbers = segments.map(|segment| segment.number);
        self.left.iter().copied().chain(numbers).collect()
    }

    /// The epoch of the last incarnation; 0 if there is none.
    pub fn epoch(&self) -> u64 {
        self.incarnations.last().map_or(0, |incarnation| incarnation.epoch)
    }

    /// Bytes of all runs that count.
    pub fn bytes(&self) -> u64 {
        let segments = self.incarnations.iter().flat_map(|incarnation| &incarnation.segments);
        segments.map(|segment| segment.bytes - SEGMENT_HEADER_BYTES as u64).sum()
    }
}

/// Looks through the log in a directory. `covered` gives the last sequence of a shard in an epoch
/// that a snapshot has; entries of that epoch up to it, and all earlier epochs, are not needed.
///
/// # Errors
/// Something is missing, or has changed since it was written.
pub fn find<V: Volume>(
    volume: &V,
    identity: &Identity,
    covered: (u64, &[u64]),
) -> Result<Found, StorageError> {
    let (mut headers, mut left) = headers(volume, identity, covered.0)?;
    leave_covered(&mut headers, &mut left, covered);
    expect_contiguous(&headers)?;
    expect_beginning(volume, &headers, &left, covered.0)?;
    let found = Found { left, ..Found::default() };
    let mut scan = Scan { volume, identity, found, incarnations: Vec::new() };
    for (at, header) in headers.iter().enumerate() {
        scan.segment(header, headers.get(at + 1))?;
    }
    scan.finish(covered)
}

/// The headers of all segments from an epoch on, in their order, and the numbers of those before.
fn headers<V: Volume>(
    volume: &V,
    identity: &Identity,
    from_epoch: u64,
) -> Result<(Vec<SegmentHeader>, Vec<u64>), StorageError> {
    let names = volume.names("").map_err(|source| StorageError::io("list", "the log", source))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    let (mut headers, mut left) = (Vec::<SegmentHeader>::new(), Vec::new());
    for number in numbers {
        let name = segment_name(number);
        let bytes = volume.open(&name).and_then(|file| read_from(&file, 0, SEGMENT_HEADER_BYTES));
        let bytes = bytes.map_err(|source| StorageError::io("read", &name, source))?;
        let of = (identity.cluster, identity.secret);
        let header = SegmentHeader::parse(&bytes, (&name, number), of)?;
        if header.epoch < from_epoch {
            left.push(number);
            continue;
        }
        headers.push(header);
    }
    Ok((headers, left))
}

/// Leaves out what lies before a gap if the snapshot covers it. Segments that a snapshot covers are
/// removed, and after a power cut some of those names may be there again, but not others.
fn leave_covered(
    headers: &mut Vec<SegmentHeader>,
    left: &mut Vec<u64>,
    (epoch, covered): (u64, &[u64]),
) {
    let is_gap = |pair: &[SegmentHeader]| pair[0].number.checked_add(1) != Some(pair[1].number);
    let Some(before) = headers.windows(2).rposition(is_gap) else { return };
    let behind = &headers[before + 1];
    let begins_covered = behind.epoch == epoch
        && behind.first.len() == covered.len()
        && behind
            .first
            .iter()
            .zip(covered)
            .all(|(&first, &covered)| first.saturating_sub(1) <= covered);
    if begins_covered {
        left.extend(headers.drain(..=before).map(|header| header.number));
    }
}

fn expect_contiguous(headers: &[SegmentHeader]) -> Result<(), StorageError> {
    for pair in headers.windows(2) {
        let (before, next) = (&pair[0], &pair[1]);
        if before.number.checked_add(1) != Some(next.number) || before.epoch > next.epoch {
            let missing = segment_name(before.number + 1);
            return Err(StorageError::corrupt(&missing, 0, "the segment is missing"));
        }
    }
    Ok(())
}

/// The log begins where it has to.
fn expect_beginning<V: Volume>(
    volume: &V,
    headers: &[SegmentHeader],
    left: &[u64],
    snapshot_epoch: u64,
) -> Result<(), StorageError> {
    let first = headers.first();
    let missing =
        |number: u64, reason: &str| Err(StorageError::corrupt(&segment_name(number), 0, reason));
    match first {
        None if snapshot_epoch == 0 => expect_no_log(volume),
        None => missing(
            left.last().map_or(1, |number| number + 1),
            "the log behind the snapshot is missing",
        ),
        Some(first) if snapshot_epoch == 0 && first.number != 1 => missing(
            first.number - 1,
            "the segment is missing, or the snapshot that has what was in it",
        ),
        Some(first) if snapshot_epoch != 0 && first.epoch != snapshot_epoch => missing(
            first.number - 1,
            "the segment is missing: the snapshot needs the log of the incarnation that wrote it",
        ),
        Some(_) => Ok(()),
    }
}

/// A directory without a segment and a snapshot never had one: a server died at its first start.
pub(crate) fn expect_no_log<V: Volume>(volume: &V) -> Result<(), StorageError> {
    let reason = "the segment is missing, and so are all others and the snapshot";
    match Identity::has_log(volume)? {
        true => Err(StorageError::corrupt(&segment_name(1), 0, reason)),
        false => Ok(()),
    }
}

/// An incarnation that is looked through.
struct Open {
    incarnation: Incarnation,
    is_mid: Vec<bool>,
    /// By shard, the entries of several shards, by sequence.
    shared: Vec<BTreeMap<u64, Vec<Part>>>,
    /// The assemblers of runs with such entries.
    assemblers: Vec<Option<Assembler>>,
}

struct Scan<'a, V> {
    volume: &'a V,
    identity: &'a Identity,
    found: Found,
    incarnations: Vec<Open>,
}

impl<V: Volume> Scan<'_, V> {
    fn segment(
        &mut self,
        header: &SegmentHeader,
        next: Option<&SegmentHeader>,
    ) -> Result<(), StorageError> {
        let name = segment_name(header.number);
        self.begin_incarnation_of(header, &name)?;
        let failed = |source| StorageError::io("read", &name, source);
        let file = self.volume.open(&name).map_err(failed)?;
        let file_bytes = file.bytes().map_err(failed)?;
        let most = next.map_or(file_bytes, |next| next.previous_bytes);
        if most > file_bytes || most < SEGMENT_HEADER_BYTES as u64 {
            return Err(StorageError::corrupt(&name, file_bytes, "the segment is cut off"));
        }
        let mut window = Window::new(file.clone(), most);
        let (mut offset, mut runs) = (SEGMENT_HEADER_BYTES as u64, 0);
        let (mut synced, mut entry_bytes) = (offset, offset);
        while offset < most {
            let run = run_at(&mut window, offset).map_err(failed)?;
            match self.run(header.number, run, offset) {
                Ok(run) => {
                    offset += run_bytes(&run) as u64;
                    synced = synced.max(run.synced());
                    if !run.is_mark() {
                        (entry_bytes, runs) = (offset, runs + 1);
                    }
                }
                Err(reason) => {
                    let bytes = most - offset;
                    let was_synced = next.is_some()
                        || self
                            .was_synced(header.number, &mut window, (offset, most))
                            .map_err(failed)?;
                    if was_synced {
                        return Err(StorageError::corrupt(&name, offset, reason));
                    }
                    self.found.notices.push(Notice { name: name.clone(), offset, bytes });
                    break;
                }
            }
        }
        let (number, bytes, header) = (header.number, offset, header.clone());
        let open = self.incarnations.last_mut().expect("begun above");
        open.incarnation.segments.push(SegmentAt {
            number,
            name,
            bytes,
            synced,
            entry_bytes,
            runs,
            header,
        });
        Ok(())
    }

    /// The incarnation of a segment begins, or goes on.
    fn begin_incarnation_of(
        &mut self,
        header: &SegmentHeader,
        name: &str,
    ) -> Result<(), StorageError> {
        let shards = header.first.len();
        match self.incarnations.last().filter(|open| open.incarnation.epoch == header.epoch) {
            Some(open) => {
                let goes_on = open
                    .incarnation
                    .last
                    .iter()
                    .zip(&header.first)
                    .all(|(last, first)| last.wrapping_add(1) == *first);
                if !goes_on || open.incarnation.first.len() != shards {
                    return Err(StorageError::corrupt(name, 0, "entries before it are missing"));
                }
            }
            None => {
                let last = header.first.iter().map(|first| first.wrapping_sub(1)).collect();
                let first = header.first.clone();
                let incarnation = Incarnation {
                    epoch: header.epoch,
                    first,
                    last,
                    used_bytes: vec![0; shards],
                    starts_mid: vec![false; shards],
                    ..Incarnation::default()
                };
                let (is_mid, shared) = (vec![false; shards], vec![BTreeMap::new(); shards]);
                let assemblers = (0..shards).map(|_| None).collect();
                self.incarnations.push(Open { incarnation, is_mid, shared, assemblers });
            }
        }
        Ok(())
    }

    /// Takes the run at an offset; `bytes` may be anything.
    fn run(&mut self, number: u64, bytes: &[u8], offset: u64) -> Result<RunHeader, &'static str> {
        let header = RunHeader::at(bytes).ok_or("no run of the log begins here")?;
        let frames = bytes.get(RUN_HEADER_BYTES..run_bytes(&header)).ok_or("the run is cut off")?;
        if !header.covers(frames, (self.identity.secret, number, offset)) {
            return Err("the checksum of the run is wrong");
        }
        self.found.time_ms = self.found.time_ms.max(header.time_ms());
        if header.is_mark() {
            return Ok(header);
        }
        let open = self.incarnations.last_mut().expect("an incarnation is under way");
        let shard = header.shard();
        let last =
            *open.incarnation.last.get(shard).ok_or("the run is of a shard that is not there")?;
        if last.checked_add(1) != Some(header.first()) {
            return Err("the run does not go on where the one before ended");
        }
        if header.first() == open.incarnation.first[shard] && !open.is_mid[shard] {
            let key = LogKey::new(self.identity.secret, shard as u32);
            let frame = Frames::new(frames, key).next().and_then(Result::ok);
            open.incarnation.starts_mid[shard] = frame.is_some_and(|frame| !frame.is_first);
        }
        open.incarnation.last[shard] = header.last();
        open.is_mid[shard] = !header.ends_entry();
        open.incarnation.used_bytes[shard] = header.used_bytes();
        if header.has_parts() || open.assemblers[shard].is_some() {
            let key = LogKey::new(self.identity.secret, shard as u32);
            note_parts(open, shard, frames, key)?;
        }
        Ok(header)
    }

    /// Whether a run in the tail that begins at the offset `bad` says that its first bytes were on
    /// the disk.
    fn was_synced(
        &self,
        number: u64,
        window: &mut Window<V::File>,
        (bad, end): (u64, u64),
    ) -> io::Result<bool> {
        for block in (bad + RUN_ALIGN_BYTES..end).step_by(BLOCK_BYTES) {
            let bytes = window.at(block, BLOCK_BYTES + RUN_HEADER_BYTES)?;
            // A hole may be longer than all memory, and takes no disk.
            if bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            let block_end = end.min(block + BLOCK_BYTES as u64);
            for at in (block..block_end).step_by(RUN_ALIGN_BYTES as usize) {
                let header = RunHeader::at(window.at(at, RUN_HEADER_BYTES)?);
                let may_tell = |header: &RunHeader| (bad + 1..=at).contains(&header.synced());
                let Some(header) = header.filter(may_tell) else { continue };
                let frames = run_at(window, at)?.get(RUN_HEADER_BYTES..run_bytes(&header));
                let place = (self.identity.secret, number, at);
                if frames.is_some_and(|frames| header.covers(frames, place)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The log of the incarnation that wrote the snapshot goes at least as far as the snapshot, which
    /// counts only once the log is on the disk up to there.
    fn expect_covered(&self, (epoch, covered): (u64, &[u64])) -> Result<(), StorageError> {
        let Some(open) = self.incarnations.first().filter(|open| open.incarnation.epoch == epoch)
        else {
            return Ok(());
        };
        let incarnation = &open.incarnation;
        let segment = incarnation.segments.last().expect("an incarnation has one");
        let is_short = incarnation.last.iter().zip(covered).any(|(last, covered)| last < covered);
        let corrupt =
            |name: &str, offset, reason: &str| Err(StorageError::corrupt(name, offset, reason));
        match incarnation.last.len() == covered.len() {
            false => corrupt(&segment.name, 0, "the snapshot is of another number of shards"),
            true if !is_short => Ok(()),
            // The next incarnation follows: it is this segment's end that is missing.
            true if self.incarnations.len() > 1 => {
                corrupt(&segment.name, segment.bytes, "entries that the snapshot has are missing")
            }
            true => corrupt(
                &segment_name(segment.number + 1),
                0,
                "the segment is missing: the log ends before the snapshot",
            ),
        }
    }

    /// Decides for each incarnation how far it counts.
    fn finish(mut self, (epoch, covered): (u64, &[u64])) -> Result<Found, StorageError> {
        self.expect_covered((epoch, covered))?;
        for at in 0..self.incarnations.len() {
            let next =
                self.incarnations.get(at + 1).map(|next| &next.incarnation.segments[0].header);
            let cut = match next {
                Some(next) => next.cut.clone(),
                None => {
                    let open = &self.incarnations[at];
                    cut_of(open, if open.incarnation.epoch == epoch { covered } else { &[] })
                }
            };
            let incarnation = &mut self.incarnations[at].incarnation;
            let name = &incarnation.segments[0].name;
            let is_known = cut.len() == incarnation.last.len()
                && cut.iter().zip(&incarnation.last).all(|(cut, last)| cut <= last);
            if !is_known {
                return Err(StorageError::corrupt(name, 0, "entries behind it are missing"));
            }
            incarnation.last = cut;
            let starts_late = |shard: usize| {
                let covered = if incarnation.epoch == epoch { covered.get(shard) } else { None };
                covered.map_or(incarnation.starts_mid[shard], |&covered| {
                    incarnation.first_entry(shard).saturating_sub(1) > covered
                })
            };
            if (0..incarnation.first.len()).any(starts_late) {
                return Err(StorageError::corrupt(
                    name,
                    0,
                    "entries behind the snapshot are missing",
                ));
            }
        }
        self.found.incarnations =
            self.incarnations.into_iter().map(|open| open.incarnation).collect();
        Ok(self.found)
    }
}

/// Bytes of a run, its header included.
pub(crate) fn run_bytes(header: &RunHeader) -> usize {
    RUN_HEADER_BYTES + header.frame_bytes()
}

/// The bytes of the run at an offset; fewer if the file ends before it, or if there is none.
fn run_at<F: VolumeFile>(window: &mut Window<F>, offset: u64) -> io::Result<&[u8]> {
    let header = RunHeader::at(window.at(offset, RUN_HEADER_BYTES)?);
    // A damaged length is not believed.
    let header = header.filter(|header| run_bytes(header) <= MOST_RUN_BYTES);
    window.at(offset, header.as_ref().map_or(0, run_bytes))
}

/// Notes the entries of several shards in a run.
fn note_parts(
    open: &mut Open,
    shard: usize,
    frames: &[u8],
    key: LogKey,
) -> Result<(), &'static str> {
    for frame in Frames::new(frames, key) {
        let frame = frame.map_err(|_| "a frame of the run is wrong")?;
        let assembler = match &mut open.assemblers[shard] {
            Some(assembler) => assembler,
            // The rest of an entry of this shard alone.
            None if !frame.is_first => continue,
            none => none.insert(Assembler::new(frame.sequence, usize::MAX)),
        };
        let entry = assembler.take(frame).map_err(|_| "a frame of the run is out of order")?;
        if let Some(entry) = entry.filter(|entry| !entry.parts.is_empty()) {
            open.shared[shard].insert(entry.sequence, entry.parts.iter().collect());
        }
    }
    if !open.is_mid[shard] {
        open.assemblers[shard] = None;
    }
    Ok(())
}

/// By shard, the last sequence up to which no entry of several shards is torn.
fn cut_of(open: &Open, covered: &[u64]) -> Vec<u64> {
    let logs = open.shared.iter().zip(&open.incarnation.last).enumerate().map(
        |(shard, (shared, &last))| {
            let covered = covered.get(shard).copied().unwrap_or(0);
            (shard as u32, KnownLog { covered, last, shared: shared.clone() })
        },
    );
    let cuts = consistent_cut(&logs.collect());
    open.incarnation
        .last
        .iter()
        .enumerate()
        .map(|(shard, &last)| cuts[&(shard as u32)].min(last))
        .collect()
}
