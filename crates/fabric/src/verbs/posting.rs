//! From the links to the one thread that rings the doorbell. A link cuts its operations into pieces
//! by itself, without a lock, and hands over a batch of them at once; the thread that has the queue
//! pair takes in the batches of all links.

use super::peer::{Ranges, Remote};
use super::queue_pair::Verb;
use super::registration::Registration;
use crate::locks::try_lock;
use crate::sync::Mutex;
use crate::waiting::Handle;
use crate::{LinkError, LockWaits};
use remora_layout::limits::{MAX_OUTBOUND_BYTES, MAX_POSTED, READ_WINDOW_BYTES};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A READ is sent in pieces of at most this length: every device takes it.
const READ_PIECE_BYTES: usize = READ_WINDOW_BYTES / 4;
/// A WRITE is sent in pieces of at most this length.
const WRITE_PIECE_BYTES: usize = 32 << 10;

/// A part of an operation.
pub(super) struct Piece {
    pub handle: Arc<Handle>,
    pub verb: Verb,
    /// What READs go into, WRITEs come from.
    pub local: Local,
    pub remote: (u64, u32),
    pub bytes: usize,
    /// The operation is complete with it.
    pub is_last: bool,
}

pub(super) enum Local {
    /// Somebody's landing memory, from this byte.
    Landing(Arc<Registration>, usize),
    /// Not yet in the staging memory.
    Waiting(Box<[u8]>),
    /// In the staging memory: bytes to give back, the unused ones at its end
    /// included.
    Staged(usize),
}

/// The operations that one link posts together.
#[derive(Default)]
pub(super) struct Posting {
    pieces: VecDeque<Piece>,
    /// Bytes of WRITEs among them.
    write_bytes: usize,
}

impl Posting {
    /// Adds a READ of these ranges, one after the other, into landing memory,
    /// from this byte.
    pub fn read(
        &mut self,
        handle: &Arc<Handle>,
        from: Ranges<'_>,
        landing: &Arc<Registration>,
        mut into: usize,
    ) {
        let mut from = from.peekable();
        while let Some(range) = from.next() {
            let is_end = from.peek().is_none();
            for (at, length) in pieces(range.bytes, READ_PIECE_BYTES) {
                let local = Local::Landing(Arc::clone(landing), into + at);
                let is_last = is_end && at + length == range.bytes;
                self.push(handle, Verb::Read, local, range, (at, length), is_last);
            }
            into += range.bytes;
        }
    }

    /// Adds a WRITE; its length is rounded up to words by zeros.
    pub fn write(&mut self, handle: &Arc<Handle>, to: Remote, bytes: &[u8], imm: Option<u32>) {
        let total = bytes.len().next_multiple_of(8);
        for (at, length) in pieces(total, WRITE_PIECE_BYTES) {
            let mut piece = vec![0; length];
            let part = &bytes[at..bytes.len().min(at + length)];
            piece[..part.len()].copy_from_slice(part);
            self.write_bytes += length;
            // The peer receives the immediate once all bytes are stored.
            let is_last = at + length == total;
            let verb = Verb::Write(imm.filter(|_| is_last));
            self.push(handle, verb, Local::Waiting(piece.into()), to, (at, length), is_last);
        }
    }

    fn push(
        &mut self,
        handle: &Arc<Handle>,
        verb: Verb,
        local: Local,
        remote: Remote,
        (at, length): (usize, usize),
        is_last: bool,
    ) {
        self.pieces.push_back(Piece {
            handle: Arc::clone(handle),
            verb,
            local,
            remote: (remote.address + at as u64, remote.rkey),
            bytes: length,
            is_last,
        });
    }
}

/// What links have posted, and the queue pair's thread has not taken in.
#[derive(Default)]
pub(super) struct Intake {
    pieces: Mutex<VecDeque<Piece>>,
    /// Pieces that were posted and have not completed.
    posted: AtomicUsize,
    /// Bytes of WRITEs that the device has not been given.
    waiting_bytes: AtomicUsize,
    waits: LockWaits,
}

impl Intake {
    /// A connection's; times that a thread waits for another here are counted.
    pub fn new(waits: LockWaits) -> Self {
        Self { waits, ..Self::default() }
    }

    /// Whether this many more bytes may be posted behind the operations that a link has already
    /// posted. Links that ask at the same time may all receive a yes.
    ///
    /// # Errors
    ///
    /// They may not.
    pub fn check_room(&self, behind: &Posting, bytes: usize) -> Result<(), LinkError> {
        let waiting = self.waiting_bytes() + behind.write_bytes + bytes;
        let posted = self.posted.load(Ordering::Relaxed) + behind.pieces.len();
        let fits = waiting <= MAX_OUTBOUND_BYTES && posted < MAX_POSTED;
        if fits { Ok(()) } else { Err(LinkError::Overrun) }
    }

    /// Bytes of WRITEs that the device has not been given.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Hands over the operations that a link posts together.
    pub fn post(&self, posting: &mut Posting) {
        // Counted first: no more is taken in than was counted.
        self.posted.fetch_add(posting.pieces.len(), Ordering::Relaxed);
        let bytes = std::mem::take(&mut posting.write_bytes);
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.waits.lock(&self.pieces).append(&mut posting.pieces);
    }

    /// Whether something was posted and not taken in.
    pub fn has_some(&self) -> bool {
        !self.waits.lock(&self.pieces).is_empty()
    }

    /// Lets `act` use the device, and again if other threads have posted during that time and `act`
    /// wants to continue. It does nothing if another thread has the device, because that thread
    /// does the same. Each thread posts before it calls this. False if posted pieces may be left.
    pub fn drive<D>(&self, device: &Mutex<D>, mut act: impl FnMut(&mut D) -> bool) -> bool {
        while let Some(mut held) = try_lock(device) {
            let goes_on = act(&mut held);
            drop(held);
            // A thread that found the device taken has posted before, and its posts are visible
            // from here on.
            if !self.has_some() {
                return true;
            }
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Moves the posted operations behind these.
    pub fn take_into(&self, waiting: &mut VecDeque<Piece>) {
        let mut pieces = self.waits.lock(&self.pieces);
        if waiting.is_empty() {
            std::mem::swap(waiting, &mut pieces);
        } else {
            waiting.append(&mut pieces);
        }
    }

    /// The device has been given so many bytes of WRITEs.
    pub fn placed(&self, bytes: usize) {
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// So many pieces have completed.
    pub fn completed(&self, pieces: usize) {
        self.posted.fetch_sub(pieces, Ordering::Relaxed);
    }
}

/// Offset and length of each piece; one of length 0 for nothing.
fn pieces(bytes: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = bytes.div_ceil(most).max(1);
    (0..count).map(move |piece| (piece * most, most.min(bytes - piece * most)))
}

#[cfg(test)]
mod tests {
    use super::super::outbound::{Outbound, SendQueue, Staging};
    use super::super::queue_pair::Request;
    use super::super::traffic::Traffic;
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn pieces_cover_everything_once_and_nothing_is_one_piece() {
        for (bytes, expected) in [
            (0, vec![(0, 0)]),
            (5, vec![(0, 5)]),
            (10, vec![(0, 10)]),
            (11, vec![(0, 10), (10, 1)]),
            (20, vec![(0, 10), (10, 10)]),
        ] {
            assert_eq!(pieces(bytes, 10).collect::<Vec<_>>(), expected);
        }
    }

    fn to(address: u64) -> Remote {
        Remote { address, rkey: 1, bytes: 8 }
    }

    #[test]
    fn what_links_post_is_taken_in_together_and_counted_until_it_completes() {
        let counts = || {
            let (intake, handle) = (Intake::default(), Arc::new(Handle::default()));
            let mut posting = Posting::default();
            for link in 0..3 {
                for write in 0..4 {
                    posting.write(&handle, to(link * 10 + write), &[1; 8], None);
                }
                let more = intake.check_room(&posting, MAX_OUTBOUND_BYTES);
                assert_eq!(more, Err(LinkError::Overrun));
                intake.post(&mut posting);
            }
            assert_eq!(intake.waiting_bytes(), 12 * 8);
            let mut waiting = VecDeque::new();
            intake.take_into(&mut waiting);
            let places: Vec<u64> = waiting.iter().map(|piece| piece.remote.0).collect();
            assert_eq!(places, [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]);
            assert!(!intake.has_some());
            intake.placed(12 * 8);
            assert_eq!(intake.posted.load(Ordering::Relaxed), 12);
            intake.completed(12);
            assert_eq!(intake.check_room(&posting, MAX_OUTBOUND_BYTES), Ok(()));
        };
        shuttle::check_random(counts, 1);
    }

    /// The chains of requests that a device would have been given, each by one doorbell.
    #[derive(Default)]
    struct Doorbells(RefCell<Vec<Vec<Request>>>);

    impl SendQueue for Doorbells {
        fn depth(&self) -> usize {
            256
        }

        unsafe fn post(&self, requests: &[Request]) -> usize {
            self.0.borrow_mut().push(requests.to_vec());
            requests.len()
        }
    }

    /// Of no device.
    struct NoMemory;

    impl Staging for NoMemory {
        fn store(&self, _at: usize, _bytes: &[u8]) {}

        fn place(&self) -> (u64, u32) {
            (0, 0)
        }
    }

    /// 64 sessions share a queue pair. The first finds the device free; the others post
    /// one frame each while it rings the doorbell.
    #[test]
    fn what_is_posted_while_the_device_is_taken_leaves_by_one_doorbell() {
        const SESSIONS: u64 = 64;
        let counts = || {
            let (intake, device) = (Intake::default(), Mutex::new(()));
            let handle = Arc::new(Handle::default());
            let post = |session| {
                let mut posting = Posting::default();
                posting.write(&handle, to(session), &[1; 8], Some(0));
                intake.post(&mut posting);
            };
            let doorbells = Doorbells::default();
            let counters = Arc::default();
            let mut out = Outbound::new(NoMemory, Arc::clone(&counters));
            post(0);
            let mut is_first = true;
            let is_done = intake.drive(&device, |()| {
                out.flush(&doorbells, &intake).unwrap();
                if std::mem::take(&mut is_first) {
                    for session in 1..SESSIONS {
                        post(session);
                        let is_done = intake.drive(&device, |()| panic!("the device is taken"));
                        assert!(is_done, "the thread that has the device goes on");
                    }
                }
                true
            });
            assert!(is_done);
            let chains = doorbells.0.into_inner();
            let frames: Vec<usize> = chains.iter().map(Vec::len).collect();
            assert_eq!(frames, [1, 63], "64 frames, two doorbells");
            let sessions = chains.iter().flatten().map(|request| request.remote.0);
            assert!(sessions.eq(0..SESSIONS), "in the order in which they were posted");
            for chain in &chains {
                let signalled = chain.iter().filter(|request| request.is_signalled).count();
                assert!(signalled == 1 && chain.last().is_some_and(|last| last.is_signalled));
            }
            let Traffic { posts, pieces, .. } = counters.read(0);
            assert_eq!((posts, pieces), (2, SESSIONS));
        };
        shuttle::check_random(counts, 1);
    }

    /// Three links post and ring the doorbell, in any order of their steps. The posts of each must
    /// reach the device, in their order.
    fn links_share_a_device() {
        const POSTS: u64 = 3;
        let intake = Arc::new(Intake::default());
        let device = Arc::new(Mutex::new(VecDeque::new()));
        let links: Vec<_> = (0..3u64)
            .map(|link| {
                let (intake, device) = (Arc::clone(&intake), Arc::clone(&device));
                shuttle::thread::spawn(move || {
                    let (mut posting, handle) = (Posting::default(), Arc::new(Handle::default()));
                    for post in 0..POSTS {
                        posting.write(&handle, to(link * POSTS + post), &[1; 8], None);
                        intake.post(&mut posting);
                        intake.drive(&device, |device| {
                            intake.take_into(device);
                            true
                        });
                    }
                })
            })
            .collect();
        links.into_iter().for_each(|link| link.join().expect("it ended"));
        let posted: Vec<u64> =
            crate::locks::lock(&device).iter().map(|piece| piece.remote.0).collect();
        for link in 0..3 {
            let own: Vec<u64> = posted.iter().copied().filter(|at| at / POSTS == link).collect();
            let expected: Vec<u64> = (link * POSTS..(link + 1) * POSTS).collect();
            assert_eq!(own, expected, "nothing is left, and the order is kept");
        }
    }

    #[test]
    fn nothing_that_was_posted_while_the_device_was_taken_is_left() {
        shuttle::check_random(links_share_a_device, 2_000);
        shuttle::check_pct(links_share_a_device, 2_000, 3);
    }
}
