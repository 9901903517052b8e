//! A server's arenas, readable through one device: registered once, in pieces, by several threads,
//! and announced to clients.

use super::memlock::{self, NotRegistered};
use super::objects::Domain;
use super::peer::PeerArena;
use super::registration::Registration;
use remora_arena::ReadView;
use remora_layout::limits::MAX_REGISTER_THREADS;
use remora_layout::verbs::ArenaPlace;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

/// Progress is told of this often.
const TELL: Duration = Duration::from_secs(1);

/// Registered arenas.
pub(super) struct Arenas {
    /// What clients are told of them.
    greeting: Vec<u8>,
    _pieces: Vec<Registration>,
}

impl Arenas {
    /// Registers the arenas for reading only, in pieces of this length, and
    /// logs its progress and its end.
    ///
    /// # Errors
    /// A piece cannot be registered. None is left then.
    pub fn register(
        domain: &Arc<Domain>,
        arenas: &[ReadView],
        piece_bytes: usize,
    ) -> Result<Self, NotRegistered> {
        let bytes: usize = arenas.iter().map(ReadView::bytes).sum();
        // Before the first piece, so that the error names all that is needed.
        memlock::check(
            arenas.iter().map(|words| memlock::span(words.address(), words.bytes())).sum(),
        )?;
        let parts: Vec<(&ReadView, Range<usize>)> = arenas
            .iter()
            .flat_map(|words| cut(words.bytes(), piece_bytes).map(move |part| (words, part)))
            .collect();
        let device = &domain.context.name;
        let threads =
            thread::available_parallelism().map_or(1, usize::from).min(MAX_REGISTER_THREADS);
        let mut progress = Progress::new(Instant::now(), bytes);
        let register = |(view, part): &(&ReadView, Range<usize>)| {
            Registration::readable(domain, view, part.clone())
        };
        let pieces = in_parallel(&parts, threads, register, |piece| {
            let done = piece.map_or(0, Registration::bytes);
            if let Some((done, rate)) = progress.add(Instant::now(), done) {
                tracing::info!(
                    "registering memory with {device}: {done} of {bytes} bytes, {rate} a second"
                );
            }
        })?;
        let (took, rate) = progress.end(Instant::now());
        tracing::info!(
            "memory registered with {device}: {bytes} bytes in {} pieces, {} ms, {rate} bytes a second",
            pieces.len(),
            took.as_millis(),
        );
        let places = arenas.iter().map(|words| ArenaPlace {
            address: (words.address() as u64).into(),
            bytes: (words.bytes() as u64).into(),
            piece_bytes: (piece_bytes as u64).into(),
        });
        let mut greeting: Vec<u8> = places.flat_map(|place| place.as_bytes().to_vec()).collect();
        greeting.extend(pieces.iter().flat_map(|piece| piece.rkey().to_le_bytes()));
        Ok(Self { greeting, _pieces: pieces })
    }

    /// What a client is told: see [`remora_layout::verbs`].
    pub fn greeting(&self) -> &[u8] {
        &self.greeting
    }
}

/// Reads what a server tells of so many arenas.
///
/// # Errors
/// The stream ends, or it tells of no such arenas.
pub fn read_arenas(stream: &mut impl Read, arenas: usize) -> io::Result<Vec<PeerArena>> {
    let mut places = vec![ArenaPlace::new_zeroed(); arenas];
    stream.read_exact(places.as_mut_slice().as_mut_bytes())?;
    places
        .into_iter()
        .map(|place| {
            let pieces = place.pieces().ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "an arena in an impossible number of pieces",
                )
            })?;
            let mut rkeys = vec![U32::new_zeroed(); pieces];
            stream.read_exact(rkeys.as_mut_slice().as_mut_bytes())?;
            Ok(PeerArena {
                address: place.address.get(),
                bytes: place.bytes.get(),
                piece_bytes: place.piece_bytes.get(),
                rkeys: rkeys.into_iter().map(U32::get).collect(),
            })
        })
        .collect()
}

/// The pieces of a region.
fn cut(bytes: usize, piece_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..bytes).step_by(piece_bytes).map(move |at| at..bytes.min(at + piece_bytes))
}

/// Executes all parts, by so many threads, and returns the results in the order of the parts. This
/// thread calls `done` for each finished part, and now and then with `None`.
///
/// # Errors
/// The first error. It then drops the finished parts, and does not begin the others.
fn in_parallel<P: Sync, T: Send, E: Send>(
    parts: &[P],
    threads: usize,
    work: impl Fn(&P) -> Result<T, E> + Sync,
    mut done: impl FnMut(Option<&T>),
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.min(parts.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(part) = parts.get(at) else { return };
                    if sender.send((at, work(part))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut all: Vec<Option<T>> = parts.iter().map(|_| None).collect();
        loop {
            match results.recv_timeout(TELL) {
                Ok((at, Ok(result))) => {
                    done(Some(&result));
                    all[at] = Some(result);
                }
                Ok((_, Err(error))) => {
                    next.store(parts.len(), Ordering::Relaxed);
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => done(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(all.into_iter().map(|result| result.expect("each part gives one result")).collect())
    })
}

/// How far it is.
struct Progress {
    began: Instant,
    told: Instant,
    done: usize,
    bytes: usize,
}

impl Progress {
    fn new(began: Instant, bytes: usize) -> Self {
        Self { began, told: began, done: 0, bytes }
    }

    /// So many more bytes are done. What is to be told, if it is time to: all
    /// that are done, and how many a second.
    fn add(&mut self, now: Instant, bytes: usize) -> Option<(usize, u64)> {
        self.done += bytes;
        let is_due = now.duration_since(self.told) >= TELL && self.done < self.bytes;
        is_due.then(|| {
            self.told = now;
            (self.done, self.rate(now))
        })
    }

    /// How long all took, and bytes a second.
    fn end(&self, now: Instant) -> (Duration, u64) {
        (now.duration_since(self.began), self.rate(now))
    }

    fn rate(&self, now: Instant) -> u64 {
        let took = now.duration_since(self.began).as_secs_f64();
        if took > 0.0 { (self.done as f64 / took) as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn pieces_cover_a_region_once_and_a_small_one_is_one_piece() {
        let pieces =
            |bytes| -> Vec<_> { cut(bytes, 64).map(|piece| (piece.start, piece.end)).collect() };
        assert_eq!(pieces(40), [(0, 40)]);
        assert_eq!(pieces(64), [(0, 64)]);
        assert_eq!(pieces(130), [(0, 64), (64, 128), (128, 130)]);
    }

    #[test]
    fn all_parts_are_done_once_in_their_order_and_by_several_threads_at_a_time() {
        let parts: Vec<usize> = (0..40).collect();
        // No thread finishes alone.
        let together = Barrier::new(4);
        let mut told = 0;
        let work = |part: &usize| {
            together.wait();
            Ok::<_, ()>(part * 10)
        };
        let done = in_parallel(&parts, 4, work, |part| told += part.is_some() as usize);
        assert_eq!(done, Ok((0..40).map(|part| part * 10).collect()));
        assert_eq!(told, 40);
        assert_eq!(in_parallel(&[] as &[usize], 4, work, |_| ()), Ok(vec![]));
    }

    #[test]
    fn the_first_error_ends_it_and_drops_what_was_done() {
        let alive = AtomicUsize::new(0);
        struct Done<'a>(&'a AtomicUsize);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let begun = AtomicUsize::new(0);
        let parts: Vec<usize> = (0..100_000).collect();
        let work = |part: &usize| {
            begun.fetch_add(1, Ordering::SeqCst);
            if *part == 7 {
                return Err(*part);
            }
            if *part > 100 {
                // All of them would take a minute, however busy the machine is.
                thread::sleep(Duration::from_millis(1));
            }
            alive.fetch_add(1, Ordering::SeqCst);
            Ok(Done(&alive))
        };
        assert_eq!(in_parallel(&parts, 3, work, |_| ()).err(), Some(7));
        assert_eq!(alive.load(Ordering::SeqCst), 0, "something done was kept");
        assert!(begun.load(Ordering::SeqCst) < parts.len(), "it went on");
    }

    #[test]
    fn progress_is_told_once_a_second_until_all_is_done() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut progress = Progress::new(began, 1000);
        assert_eq!(progress.add(at(900), 100), None);
        assert_eq!(progress.add(at(1000), 100), Some((200, 200)));
        assert_eq!(progress.add(at(1900), 300), None);
        assert_eq!(progress.add(at(2500), 0), Some((500, 200)));
        assert_eq!(progress.add(at(4000), 500), None, "the end is told by itself");
        assert_eq!(progress.end(at(4000)), (Duration::from_secs(4), 250));
    }

    #[test]
    fn a_client_hears_what_was_told_and_no_impossible_arena() {
        let place = |address: u64, bytes: u64| ArenaPlace {
            address: address.into(),
            bytes: bytes.into(),
            piece_bytes: 64.into(),
        };
        let places = [place(4096, 128), place(8192, 65), place(65536, 8)];
        let keys: [U32; 5] = [1, 2, 3, 4, 5].map(Into::into);
        let told = [places.as_bytes(), keys.as_bytes()].concat();
        let heard = read_arenas(&mut &told[..], 3).unwrap();
        let keys: Vec<&[u32]> = heard.iter().map(|arena| &*arena.rkeys).collect();
        assert_eq!(keys, [&[1, 2][..], &[3, 4], &[5]]);
        assert_eq!((heard[1].address, heard[1].bytes, heard[1].piece_bytes), (8192, 65, 64));
        let cut_off = read_arenas(&mut &told[..told.len() - 1], 3);
        assert_eq!(cut_off.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        for lie in [ArenaPlace::new_zeroed(), place(4096, u64::MAX)] {
            let heard = read_arenas(&mut lie.as_bytes(), 1);
            assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
