//! Rings against a queue: random sizes over many laps, a concurrent sender,
//! torn, stale, forged and hostile frames.

use remora_arena::{Mapping, Words};
use remora_fabric::shm::ShmLink;
use remora_fabric::{Link, LinkError};
use remora_layout::frame::{
    FRAME_HEADER_BYTES, MAX_PAYLOAD_BYTES, WRAP, first_word, frame_bytes, frame_checksum,
};
use remora_layout::limits::{CREDIT_BYTES, LAP_CREDIT_BYTES, RING_BYTES, RING_LAP_BYTES};
use remora_ring::{Poll, Receiver, SendError, Sender, Violation};
use remora_testing::Random;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEED: u64 = 0x1234_5678_9abc_def0;
const BASE: usize = 8192;

struct Ends {
    words: Words,
    link: ShmLink,
    sender: Sender,
    receiver: Receiver,
}

fn ends() -> Ends {
    let words = Words::new(Mapping::heap(BASE + RING_BYTES));
    let mut link = ShmLink::new(None);
    link.add_writable(0, words.clone());
    Ends {
        sender: Sender::new(0, BASE as u64, SEED),
        receiver: Receiver::new(words.view(), BASE, SEED),
        words,
        link,
    }
}

fn message(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize * 13 + at * 7) as u8).collect()
}

fn length(random: &mut Random) -> usize {
    match random.below(100) {
        0 => MAX_PAYLOAD_BYTES - random.below(70),
        1..=9 => random.below(40_000),
        _ => random.below(200),
    }
}

fn short_ends() -> Ends {
    let Ends { words, link, sender, receiver } = ends();
    let (sender, receiver) = (sender.in_short_laps(), receiver.in_short_laps());
    Ends { words, link, sender, receiver }
}

#[test]
fn every_message_arrives_once_in_order_over_many_laps() {
    many_laps(ends(), CREDIT_BYTES as u64, 2);
}

#[test]
fn every_message_arrives_once_in_order_over_many_short_laps() {
    many_laps(short_ends(), LAP_CREDIT_BYTES as u64, usize::MAX);
}

/// The frames of a ring in short laps stay in its first pages while they are small and few at a
/// time; long or many frames go beyond, and the sender comes back.
#[test]
fn a_ring_in_short_laps_touches_its_first_pages_only() {
    const DEEP: u64 = 32;
    let mut ends = short_ends();
    let touched = |ends: &Ends, from: usize| {
        (from..RING_BYTES / 8).any(|at| ends.words.load(BASE / 8 + at) != 0)
    };
    let (mut credit, mut into) = (0, Vec::new());
    for number in 0..20_000u64 {
        if ends.sender.wants_credit() || !ends.sender.has_room(100) {
            ends.sender.take_credit(credit).unwrap();
        }
        ends.sender.send(&mut ends.link, &[&message(number, 100)]).unwrap();
        while ends.link.poll().is_some() {}
        if number >= DEEP {
            assert!(matches!(ends.receiver.poll(&mut into), Poll::Frame(100)));
            assert!(into.ends_with(&message(number - DEEP, 100)));
        }
        credit = ends.receiver.credit_due().unwrap_or(credit);
    }
    let most = 2 * (LAP_CREDIT_BYTES + (DEEP as usize + 2) * frame_bytes(100));
    assert!(!touched(&ends, most / 8), "beyond byte {most}");
    assert!(touched(&ends, RING_LAP_BYTES / 8 - 16), "it does use a lap");
    // A long frame goes where it fits, and small ones then start at the ring's beginning.
    while let Poll::Frame(_) = ends.receiver.poll(&mut into) {}
    credit = ends.receiver.credit_due().unwrap_or(credit);
    ends.sender.take_credit(credit).unwrap();
    ends.sender.send(&mut ends.link, &[&message(0, 90_000)]).unwrap();
    assert!(touched(&ends, 90_000 / 8));
    let before = ends.words.load(BASE / 8);
    while let Poll::Frame(_) = ends.receiver.poll(&mut into) {}
    ends.sender.take_credit(ends.receiver.credit_due().unwrap_or(credit)).unwrap();
    ends.sender.send(&mut ends.link, &[&message(1, 100)]).unwrap();
    assert_ne!(ends.words.load(BASE / 8), before, "at the ring's start");
    assert!(matches!(ends.receiver.poll(&mut into), Poll::Frame(100)));
}

/// `most_writes` is how many WRITEs a run may take.
fn many_laps(mut ends: Ends, credit_bytes: u64, most_writes: usize) {
    let mut queue: VecDeque<Vec<u8>> = VecDeque::new();
    let (mut sent, mut full, mut bytes) = (0u64, 0u64, 0u64);
    let mut random = Random::new(7);
    let (mut credit, mut longest, mut turns) = (0, 0, 0);
    while bytes < 60 * RING_BYTES as u64 {
        turns += 1;
        assert!(turns < 10_000, "it goes on: {bytes} bytes");
        let burst = random.below(20u64);
        for _ in 0..burst {
            let payload = message(sent, length(&mut random));
            let half = payload.len() / 3;
            let room = ends.sender.has_room(payload.len());
            match ends.sender.send(&mut ends.link, &[&payload[..half], &payload[half..]]) {
                Ok(()) => {
                    assert!(room);
                    sent += 1;
                    bytes += payload.len() as u64;
                    queue.push_back(payload);
                }
                Err(SendError::Full) => {
                    assert!(!room);
                    full += 1;
                    break;
                }
                Err(other) => panic!("{other}"),
            }
            while ends.link.poll().is_some() {}
        }
        if burst.is_multiple_of(3) {
            // A run: as many as fit, by one WRITE or by more at the ends of laps.
            let run: Vec<Vec<u8>> =
                (sent..sent + burst).map(|number| message(number, length(&mut random))).collect();
            let taken = ends.sender.send_run(&mut ends.link, run.iter().map(Vec::as_slice));
            let taken = taken.unwrap();
            assert!(run.get(taken).is_none_or(|left| !ends.sender.has_room(left.len())));
            let writes = std::iter::from_fn(|| ends.link.poll()).count();
            let fewest = (taken > 0) as usize;
            assert!((fewest..=fewest * most_writes).contains(&writes), "{writes}");
            longest = longest.max(taken);
            sent += taken as u64;
            bytes += run[..taken].iter().map(|payload| payload.len() as u64).sum::<u64>();
            queue.extend(run.into_iter().take(taken));
        }
        for _ in 0..random.below(24) {
            let mut into = vec![0xee; 3];
            assert_eq!(ends.receiver.has_frame(), !queue.is_empty());
            match ends.receiver.poll(&mut into) {
                Poll::Frame(length) => {
                    let expected = queue.pop_front().expect("nothing is invented");
                    assert_eq!(length, expected.len());
                    assert_eq!(&into[3..], expected);
                }
                Poll::Empty => {
                    assert!(queue.is_empty() && into.len() == 3, "nothing is lost");
                    break;
                }
                other => panic!("{other:?}"),
            }
            if let Some(due) = ends.receiver.credit_due() {
                assert!(due >= credit + credit_bytes);
                credit = due;
            }
        }
        ends.sender.take_credit(credit).unwrap();
    }
    assert!(full > 50 && sent > 2_000 && longest > 10, "{full} {sent} {longest}");
}

#[test]
fn a_run_ends_where_the_ring_does_even_if_a_frame_does_too() {
    let mut ends = ends();
    // Eight frames fill the ring to the byte; each run of five meets its end.
    let payload = RING_BYTES / 8 - FRAME_HEADER_BYTES;
    assert_eq!(frame_bytes(payload), RING_BYTES / 8);
    let messages = if cfg!(miri) { 10 } else { 100 };
    for first in (0..messages).step_by(5) {
        let run: Vec<Vec<u8>> = (first..first + 5).map(|n| message(n, payload)).collect();
        let sent = ends.sender.send_run(&mut ends.link, run.iter().map(Vec::as_slice));
        assert_eq!(sent, Ok(5));
        for expected in &run {
            let mut into = Vec::new();
            assert_eq!(ends.receiver.poll(&mut into), Poll::Frame(payload));
            assert_eq!(&into, expected);
            if let Some(credit) = ends.receiver.credit_due() {
                ends.sender.take_credit(credit).unwrap();
            }
        }
    }
}

/// Reports when its thread has ended, by a panic too, and makes the thread's earlier writes
/// visible: `JoinHandle::is_finished` promises no such order.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_concurrent_sender_is_never_misread() {
    let mut ends = ends();
    const MESSAGES: u64 = if cfg!(miri) { 300 } else { 200_000 };
    let credits = Words::new(Mapping::heap(64));
    let seen = credits.clone();
    let ended = Arc::new(AtomicBool::new(false));
    let ends_here = Ended(Arc::clone(&ended));
    let sender = std::thread::spawn(move || {
        let _ends_here = ends_here;
        let mut random = Random::new(99);
        for number in 0..MESSAGES {
            let payload = message(number, random.below(300));
            loop {
                ends.sender.take_credit(seen.load_acquire(0)).unwrap();
                match ends.sender.send(&mut ends.link, &[&payload]) {
                    Ok(()) => break,
                    Err(SendError::Full) => std::thread::yield_now(),
                    Err(other) => panic!("{other}"),
                }
            }
            while ends.link.poll().is_some() {}
        }
    });
    let mut random = Random::new(99);
    let mut into = Vec::new();
    let mut number = 0;
    while number < MESSAGES {
        into.clear();
        let has_ended = ended.load(Ordering::Acquire);
        match ends.receiver.poll(&mut into) {
            Poll::Frame(_) => {
                let bytes = random.below(300);
                assert_eq!(into, message(number, bytes), "message {number}");
                number += 1;
                if let Some(due) = ends.receiver.credit_due() {
                    credits.store_release(0, due);
                }
            }
            Poll::Empty | Poll::Torn => {
                assert!(!has_ended, "message {number} never came");
                std::thread::yield_now();
            }
            Poll::Violated(violation) => panic!("{violation}"),
        }
    }
    sender.join().unwrap();
}

/// Writes a frame by hand, word by word.
fn forge(words: &Words, position: usize, sequence: u32, claimed: u32, payload: &[u8], seed: u64) {
    let word = first_word(sequence, claimed, seed);
    let mut frame = word.to_le_bytes().to_vec();
    frame.extend(frame_checksum(word, payload, seed).to_le_bytes());
    frame.extend(payload);
    words.copy_in(BASE + position, &frame);
}

#[test]
fn a_torn_frame_waits_for_its_rest() {
    let mut ends = ends();
    let payload = message(1, 500);
    forge(&ends.words, 0, 0, 500, &payload, SEED);
    let last = (BASE + 16 + 496) / 8;
    let word = ends.words.load(last);
    for at in [last, last - 10, (BASE + 8) / 8] {
        let saved = ends.words.load(at);
        ends.words.store(at, saved ^ 1);
        let mut into = Vec::new();
        assert_eq!(ends.receiver.poll(&mut into), Poll::Torn, "word {at}");
        assert!(into.is_empty());
        ends.words.store(at, saved);
    }
    assert_eq!(ends.words.load(last), word);
    let mut into = Vec::new();
    assert_eq!(ends.receiver.poll(&mut into), Poll::Frame(500));
    assert_eq!(into, payload);
}

/// A hostile peer that knows the seed writes one whole frame over another, of another length and
/// with the same sequence, again and again while the receiver looks.
#[test]
fn bytes_that_change_while_they_are_read_are_copied_once() {
    const LOOKS: usize = if cfg!(miri) { 50 } else { 400_000 };
    const CHANGES: usize = if cfg!(miri) { 2 } else { 20 };
    const UNIT: usize = if cfg!(miri) { 8 } else { 500 };
    let payloads = [vec![0x11; 2 * UNIT], vec![0x22; 8 * UNIT], vec![0x33; 5 * UNIT]];
    let Ends { words, .. } = ends();
    let ended = Arc::new(AtomicBool::new(false));
    let ends_here = Ended(Arc::clone(&ended));
    let peer = {
        let (words, payloads) = (words.clone(), payloads.clone());
        std::thread::spawn(move || {
            let mut random = Random::new(3);
            for payload in payloads.iter().cycle() {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                forge(&words, 0, 0, payload.len() as u32, payload, SEED);
                // Long enough for a look at the whole frame, or not.
                (0..random.below(2_000)).for_each(|_| std::hint::spin_loop());
            }
        })
    };
    let (mut last, mut looks, mut changes) = (None, 0, 0);
    while looks < LOOKS || changes < CHANGES {
        looks += 1;
        // Each receiver begins at the ring's start, where the peer writes.
        let mut receiver = Receiver::new(words.view(), BASE, SEED);
        let mut into = Vec::new();
        match receiver.poll(&mut into) {
            Poll::Frame(bytes) => {
                let which = payloads.iter().position(|of| *of == into);
                let which = which.expect("a frame is one that was written, and no mixture");
                assert_eq!(bytes, payloads[which].len());
                changes += usize::from(last.replace(which) != Some(which));
            }
            Poll::Torn | Poll::Empty => {}
            Poll::Violated(violation) => panic!("no length was impossible: {violation}"),
        }
    }
    drop(ends_here);
    peer.join().unwrap();
}

#[test]
fn stale_frames_and_frames_under_another_seed_are_not_seen() {
    let mut ends = ends();
    for (sequence, seed) in [(1, SEED), (u32::MAX, SEED), (0, SEED + 1)] {
        forge(&ends.words, 0, sequence, 5, b"stale", seed);
        assert_eq!(ends.receiver.poll(&mut Vec::new()), Poll::Empty);
        assert!(!ends.receiver.has_frame());
    }
}

#[test]
fn hostile_lengths_are_violations() {
    for claimed in [MAX_PAYLOAD_BYTES as u32 + 1, RING_BYTES as u32, WRAP - 1, 1 << 31] {
        let mut ends = ends();
        forge(&ends.words, 0, 0, claimed, b"", SEED);
        let poll = ends.receiver.poll(&mut Vec::new());
        assert_eq!(poll, Poll::Violated(Violation::Length), "{claimed}");
    }
    // Two markers in a row: no honest sender writes a second one.
    let mut ends = ends();
    forge(&ends.words, 0, 0, WRAP, b"", SEED);
    forge(&ends.words, 0, 1, WRAP, b"", SEED);
    let poll = ends.receiver.poll(&mut Vec::new());
    assert!(matches!(poll, Poll::Violated(_) | Poll::Empty), "{poll:?}");
}

#[test]
fn the_longest_frames_arrive_and_no_longer_ones() {
    let mut ends = ends();
    let longest = message(1, MAX_PAYLOAD_BYTES);
    ends.sender.send(&mut ends.link, &[&longest]).unwrap();
    let mut into = Vec::new();
    assert_eq!(ends.receiver.poll(&mut into), Poll::Frame(MAX_PAYLOAD_BYTES));
    assert!(into == longest);
    let longer = [longest, vec![0]].concat();
    let sent = ends.sender.send(&mut ends.link, &[&longer]);
    assert_eq!(sent, Err(SendError::TooLong(longer.len())));
}

#[test]
fn a_frame_may_end_where_the_ring_does_and_credit_comes_with_each_quarter() {
    const EIGHTH: usize = RING_BYTES / 8;
    const LAST: usize = 64;
    for (claimed, fits) in [(LAST - FRAME_HEADER_BYTES, true), (LAST, false)] {
        let mut ends = ends();
        for eighth in 1..=8 {
            // All but the last few bytes of the ring.
            let bytes = if eighth < 8 { EIGHTH } else { EIGHTH - LAST };
            let payload = vec![eighth as u8; bytes - FRAME_HEADER_BYTES];
            ends.sender.send(&mut ends.link, &[&payload]).unwrap();
            assert_eq!(ends.receiver.poll(&mut Vec::new()), Poll::Frame(payload.len()));
            let due = (eighth < 8 && eighth % 2 == 0).then_some((eighth * EIGHTH) as u64);
            assert_eq!(ends.receiver.credit_due(), due);
            assert_eq!(ends.receiver.credit_due(), None, "it is told once");
        }
        forge(
            &ends.words,
            RING_BYTES - LAST,
            8,
            claimed as u32,
            &vec![7; claimed][..LAST - 16],
            SEED,
        );
        let expected = if fits { Poll::Frame(claimed) } else { Poll::Violated(Violation::Length) };
        assert_eq!(ends.receiver.poll(&mut Vec::new()), expected);
    }
}

#[test]
fn each_write_carries_the_immediate() {
    let mut ends = ends();
    let mut sender = Sender::new(0, BASE as u64, SEED).with_immediate(3);
    let sent = sender.send(&mut ends.link, &[b"nobody listens for it"]);
    assert_eq!(sent, Err(SendError::Link(LinkError::NoSuchImmediate(3))));
}

#[test]
fn hostile_credit_is_a_violation() {
    let mut ends = ends();
    ends.sender.send(&mut ends.link, &[b"one"]).unwrap();
    let frame = frame_bytes(3) as u64;
    assert_eq!(ends.sender.take_credit(frame + 1), Err(Violation::Credit));
    assert_eq!(ends.sender.take_credit(frame), Ok(()));
    assert_eq!(ends.sender.credit(), frame);
    assert_eq!(ends.sender.take_credit(0), Err(Violation::Credit));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_a_receiver_panic(words in proptest::collection::vec(0u64.., 64), first in 0u32..) {
        let mut ends = ends();
        for (at, word) in words.iter().enumerate() {
            ends.words.store(BASE / 8 + at, *word);
        }
        // The test makes the first word fit, otherwise the receiver would look at nothing.
        ends.words.store(BASE / 8, first_word(0, first, SEED));
        let mut into = Vec::new();
        let poll = ends.receiver.poll(&mut into);
        assert!(!matches!(poll, Poll::Frame(_)), "random bytes carry no checksum");
        assert!(into.is_empty());
    }
}
