use super::*;
use crate::mail_queues::receive;
use remora_arena::{Mapping, Words};
use remora_frontend::Counter;
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

/// The mail that a receiver takes, and the senders that it wakes.
fn taken(inbox: &Inbox) -> (Vec<u64>, Vec<usize>) {
    let mut receiver = (inbox, Vec::new(), Vec::new());
    receive(
        &mut receiver,
        |(inbox, ..)| inbox.mail(),
        |(_, taken, _), mail| taken.extend(requests(mail)),
        |(.., woken), from| woken.push(from),
    );
    (receiver.1, receiver.2)
}

#[test]
fn mail_of_each_sender_comes_in_order_and_is_bounded() {
    let (inbox, _words) = inbox(3);
    assert_eq!(taken(&inbox), (vec![], vec![]));
    for request in 0..MAIL_UNDER_WAY as u64 {
        inbox.post(2, mail(request)).ok().unwrap();
    }
    let Err(refused) = inbox.post(2, mail(99)) else { panic!("there is no room") };
    assert_eq!(requests(refused), [99], "nothing is lost");
    assert!(!inbox.mail().has_room(2) && inbox.mail().has_room(0));
    inbox.post(0, mail(7)).ok().unwrap();
    assert!(!inbox.is_empty());
    let expected = std::iter::once(7).chain(0..MAIL_UNDER_WAY as u64).collect();
    assert_eq!(taken(&inbox), (expected, vec![2]));
    inbox.post(2, mail(99)).ok().unwrap();
    assert_eq!(taken(&inbox), (vec![99], vec![]), "woken once");
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
        assert_eq!(taken(&inbox).0.len(), room as usize);
        assert_eq!(turn(room + 10), [waits * (room + 11), waits * (room + 1), waits]);
        let all: Vec<u64> = (room..=room + 10).collect();
        assert_eq!(taken(&inbox), (all, vec![]), "all of it goes at once");
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
        let (requests, _) = taken(&inbox);
        if requests.is_empty() {
            std::thread::yield_now();
        }
        for request in requests {
            assert_eq!(request, next);
            next += 1;
        }
    }
    sender.join().unwrap();
    assert!(taken(&inbox).0.is_empty());
}
