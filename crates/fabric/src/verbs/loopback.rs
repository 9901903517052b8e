//! Two queue pairs of this process, connected to each other over one device: the operations of a
//! session, so that `remora doctor` can say whether they work here.

use super::errors::VerbsError;
use super::memlock::NotRegistered;
use super::objects::{Context, Domain};
use super::packets::{Packets, mtu_bytes};
use super::places::Gid;
use super::queue_pair::{QueuePair, Request, Verb};
use super::registration::{Registration, access};
use super::setup::{Unconnected, bind_window};
use remora_arena::{Mapping, Words};
use remora_verbs_sys::*;
use std::time::{Duration, Instant};

/// Bytes that are fetched, and then stored.
const BYTES: usize = 4096;
/// A device gives up by itself before that: its tries take 1.6 s.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a device does not carry operations to itself.
#[derive(Debug, thiserror::Error)]
pub enum LoopbackError {
    /// Something that a session needs cannot be made.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The device did not take the operation.
    #[error("the device did not take a {0}")]
    NotTaken(&'static str),
    /// The device reported neither success nor failure.
    #[error("a {0} did not complete")]
    NotCompleted(&'static str),
    /// It completed with an error: a number of `ibv_wc_status`.
    #[error("a {0} failed (status {1}, in ibv_wc_status)")]
    Failed(&'static str, u32),
    /// It completed, and the bytes are others.
    #[error("a {0} brought wrong bytes")]
    Wrong(&'static str),
}

impl From<NotRegistered> for LoopbackError {
    fn from(refused: NotRegistered) -> Self {
        Self::Verbs(refused.into())
    }
}

/// The operations that were seen to work.
#[derive(Clone, Copy, Debug)]
pub struct Loopback {
    /// Bytes of the READ.
    pub bytes: usize,
    /// From posting the READ to its completion; the first on a connection.
    pub read: Duration,
    /// Bytes that a packet's payload had at most.
    pub mtu: u32,
}

/// READs from memory that is registered as an arena is, then WRITEs through a
/// window into memory that is registered as a mailbox is, in packets as these settings
/// want them.
///
/// # Errors
/// One of that does not work, or brings wrong bytes, or the port has no such
/// partition key.
pub fn loopback(place: &Gid, packets: &Packets) -> Result<Loopback, LoopbackError> {
    let domain = Domain::new(Context::open(&place.device)?)?;
    // Declared before the queue pairs, and so dropped after them.
    let [arena, mailbox] = [(); 2].map(|()| Words::new(Mapping::heap(BYTES)));
    for at in 0..BYTES / 8 {
        arena.store(at, pattern(at));
    }
    let readable = Registration::readable(&domain, &arena.view(), 0..BYTES)?;
    let writable = Registration::of(&domain, &mailbox, access::BY_WINDOW)?;
    let landing = Registration::own(&domain, BYTES)?;
    let unconnected = || Unconnected::with_packets(&domain, place, packets);
    let (far, near) = (unconnected()?, unconnected()?);
    let (remote_end, near_end) = (far.end(), near.end());
    let (far, near) = (far.connect(&near_end)?, near.connect(&remote_end)?);
    let window = bind_window(&domain, &far, &writable)?;
    let request = |verb, remote| Request {
        id: 0,
        verb,
        local: (landing.address(), landing.lkey()),
        remote,
        bytes: BYTES as u32,
        is_signalled: true,
    };
    let began = Instant::now();
    // SAFETY: the landing memory is dropped after the queue pairs, and looked
    // at after the completion.
    unsafe { execute(&near, "READ", request(Verb::Read, (readable.address(), readable.rkey()))) }?;
    let read = began.elapsed();
    // SAFETY: the READ has completed.
    let landed = unsafe { landing.landed(0, BYTES) };
    if landed.chunks_exact(8).zip(0..).any(|(word, at)| word != pattern(at).to_ne_bytes()) {
        return Err(LoopbackError::Wrong("READ"));
    }
    // SAFETY: as above.
    unsafe {
        let write = request(Verb::Write(None), (writable.address(), window.rkey));
        execute(&near, "WRITE through a memory window", write)
    }?;
    if (0..BYTES / 8).any(|at| mailbox.load_acquire(at) != pattern(at)) {
        return Err(LoopbackError::Wrong("WRITE through a memory window"));
    }
    Ok(Loopback { bytes: BYTES, read, mtu: mtu_bytes(near_end.mtu) })
}

/// A word that contains its own position; none is zero.
fn pattern(at: usize) -> u64 {
    (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// # Safety
/// As for [`QueuePair::post`].
unsafe fn execute(
    pair: &QueuePair,
    what: &'static str,
    request: Request,
) -> Result<(), LoopbackError> {
    // SAFETY: the caller's promise.
    if unsafe { pair.post(&[request]) } == 0 {
        return Err(LoopbackError::NotTaken(what));
    }
    let taken = pair.next_completion(TIMEOUT).ok_or(LoopbackError::NotCompleted(what))?;
    match taken.status {
        IBV_WC_SUCCESS => Ok(()),
        status => Err(LoopbackError::Failed(what, status)),
    }
}
