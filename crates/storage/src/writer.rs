//! The writer of the log: groups of runs, syncs, new segments.
//!
//! Invariant: [`LogWriter::synced`] never passes what the disk has confirmed, and no failed write
//! or sync is tried again: a failed file is left. Everything behind its last good sync is kept here
//! until it is synced, and [`LogWriter::mend`] writes all of it into a new segment, which gets its
//! name once it is on the disk. So a crash at any moment finds either the old bytes or the new ones.
//!
//! The caller bounds what is kept: it gives no more runs while [`LogWriter::unsynced_bytes`] is
//! large.

use crate::find::Found;
use crate::runs::{RUN_HEADER_BYTES, Run, RunHeader};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_name};
use crate::volume::{Volume, VolumeFile, read_from};
use std::collections::{HashSet, VecDeque};
use std::io;
use zerocopy::IntoBytes;

/// Bytes of a segment that are written again at a time.
const AGAIN_BYTES: u64 = 1 << 20;
/// Synced runs that are kept until their buffers are asked for.
const KEPT_RUNS: usize = 64;

/// The settings of a writer.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// The directory's cluster.
    pub cluster: u64,
    /// The directory's secret.
    pub secret: u64,
    /// The life of the server that writes.
    pub epoch: u64,
    /// Bytes of a segment after which the next one begins.
    pub segment_bytes: u64,
}

/// Where a writer begins: behind what was found in the directory.
#[derive(Clone, Debug, Default)]
pub struct LogStart {
    /// Number of its first segment.
    pub number: u64,
    /// Bytes of the segment before that count: up to its last entries.
    pub previous_bytes: u64,
    /// Bytes of it that are known to be on the disk.
    pub previous_synced: u64,
    /// By shard, the first sequence.
    pub first: Vec<u64>,
    /// By shard of the epoch before, its last sequence that counts.
    pub cut: Vec<u64>,
    /// Numbers of the segments that lie there.
    pub older: Vec<u64>,
}

impl LogStart {
    /// Behind all that was found; the shards begin with these sequences.
    pub fn behind(found: &Found, first: Vec<u64>) -> Self {
        let last = found.incarnations.last();
        let segment = last.and_then(|incarnation| incarnation.segments.last());
        Self {
            number: segment.map_or(0, |segment| segment.number) + 1,
            previous_bytes: segment.map_or(0, |segment| segment.entry_bytes),
            previous_synced: segment.map_or(0, |segment| segment.synced),
            first,
            cut: last.map(|incarnation| incarnation.last.clone()).unwrap_or_default(),
            older: found.numbers(),
        }
    }
}

/// A sync that is to be done, in any thread. Runs that are written meanwhile belong to the next
/// one.
#[derive(Clone, Debug)]
pub struct Sync<F> {
    file: F,
    number: u64,
    bytes: u64,
}

impl<F: VolumeFile> Sync<F> {
    /// Does it. [`LogWriter::end_sync`] takes the result.
    pub fn run(&self) -> io::Result<()> {
        self.file.sync()
    }
}

/// A segment of this epoch, oldest first.
struct Kept {
    number: u64,
    first: Vec<u64>,
    /// Whether an entry of the shard began in the segment before.
    is_mid: Vec<bool>,
}

/// See the module's text.
pub struct LogWriter<V: Volume> {
    volume: V,
    options: WriterOptions,
    file: V::File,
    /// Bytes of the present segment that were written, and that are synced.
    bytes: u64,
    synced_bytes: u64,
    /// Bytes up to the end of its last run with entries.
    entry_bytes: u64,
    /// Bytes that its last run says are synced.
    told_synced: u64,
    /// The runs behind `synced_bytes`, each with its end there.
    unsynced: VecDeque<(u64, Run)>,
    unsynced_bytes: usize,
    /// Runs that are synced, whose buffers may be filled again.
    freed: Vec<Run>,
    /// By shard, the last whole entry.
    written: Vec<u64>,
    synced: Vec<u64>,
    /// By shard, whether the last frame that was written leaves its entry open.
    is_mid: Vec<bool>,
    /// The same for what is synced.
    synced_mid: Vec<bool>,
    segments: VecDeque<Kept>,
    older: Vec<u64>,
    has_failed: bool,
}

impl<V: Volume> LogWriter<V> {
    /// Begins an epoch's first segment, and syncs it. First it writes the end of the segment before
    /// again, in its place, if that may not be on the disk: its process may have ended before a sync,
    /// or after one that failed, and the new header says that its bytes count.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn begin(volume: V, options: WriterOptions, start: LogStart) -> io::Result<Self> {
        let LogStart { number, previous_bytes, previous_synced, first, cut, older } = start;
        let before: Vec<u64> = first.iter().map(|first| first - 1).collect();
        let is_mid = vec![false; first.len()];
        let header = SegmentHeader {
            number,
            epoch: options.epoch,
            cluster: options.cluster,
            previous_bytes,
            first: first.clone(),
            cut,
        };
        if previous_bytes > previous_synced {
            write_again(&volume, number - 1, (previous_synced, previous_bytes))?;
        }
        let file = begin_segment(&volume, &header, options.secret, &[])?;
        Ok(Self {
            volume,
            options,
            file,
            bytes: SEGMENT_HEADER_BYTES as u64,
            synced_bytes: SEGMENT_HEADER_BYTES as u64,
            entry_bytes: SEGMENT_HEADER_BYTES as u64,
            told_synced: SEGMENT_HEADER_BYTES as u64,
            unsynced: VecDeque::new(),
            unsynced_bytes: 0,
            freed: Vec::new(),
            written: before.clone(),
            synced: before,
            is_mid: is_mid.clone(),
            synced_mid: is_mid.clone(),
            segments: VecDeque::from([Kept { number, first, is_mid }]),
            older,
            has_failed: false,
        })
    }

    /// Appends these runs with one write.
    ///
    /// # Errors
    /// The disk refuses; the runs are kept, and [`LogWriter::mend`] is next.
    pub fn write(&mut self, runs: Vec<Run>, time_ms: u64) -> io::Result<()> {
        let (first, number) = (self.unsynced.len(), self.number());
        let mut bytes = self.bytes;
        let mut headers = Vec::with_capacity(runs.len());
        for run in runs {
            let place = (self.options.secret, number, bytes);
            headers.push(RunHeader::of(&run, place, (self.synced_bytes, time_ms)));
            bytes += (RUN_HEADER_BYTES + run.frames.len()) as u64;
            self.keep(run, bytes);
        }
        if self.has_failed {
            return Err(io::Error::other("the segment has failed"));
        }
        let kept = self.unsynced.range(first..).zip(&headers);
        let slices: Vec<&[u8]> =
            kept.flat_map(|((_, run), header)| [header.as_bytes(), &run.frames]).collect();
        let written = self.file.append(&slices);
        self.has_failed = written.is_err();
        if written.is_ok() {
            (self.bytes, self.entry_bytes, self.told_synced) = (bytes, bytes, self.synced_bytes);
        }
        written
    }

    /// Whether all entries are synced, and no run says so.
    pub fn wants_mark(&self) -> bool {
        !self.has_failed && self.unsynced.is_empty() && self.told_synced < self.entry_bytes
    }

    /// Appends a mark: the log says by itself what is synced, and the time. A power cut may lose the
    /// mark, and nothing else.
    ///
    /// # Errors
    /// The disk refuses; [`LogWriter::mend`] is next.
    pub fn mark(&mut self, time_ms: u64) -> io::Result<()> {
        let place = (self.options.secret, self.number(), self.bytes);
        let header = RunHeader::mark(place, (self.synced_bytes, time_ms));
        let written = self.file.append(&[header.as_bytes()]);
        self.has_failed = written.is_err();
        if written.is_ok() {
            self.bytes += RUN_HEADER_BYTES as u64;
            self.told_synced = self.synced_bytes;
        }
        written
    }

    /// Whether entries are written and not synced.
    pub fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// Whether the present segment is long enough: the next one begins once all of it is synced.
    pub fn is_long(&self) -> bool {
        self.bytes >= self.options.segment_bytes
    }

    fn keep(&mut self, run: Run, end: u64) {
        let shard = usize::from(run.shard);
        assert_eq!(run.first, self.written[shard] + 1, "runs come in order");
        self.written[shard] = run.last;
        self.is_mid[shard] = !run.ends_entry;
        self.unsynced_bytes += run.frames.len();
        self.unsynced.push_back((end, run));
    }

    /// What is to be synced now; `None` if nothing is.
    pub fn begin_sync(&self) -> Option<Sync<V::File>> {
        let is_due = !self.has_failed && self.bytes > self.synced_bytes;
        let number = self.number();
        is_due.then(|| Sync { file: self.file.clone(), number, bytes: self.bytes })
    }

    /// Takes the result of a sync.
    ///
    /// # Errors
    /// The sync's; [`LogWriter::mend`] is next.
    pub fn end_sync(&mut self, sync: &Sync<V::File>, result: io::Result<()>) -> io::Result<()> {
        if sync.number != self.number() {
            // The segment was left meanwhile.
            return Ok(());
        }
        // Files of a directory that was moved or removed are synced as well as any.
        let result = result.and_then(|()| self.expect_in_place());
        self.has_failed |= result.is_err();
        result?;
        self.synced_bytes = self.synced_bytes.max(sync.bytes);
        self.forget_synced(sync.bytes);
        Ok(())
    }

    /// Looks whether the directory and all files of the log are where they were.
    ///
    /// # Errors
    /// They are not: [`LogWriter::mend`] is next, which works once they are back.
    pub fn look(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Ok(());
        }
        let whole = self.expect_whole().and_then(|()| self.expect_in_place());
        self.has_failed = whole.is_err();
        whole
    }

    fn expect_in_place(&self) -> io::Result<()> {
        self.volume.is_same()?;
        self.volume.is_named(&segment_name(self.number()), &self.file)
    }

    /// A segment behind one that is missing would make the directory one that no server reads.
    fn expect_whole(&self) -> io::Result<()> {
        self.volume.is_same()?;
        let names: HashSet<String> = self.volume.names("")?.into_iter().collect();
        let own = self.segments.iter().map(|kept| kept.number);
        let mut all = self.older.iter().copied().chain(own).map(segment_name);
        match all.find(|name| !names.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let text = format!("{name} is gone from the data directory: bring it back");
                Err(io::Error::new(io::ErrorKind::NotFound, text))
            }
        }
    }

    fn forget_synced(&mut self, bytes: u64) {
        while self.unsynced.front().is_some_and(|(end, _)| *end <= bytes) {
            let Some((_, run)) = self.unsynced.pop_front() else { break };
            self.unsynced_bytes -= run.frames.len();
            let shard = usize::from(run.shard);
            (self.synced[shard], self.synced_mid[shard]) = (run.last, !run.ends_entry);
            if self.freed.len() < KEPT_RUNS {
                self.freed.push(run);
            }
        }
    }

    /// Begins the next segment if this one is long enough and all of it is synced.
    ///
    /// # Errors
    /// The disk refuses; [`LogWriter::mend`] is next.
    pub fn begin_segment_if_due(&mut self) -> io::Result<()> {
        if self.has_failed || !self.is_long() || self.has_unsynced() {
            return Ok(());
        }
        self.go_on_in_next_segment(0)
    }

    /// After a failure: writes all that is not synced into a new segment, and syncs it.
    ///
    /// # Errors
    /// The disk still refuses; it may be tried again later.
    pub fn mend(&mut self, time_ms: u64) -> io::Result<()> {
        self.go_on_in_next_segment(time_ms)
    }

    fn go_on_in_next_segment(&mut self, time_ms: u64) -> io::Result<()> {
        self.has_failed = true;
        self.expect_whole()?;
        let (number, secret) = (self.number() + 1, self.options.secret);
        let mut bytes = SEGMENT_HEADER_BYTES as u64;
        let mut headers = Vec::with_capacity(self.unsynced.len());
        for (_, run) in &self.unsynced {
            headers.push(RunHeader::of(run, (secret, number, bytes), (0, time_ms)));
            bytes += (RUN_HEADER_BYTES + run.frames.len()) as u64;
        }
        let runs = self.unsynced.iter().zip(&headers);
        let slices: Vec<&[u8]> =
            runs.flat_map(|((_, run), header)| [header.as_bytes(), &run.frames]).collect();
        let first: Vec<u64> = self.synced.iter().map(|synced| synced + 1).collect();
        let header = SegmentHeader {
            number,
            epoch: self.options.epoch,
            cluster: self.options.cluster,
            previous_bytes: self.synced_bytes,
            first: first.clone(),
            cut: Vec::new(),
        };
        let file = begin_segment(&self.volume, &header, secret, &slices)?;
        self.volume.is_same()?;
        self.file = file;
        self.segments.push_back(Kept { number, first, is_mid: self.synced_mid.clone() });
        let told_synced = if slices.is_empty() { bytes } else { 0 };
        (self.bytes, self.synced_bytes) = (bytes, bytes);
        (self.entry_bytes, self.told_synced) = (bytes, told_synced);
        self.forget_synced(u64::MAX);
        self.has_failed = false;
        Ok(())
    }

    /// A snapshot has all entries up to these sequences, by shard: removes the segments that are
    /// not needed any more. Returns how many.
    ///
    /// # Errors
    /// The disk refuses; they stay, and may be removed later.
    pub fn drop_covered(&mut self, covered: &[u64]) -> io::Result<usize> {
        let mut dropped = 0;
        let is_covered = |next: &Kept| {
            let of_shards = next.first.iter().zip(&next.is_mid).zip(covered);
            of_shards
                .into_iter()
                .all(|((&first, &is_mid), &covered)| first + u64::from(is_mid) <= covered + 1)
        };
        while let Some(&number) = self.older.first() {
            self.volume.remove(&segment_name(number))?;
            self.older.remove(0);
            dropped += 1;
        }
        while self.segments.get(1).is_some_and(is_covered) {
            self.volume.remove(&segment_name(self.segments[0].number))?;
            self.segments.pop_front();
            dropped += 1;
        }
        if dropped > 0 {
            self.volume.sync_names("")?;
        }
        Ok(dropped)
    }

    /// Number of the present segment.
    pub fn number(&self) -> u64 {
        self.segments.back().expect("there is one").number
    }

    /// The last whole entry of a shard that was written.
    pub fn written(&self, shard: usize) -> u64 {
        self.written[shard]
    }

    /// The last whole entry of a shard that is on the disk.
    pub fn synced(&self, shard: usize) -> u64 {
        self.synced[shard]
    }

    /// Runs that are synced, whose buffers may be filled again.
    pub fn take_freed(&mut self) -> impl Iterator<Item = Run> + use<'_, V> {
        self.freed.drain(..)
    }

    /// Bytes that are kept because they are not synced.
    pub fn unsynced_bytes(&self) -> usize {
        self.unsynced_bytes
    }

    /// Whole entries that were written, and are not known to be on the disk.
    pub fn unsynced_entries(&self) -> u64 {
        self.written.iter().zip(&self.synced).map(|(written, synced)| written - synced).sum()
    }

    /// Whether [`LogWriter::mend`] is next.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Bytes of the present segment.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Writes these bytes of a segment again, where they lie, and syncs them. It takes no room on the
/// disk. After a sync that failed the kernel takes them for clean; so a sync alone proves nothing.
fn write_again<V: Volume>(volume: &V, number: u64, (from, to): (u64, u64)) -> io::Result<()> {
    let file = volume.open(&segment_name(number))?;
    let mut at = from;
    while at < to {
        let some = read_from(&file, at, (to - at).min(AGAIN_BYTES) as usize)?;
        if some.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_again(at, &some)?;
        at += some.len() as u64;
    }
    file.sync()
}

/// Writes a segment with its runs, and gives it its name once it is on the disk.
fn begin_segment<V: Volume>(
    volume: &V,
    header: &SegmentHeader,
    secret: u64,
    runs: &[&[u8]],
) -> io::Result<V::File> {
    let name = segment_name(header.number);
    let temporary = format!("{name}.tmp");
    let file = volume.create(&temporary)?;
    file.append(&[&header.encode(secret)])?;
    file.append(runs)?;
    file.sync()?;
    volume.rename(&temporary, &name)?;
    volume.sync_names("")?;
    Ok(file)
}
