use super::*;
use crate::thread_counts::Counter;
use remora_arena::{Mapping, Words};
use std::sync::Arc;

const ASLEEP: usize = 1;

fn inbox(shards: usize) -> (Inbox, Words) {
    let words = Words::new(Mapping::heap(4096));
    let bell = Bell::new(words.view(), ASLEEP, Bell::eventfd().unwrap());
    (Inbox::new(shards, bell), words)
}

fn mail(request: u64) -> Mail {
    let token = Token { home: 0, connection: 0, serial: 1, request, part: 0, shard: 1 };
    Mail { jobs: vec![Job::execute(Vec::new(), token)], replies: Vec::new() }
}

fn requests(mail: Mail) -> Vec<u64> {
    mail.jobs.iter().map(|job| job.token.request).collect()
}

#[test]
fn mail_of_each_sender_comes_in_order_and_is_bounded() {
    let (inbox, _words) = inbox(3);
    assert_eq!(inbox.take_senders(), 0);
    for request in 0..MAIL_UNDER_WAY as u64 {
        inbox.post(2, mail(request)).ok().unwrap();
    }
    let Err(refused) = inbox.post(2, mail(99)) else { panic!("there is no room") };
    assert_eq!(requests(refused), [99], "nothing is lost");
    assert!(!inbox.has_room(2) && inbox.has_room(0));
    inbox.post(0, mail(7)).ok().unwrap();
    assert!(!inbox.is_empty());
    assert_eq!(inbox.take_senders(), 0b101);
    let all: Vec<u64> = std::iter::from_fn(|| inbox.take(2)).flat_map(requests).collect();
    assert_eq!(all, (0..MAIL_UNDER_WAY as u64).collect::<Vec<_>>());
    assert_eq!((inbox.take_waiting(), inbox.take_waiting()), (0b100, 0), "once");
    assert_eq!(inbox.take(0).map(requests), Some(vec![7]));
    assert!(inbox.is_empty());
}

#[test]
fn mail_that_waits_is_counted_once_however_long_it_waits() {
    let (inbox, _words) = inbox(2);
    let (mut outbox, counts) = (Outbox::new(1, 2), ThreadCounts::default());
    let mut turn = |request| {
        mail(request).jobs.into_iter().for_each(|job| outbox.add_job(0, job));
        outbox.send(|_| &inbox, &counts);
        [&counts.turns, &counts.mail_sent, &counts.mail_waited].map(Counter::get)
    };
    let room = MAIL_UNDER_WAY as u64;
    for waits in 1..=2 {
        for request in 0..room {
            turn(request);
        }
        let waited = (0..10).map(|request| turn(room + request)[2]).collect::<Vec<_>>();
        assert_eq!(waited, [waits; 10]);
        let taken = || std::iter::from_fn(|| inbox.take(1)).map(requests).collect::<Vec<_>>();
        assert_eq!(taken().len(), room as usize);
        assert_eq!(turn(room + 10), [waits * (room + 11), waits * (room + 1), waits]);
        assert_eq!(taken(), [(room..=room + 10).collect::<Vec<_>>()], "all of it goes at once");
    }
}

#[test]
fn no_mail_is_missed_by_a_thread_that_looks_for_senders_first() {
    let (inbox, _words) = inbox(2);
    let inbox = Arc::new(inbox);
    let sent = 20_000;
    let sender = std::thread::spawn({
        let inbox = Arc::clone(&inbox);
        move || {
            for request in 0..sent {
                let mut next = Some(mail(request));
                while let Some(again) = next.take() {
                    next = inbox.post(1, again).err();
                }
            }
        }
    });
    let mut next = 0;
    while next < sent {
        if inbox.take_senders() == 0 {
            std::thread::yield_now();
            continue;
        }
        while let Some(mail) = inbox.take(1) {
            assert_eq!(requests(mail), [next]);
            next += 1;
        }
    }
    sender.join().unwrap();
    assert!(inbox.take(1).is_none());
}
