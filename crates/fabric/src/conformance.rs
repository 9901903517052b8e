//! The conformance body: what every backend must do, as plain functions that
//! a backend's test calls with a bed of its own.

use crate::{Completion, Link, LinkError, RemoteAddress, Work};

/// A link with its target, for tests.
pub trait TestBed: Sized {
    /// The link under test.
    type Link: Link;

    /// A fresh pair with one readable region and one mailbox, each of
    /// `region_bytes`, and as much landing memory.
    fn new(region_bytes: usize) -> Self;
    /// The initiator's end.
    fn link(&mut self) -> &mut Self::Link;
    /// Region id of what the target lets be read.
    fn readable(&self) -> u32;
    /// Region id of the initiator's mailbox at the target.
    fn mailbox(&self) -> u32;
    /// The target changes its readable region.
    fn target_store(&mut self, offset: usize, bytes: &[u8]);
    /// The target looks into the mailbox.
    fn target_load(&mut self, offset: usize, bytes: usize) -> Vec<u8>;
    /// The target withdraws the session.
    fn withdraw(&mut self);
}

/// Runs the whole body.
pub fn run<B: TestBed>() {
    reads_of_every_size::<B>();
    writes_of_every_size::<B>();
    batches_complete_in_order::<B>();
    writes_are_taken_at_once::<B>();
    reads_see_earlier_writes_of_the_target::<B>();
    a_failure_fails_all_that_follows::<B>();
    bounds_and_rights_hold::<B>();
    withdrawn_is_withdrawn::<B>();
    an_empty_link_completes_nothing::<B>();
}

const REGION: usize = 256 << 10;

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + seed * 7 + at / 251) as u8).collect()
}

fn wait<L: Link>(link: &mut L) -> Completion {
    // Bounded: a backend that needs longer than this is broken.
    for _ in 0..100_000_000u64 {
        if let Some(completion) = link.poll() {
            return completion;
        }
    }
    panic!("no completion");
}

fn ok(id: u64) -> Completion {
    Completion { id, result: Ok(()) }
}

fn read(id: u64, region: u32, offset: u64, into: usize, bytes: usize) -> Work<'static> {
    Work::Read { id, from: RemoteAddress { region, offset }, into, bytes }
}

fn write(id: u64, region: u32, offset: u64, bytes: &[u8]) -> Work<'_> {
    Work::Write { id, to: RemoteAddress { region, offset }, bytes }
}

const SIZES: [usize; 16] = [0, 1, 7, 8, 9, 15, 16, 48, 63, 64, 65, 80, 1000, 4096, 65_537, REGION];

fn reads_of_every_size<B: TestBed>() {
    let mut bed = B::new(REGION);
    let content = pattern(1, REGION);
    bed.target_store(0, &content);
    let region = bed.readable();
    for (id, bytes) in (0u64..).zip(SIZES) {
        for offset in [0usize, 8, 4096, REGION - bytes] {
            let offset = offset & !7;
            if offset + bytes > REGION {
                continue;
            }
            bed.link().post(&[read(id, region, offset as u64, 0, bytes)]);
            assert_eq!(wait(bed.link()), ok(id));
            assert_eq!(bed.link().landed(0, bytes), &content[offset..offset + bytes]);
        }
    }
}

fn writes_of_every_size<B: TestBed>() {
    let mut bed = B::new(REGION);
    let region = bed.mailbox();
    for (id, bytes) in (0u64..).zip(SIZES) {
        let content = pattern(bytes, bytes);
        bed.link().post(&[write(id, region, 0, &content)]);
        assert_eq!(wait(bed.link()), ok(id));
        assert_eq!(bed.target_load(0, bytes), content);
    }
}

fn batches_complete_in_order<B: TestBed>() {
    let mut bed = B::new(REGION);
    let content = pattern(2, REGION);
    bed.target_store(0, &content);
    let region = bed.readable();
    let batch: Vec<Work<'_>> =
        (0..500).map(|at| read(at, region, (at * 80) & !7, at as usize * 80, 80)).collect();
    bed.link().post(&batch);
    for id in 0..500u64 {
        assert_eq!(wait(bed.link()), ok(id));
        let from = (id as usize * 80) & !7;
        assert_eq!(bed.link().landed(id as usize * 80, 80), &content[from..from + 80]);
    }
    assert_eq!(bed.link().poll(), None);
}

fn writes_are_taken_at_once<B: TestBed>() {
    let mut bed = B::new(REGION);
    let region = bed.mailbox();
    let mut content = pattern(3, 256);
    bed.link().post(&[write(1, region, 64, &content)]);
    content.fill(0xff);
    assert_eq!(wait(bed.link()), ok(1));
    assert_eq!(bed.target_load(64, 256), pattern(3, 256));
}

fn reads_see_earlier_writes_of_the_target<B: TestBed>() {
    let mut bed = B::new(REGION);
    let region = bed.readable();
    for round in 0..100usize {
        bed.target_store(128, &pattern(round, 64));
        bed.link().post(&[read(round as u64, region, 128, 0, 64)]);
        assert_eq!(wait(bed.link()), ok(round as u64));
        assert_eq!(bed.link().landed(0, 64), pattern(round, 64));
    }
}

fn a_failure_fails_all_that_follows<B: TestBed>() {
    let mut bed = B::new(REGION);
    let region = bed.readable();
    let beyond = REGION as u64;
    bed.link().post(&[
        read(1, region, 0, 0, 8),
        read(2, region, beyond, 0, 8),
        read(3, region, 0, 0, 8),
    ]);
    bed.link().post(&[read(4, region, 0, 0, 8)]);
    assert_eq!(wait(bed.link()), ok(1));
    let reason = LinkError::OutOfBounds { region, offset: beyond, bytes: 8 };
    for id in 2..=4 {
        assert_eq!(wait(bed.link()), Completion { id, result: Err(reason) });
    }
    assert_eq!(bed.link().failure(), Some(reason));
}

fn bounds_and_rights_hold<B: TestBed>() {
    let end = REGION as u64;
    for (offset, bytes) in [(end - 8, 16), (end + 8, 0), (4, 8), (u64::MAX - 7, 16), (!7, 8)] {
        let mut bed = B::new(REGION);
        let region = bed.readable();
        bed.link().post(&[read(1, region, offset, 0, bytes)]);
        let reason = LinkError::OutOfBounds { region, offset, bytes };
        assert_eq!(wait(bed.link()).result, Err(reason));

        let mut bed = B::new(REGION);
        let region = bed.mailbox();
        let content = pattern(5, bytes);
        bed.link().post(&[write(1, region, offset, &content)]);
        let reason = LinkError::OutOfBounds { region, offset, bytes };
        assert_eq!(wait(bed.link()).result, Err(reason));
    }
    let mut bed = B::new(REGION);
    bed.link().post(&[read(1, 4_000_000_000, 0, 0, 8)]);
    assert_eq!(wait(bed.link()).result, Err(LinkError::NoSuchRegion(4_000_000_000)));

    let mut bed = B::new(REGION);
    let region = bed.readable();
    bed.link().post(&[write(1, region, 0, &[1; 8])]);
    assert_eq!(wait(bed.link()).result, Err(LinkError::NotWritable(region)));

    let mut bed = B::new(REGION);
    let region = bed.readable();
    bed.link().post(&[read(1, region, 0, REGION, 8)]);
    assert_eq!(wait(bed.link()).result, Err(LinkError::NoLanding));
}

fn withdrawn_is_withdrawn<B: TestBed>() {
    let mut bed = B::new(REGION);
    let (readable, mailbox) = (bed.readable(), bed.mailbox());
    bed.link().post(&[read(1, readable, 0, 0, 8)]);
    assert_eq!(wait(bed.link()), ok(1));
    bed.withdraw();
    bed.link().post(&[read(2, readable, 0, 0, 8), write(3, mailbox, 0, &[1; 8])]);
    for id in 2..=3 {
        assert_eq!(wait(bed.link()), Completion { id, result: Err(LinkError::Withdrawn) });
    }
}

fn an_empty_link_completes_nothing<B: TestBed>() {
    let mut bed = B::new(REGION);
    bed.link().post(&[]);
    assert_eq!(bed.link().poll(), None);
    assert_eq!(bed.link().failure(), None);
}
