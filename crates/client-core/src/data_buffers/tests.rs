//! Parts of memory: no two share bytes, none is lost, and no more memory is registered than the
//! limit allows.

use super::*;
use remora_arena::{Mapping, Words};
use remora_fabric::verbs::memlock::Locked;
use remora_layout::limits::LARGE_BUFFER_BYTES;
use shuttle::rand::{Rng, thread_rng};
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A device that gives memory, within limits, and knows what it has given.
#[derive(Default)]
struct Device {
    limit: AtomicUsize,
    /// Address and memory of each buffer that is registered.
    registered: StdMutex<Vec<(u64, Words)>>,
    next_address: AtomicU64,
    /// Registrations that are to fail, one after the other.
    failures: AtomicUsize,
}

impl Device {
    fn bytes(&self) -> usize {
        self.registered.lock().unwrap().iter().map(|(_, words)| words.bytes()).sum()
    }

    /// The memory of a buffer, as the peer writes it.
    fn memory(&self, address: u64) -> Words {
        let registered = self.registered.lock().unwrap();
        let (_, words) = registered.iter().find(|(at, _)| *at == address).unwrap();
        words.clone()
    }
}

struct Registration(Arc<Device>, u64);

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.registered.lock().unwrap().retain(|(address, _)| *address != self.1);
    }
}

struct ByDevice(Arc<Device>);

impl Registrar for ByDevice {
    fn register(&self, bytes: usize) -> Result<Buffer, NotRegistered> {
        let less = |left: usize| left.checked_sub(1);
        if self.0.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            let locked = Locked { limit: Some(0), pinned: 0, is_exempt: false };
            return Err(NotRegistered { wanted: bytes as u64, locked, errno: None });
        }
        let address = self.0.next_address.fetch_add(1 << 32, Ordering::Relaxed);
        let _registration: Option<Box<dyn Any + Send + Sync>> =
            Some(Box::new(Registration(Arc::clone(&self.0), address)));
        let words = Words::new(Mapping::heap(bytes));
        self.0.registered.lock().unwrap().push((address, words.clone()));
        Ok(Buffer { view: words.view(), address, key: (address >> 32) as u32 + 1, _registration })
    }

    fn limit_bytes(&self, _: usize) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }
}

fn registered(limit: usize) -> (Arc<Device>, Arc<DataBuffers>) {
    let device = Arc::new(Device { limit: AtomicUsize::new(limit), ..Device::default() });
    // Each look takes a second: the limit is looked at with each part.
    let ns = AtomicU64::new(1);
    let clock = Clock::Given(Arc::new(move || ns.fetch_add(1_000_000_000, Ordering::Relaxed)));
    let buffers = DataBuffers::registered(Box::new(ByDevice(Arc::clone(&device))), clock);
    (device, buffers)
}

/// In tests locks are the model checker's, and belong into a run of it.
fn once(test: fn()) {
    shuttle::check_random(test, 1);
}

/// The first part of this length that none of `held` overlaps.
fn first_gap(held: &mut [BufferRange], bytes: usize) -> Option<Range<usize>> {
    held.sort_unstable_by_key(|part| part.range.start);
    let starts = std::iter::once(0).chain(held.iter().map(|part| part.range.end));
    let ends = held.iter().map(|part| part.range.start).chain([LARGE_BUFFER_BYTES]);
    let gap = starts.zip(ends).find(|(start, end)| end - start >= bytes);
    gap.map(|(start, _)| start..start + bytes)
}

#[test]
fn parts_of_a_region_never_overlap_and_come_back() {
    once(|| {
        let buffers = DataBuffers::region(Words::new(Mapping::heap(LARGE_BUFFER_BYTES)).view());
        let mut held: Vec<BufferRange> = Vec::new();
        let mut refused = 0;
        for _ in 0..20_000 {
            if thread_rng().gen_range(0..5) < 3 {
                let bytes = thread_rng().gen_range(1..30 << 20);
                let part = buffers.line_up(bytes).try_take().unwrap();
                let range = part.as_ref().map(|part| part.range.clone());
                assert_eq!(range, first_gap(&mut held, bytes.next_multiple_of(8)));
                refused += part.is_none() as u32;
                held.extend(part);
            } else if !held.is_empty() {
                held.swap_remove(thread_rng().gen_range(0..held.len()));
            }
        }
        assert!(refused > 0);
        drop(held);
        let all = buffers.line_up(LARGE_BUFFER_BYTES).try_take().unwrap();
        assert_eq!(all.map(|part| part.range.clone()), Some(0..LARGE_BUFFER_BYTES));
    });
}

#[test]
fn registered_memory_grows_to_its_limit_and_shrinks_with_it() {
    once(|| {
        const MOST: usize = 24 << 20;
        let (device, buffers) = registered(MOST);
        let mut held: Vec<BufferRange> = Vec::new();
        let (mut refused, mut alone) = (0, 0);
        for _ in 0..20_000 {
            match thread_rng().gen_range(0..12) {
                0 => device.limit.store(thread_rng().gen_range(0..MOST), Ordering::Relaxed),
                1..7 => {
                    let bytes = thread_rng().gen_range(1..4 << 20);
                    let limit = device.limit.load(Ordering::Relaxed);
                    let before = device.bytes();
                    let part = buffers.line_up(bytes).try_take().unwrap();
                    if let Some(part) = &part {
                        let name = part.name();
                        let (from, key) = (name.address.get(), name.key.get());
                        let to = from + name.bytes.get() as u64;
                        let all = device.registered.lock().unwrap();
                        let lies = |(at, words): &(u64, Words)| {
                            *at <= from && to <= *at + words.bytes() as u64
                        };
                        assert_eq!(key as u64, (from >> 32) + 1);
                        assert!(all.iter().any(lies), "{name:?}");
                        let apart = |held: &BufferRange| {
                            let other = held.name();
                            let start = other.address.get();
                            to <= start || start + other.bytes.get() as u64 <= from
                        };
                        assert!(held.iter().all(apart), "{name:?}");
                    }
                    // It has grown within the limit, or for one part alone.
                    let grown = device.bytes();
                    if grown > before.max(limit) {
                        assert!(
                            held.is_empty() && part.as_ref().map(BufferRange::bytes) == Some(grown)
                        );
                        alone += 1;
                    }
                    refused += part.is_none() as u32;
                    held.extend(part);
                }
                _ if !held.is_empty() => {
                    held.swap_remove(thread_rng().gen_range(0..held.len()));
                }
                _ => {}
            }
            let counts = buffers.counts();
            assert_eq!(counts.bytes, device.bytes());
            assert_eq!(counts.busy_bytes, held.iter().map(BufferRange::bytes).sum::<usize>());
        }
        assert!(refused > 0 && alone > 0, "{refused} {alone}");
        device.limit.store(0, Ordering::Relaxed);
        // One at a time may come, whatever the load.
        let alone = loop {
            if let Some(part) = buffers.line_up(MOST).try_take().unwrap() {
                break part;
            }
            held.pop();
        };
        held.push(alone);
        assert_eq!((held.len(), device.bytes()), (1, MOST));
        drop(held);
        assert_eq!(device.bytes(), 0, "nothing is kept beyond the limit");
    });
}

#[test]
fn memory_that_cannot_be_registered_is_told_and_not_counted() {
    once(|| {
        let (device, buffers) = registered(8 << 20);
        device.failures.store(2, Ordering::Relaxed);
        for _ in 0..2 {
            let refused = buffers.line_up(100_000).try_take().err().expect("it fails");
            assert_eq!(refused.wanted, DATA_BUFFER_STEP_BYTES as u64);
            assert_eq!(buffers.counts().bytes, 0);
        }
        assert!(buffers.line_up(100_000).try_take().unwrap().is_some());
    });
}

#[test]
fn nobody_in_the_line_is_passed_over() {
    once(|| {
        let (_, buffers) = registered(4 << 20);
        let part = buffers.line_up(1 << 20).try_take().unwrap().expect("there is room");
        let all = buffers.line_up(4 << 20);
        let little = buffers.line_up(8);
        assert!(all.try_take().unwrap().is_none(), "somebody holds a part");
        assert!(little.try_take().unwrap().is_none(), "it would fit, and is not first");
        drop(part);
        let everything = all.try_take().unwrap().expect("it is alone");
        drop((all, everything));
        assert!(buffers.line_up(8).try_take().unwrap().is_none(), "it came last");
        assert!(little.try_take().unwrap().is_some());
    });
}

#[test]
fn threads_share_memory_and_everybody_gets_a_part() {
    let crowd = || {
        let (device, buffers) = registered(2 << 20);
        device.failures.store(thread_rng().gen_range(0..3), Ordering::Relaxed);
        let ask = |bytes: usize| {
            let (buffers, device) = (Arc::clone(&buffers), Arc::clone(&device));
            shuttle::thread::spawn(move || {
                let place = buffers.line_up(bytes);
                let part = loop {
                    match place.try_take() {
                        Ok(Some(part)) => break part,
                        Ok(None) => shuttle::thread::yield_now(),
                        // Another try may be more lucky.
                        Err(_) => {}
                    }
                };
                drop(place);
                let (words, view) = (device.memory(part.buffer.address), &part.buffer.view);
                // No other thread writes there.
                let (first, last) = (part.range.start / 8, part.range.end / 8 - 1);
                words.store(first, bytes as u64);
                words.store(last, bytes as u64);
                shuttle::thread::yield_now();
                assert_eq!([view.load(first), view.load(last)], [bytes as u64; 2]);
            })
        };
        let threads: Vec<_> = [9, 300_000, 1 << 20, 3 << 20, 16].map(ask).into_iter().collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let counts = buffers.counts();
        assert_eq!((counts.bytes, counts.busy_bytes), (device.bytes(), 0));
        assert!(counts.bytes <= 2 << 20, "{counts:?}");
        assert!(buffers.lock_pool().line.is_empty());
    };
    shuttle::check_random(crowd, 500);
    shuttle::check_pct(crowd, 500, 3);
}
