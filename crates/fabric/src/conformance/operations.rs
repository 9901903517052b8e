//! Operations that succeed: sizes, batches, order, immediates.

use super::fixture::{Check, REGION, TestFixture, checks, ok, pattern, read, wait, write};
use crate::{Link, RemoteAddress, Work};
use remora_layout::limits::MAX_WRITE_BYTES;
use std::time::Duration;

pub(super) fn checks<B: TestFixture>() -> Vec<Check> {
    checks![
        reads_of_every_size,
        writes_of_every_size,
        the_largest_operations,
        batches_complete_in_order,
        mixed_batches_complete_in_order,
        writes_are_taken_at_once,
        reads_see_earlier_writes_of_the_target,
        immediates_arrive_once_after_their_bytes,
        a_long_batch_of_writes_keeps_its_order_and_is_told_of,
        an_empty_link_completes_nothing,
        what_has_completed_is_told_before_it_is_taken,
    ]
}

const SIZES: [usize; 16] = [0, 1, 7, 8, 9, 15, 16, 48, 63, 64, 65, 80, 1000, 4096, 65_537, REGION];

fn reads_of_every_size<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let content = pattern(1, REGION);
    fixture.target_store(0, &content);
    let region = fixture.readable();
    for (id, bytes) in (0u64..).zip(SIZES) {
        for offset in [0usize, 8, 4096, REGION - bytes] {
            let offset = offset & !7;
            if offset + bytes > REGION {
                continue;
            }
            fixture.link().post(&[read(id, region, offset as u64, 0, bytes)]);
            assert_eq!(wait(fixture.link()), ok(id));
            assert_eq!(fixture.link().landed(0, bytes), &content[offset..offset + bytes]);
        }
    }
}

fn writes_of_every_size<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let region = fixture.mailbox();
    for (id, bytes) in (0u64..).zip(SIZES) {
        let content = pattern(bytes, bytes);
        fixture.link().post(&[write(id, region, 0, &content)]);
        assert_eq!(wait(fixture.link()), ok(id));
        assert_eq!(fixture.target_load(0, bytes), content);
    }
}

fn batches_complete_in_order<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let content = pattern(2, REGION);
    fixture.target_store(0, &content);
    let region = fixture.readable();
    let batch: Vec<Work<'_>> =
        (0..500).map(|at| read(at, region, (at * 80) & !7, at as usize * 80, 80)).collect();
    fixture.link().post(&batch);
    for id in 0..500u64 {
        assert_eq!(wait(fixture.link()), ok(id));
        let from = (id as usize * 80) & !7;
        assert_eq!(fixture.link().landed(id as usize * 80, 80), &content[from..from + 80]);
    }
    assert_eq!(fixture.link().poll(), None);
}

fn writes_are_taken_at_once<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let region = fixture.mailbox();
    let mut content = pattern(3, 256);
    fixture.link().post(&[write(1, region, 64, &content)]);
    content.fill(0xff);
    assert_eq!(wait(fixture.link()), ok(1));
    assert_eq!(fixture.target_load(64, 256), pattern(3, 256));
}

fn reads_see_earlier_writes_of_the_target<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let region = fixture.readable();
    for round in 0..100usize {
        fixture.target_store(128, &pattern(round, 64));
        fixture.link().post(&[read(round as u64, region, 128, 0, 64)]);
        assert_eq!(wait(fixture.link()), ok(round as u64));
        assert_eq!(fixture.link().landed(0, 64), pattern(round, 64));
    }
}

/// More WRITEs than any queue pair takes at a time, in one batch. Each goes to its own word, and to
/// one that all of them write. Only the last one has an immediate: when it arrives, all WRITEs
/// before it are stored.
fn a_long_batch_of_writes_keeps_its_order_and_is_told_of<B: TestFixture>() {
    const WRITES: u64 = 1_000;
    let mut fixture = B::new(REGION);
    let region = fixture.mailbox();
    let values: Vec<[u8; 8]> = (1..=WRITES).map(u64::to_le_bytes).collect();
    let batch: Vec<Work<'_>> = (1..=WRITES)
        .zip(&values)
        .flat_map(|(number, bytes)| {
            let own = RemoteAddress { region, offset: number * 8 };
            let shared = RemoteAddress { region, offset: 0 };
            let imm = (number == WRITES).then_some(0);
            [
                Work::Write { id: 2 * number, to: own, bytes, imm: None },
                Work::Write { id: 2 * number + 1, to: shared, bytes, imm },
            ]
        })
        .collect();
    fixture.link().post(&batch);
    for id in 2..2 * WRITES + 2 {
        assert_eq!(wait(fixture.link()), ok(id));
    }
    assert_eq!(fixture.immediates(), [(0, WRITES)]);
    for number in 1..=WRITES {
        assert_eq!(fixture.target_load(number as usize * 8, 8), number.to_le_bytes());
    }
}

fn an_empty_link_completes_nothing<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    fixture.link().post(&[]);
    assert_eq!(fixture.link().poll(), None);
    assert_eq!(fixture.link().failure(), None);
}

/// A thread that waits for WRITEs looks before it sleeps.
fn what_has_completed_is_told_before_it_is_taken<B: TestFixture>() {
    const LOOKS: usize = 1_000;
    let mut fixture = B::new(REGION);
    let region = fixture.mailbox();
    assert!(!fixture.link().has_completed());
    for id in 0..20 {
        fixture.link().post(&[write(id, region, 8 * id, &pattern(8, 8))]);
        let mut looks = 0;
        while !fixture.link().has_completed() {
            assert!(looks < LOOKS, "a WRITE completes, and nothing tells");
            looks += 1;
            fixture.link().wait(Some(Duration::from_millis(10)));
        }
        assert_eq!(fixture.link().poll(), Some(ok(id)));
        assert!(!fixture.link().has_completed());
    }
}

/// A READ of the longest value, with a small one before and behind it, and the
/// longest WRITE.
fn the_largest_operations<B: TestFixture>() {
    const LARGE: usize = 64 << 20;
    let mut fixture = B::new(LARGE);
    let (readable, mailbox) = (fixture.readable(), fixture.mailbox());
    let content = pattern(11, LARGE);
    fixture.target_store(0, &content);
    fixture.link().reserve_landing(LARGE + 16);
    fixture.link().post(&[
        read(1, readable, 8, LARGE, 8),
        read(2, readable, 0, 0, LARGE),
        write(3, mailbox, 8, &content[..MAX_WRITE_BYTES]),
        read(4, readable, 16, LARGE + 8, 8),
    ]);
    for id in 1..=4 {
        assert_eq!(wait(fixture.link()), ok(id));
    }
    assert!(fixture.link().landed(0, LARGE) == content, "64 MiB are not what they were");
    assert_eq!(fixture.link().landed(LARGE, 16), &content[8..24]);
    let stored = fixture.target_load(8, MAX_WRITE_BYTES);
    assert!(stored == content[..MAX_WRITE_BYTES], "the longest WRITE is not what it was");
}

/// A thousand operations, READs and WRITEs in turn, of many sizes.
fn mixed_batches_complete_in_order<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let (readable, mailbox) = (fixture.readable(), fixture.mailbox());
    let content = pattern(4, REGION);
    fixture.target_store(0, &content);
    let bytes_of = |at: u64| (at * 37 % 250) as usize;
    let batch: Vec<Work<'_>> = (0..1000u64)
        .map(|at| {
            let (place, bytes) = (at / 2 * 256, bytes_of(at));
            match at % 2 {
                0 => read(at, readable, place, place as usize, bytes),
                _ => write(at, mailbox, place, &content[place as usize..][..bytes]),
            }
        })
        .collect();
    fixture.link().post(&batch);
    for at in 0..1000u64 {
        assert_eq!(wait(fixture.link()), ok(at));
    }
    assert_eq!(fixture.link().poll(), None);
    for at in 0..1000u64 {
        let (place, bytes) = (at as usize / 2 * 256, bytes_of(at));
        let expected = &content[place..place + bytes];
        match at % 2 {
            0 => assert_eq!(fixture.link().landed(place, bytes), expected),
            _ => assert_eq!(fixture.target_load(place, bytes), expected),
        }
    }
}

fn immediates_arrive_once_after_their_bytes<B: TestFixture>() {
    let mut fixture = B::new(REGION);
    let region = fixture.mailbox();
    let mut told = Vec::new();
    for half in 0..2u64 {
        let words: Vec<[u8; 8]> = (0..50).map(|at| (1000 + half * 50 + at).to_le_bytes()).collect();
        let batch: Vec<Work<'_>> = (0u64..)
            .zip(&words)
            .map(|(at, bytes)| {
                let number = half * 50 + at;
                let to = RemoteAddress { region, offset: number * 8 };
                Work::Write { id: number, to, bytes, imm: Some(number as u32) }
            })
            .collect();
        fixture.link().post(&batch);
        for at in 0..50 {
            assert_eq!(wait(fixture.link()), ok(half * 50 + at));
        }
        told.extend(fixture.immediates());
    }
    told.extend(fixture.immediates());
    let expected: Vec<(u32, u64)> = (0..100).map(|at| (at, 1000 + at as u64)).collect();
    assert_eq!(told, expected);
    fixture.link().post(&[write(1, region, 0, &[1])]);
    assert_eq!(wait(fixture.link()), ok(1));
    assert_eq!(fixture.immediates(), [], "a WRITE without an immediate tells nobody");
}
