use super::*;
use std::sync::Arc;

fn held() -> Inbox {
    let inbox = Inbox::default();
    assert!(inbox.take_if_free());
    inbox
}

/// The first request to a shard.
fn at(shard: usize) -> RequestAt {
    RequestAt { shard, sequence: 0 }
}

#[test]
fn replies_come_in_the_order_of_their_shard() {
    shuttle::check_random(
        || {
            let inbox = held();
            inbox.expect_replies(4);
            assert!(!inbox.has_reply() && inbox.take(1).is_none());
            for (shard, payload) in [(1, b"a"), (2, b"b"), (1, b"c")] {
                let delivered = inbox.deliver(at(shard), payload, false);
                assert_eq!(delivered, Some(false), "nobody sleeps");
            }
            assert!(inbox.take(3).is_none() && inbox.has_reply());
            assert_eq!(inbox.take(1).unwrap(), b"a");
            assert_eq!(inbox.take(1).unwrap(), b"c");
            assert!(inbox.take(1).is_none() && inbox.has_reply());
            assert_eq!(inbox.take(2).unwrap(), b"b");
            assert!(!inbox.has_reply());
        },
        1,
    );
}

#[test]
fn a_number_is_free_when_its_last_reply_has_come() {
    shuttle::check_random(
        || {
            let inbox = held();
            assert!(!inbox.take_if_free(), "somebody holds it");
            inbox.expect_replies(3);
            inbox.expect_fewer(1);
            inbox.took_reply();
            inbox.give_back();
            assert!(!inbox.take_if_free(), "one reply is still to come");
            assert_eq!(inbox.deliver(at(0), b"to nobody", false), Some(false));
            assert!(inbox.take_if_free());
            assert!(!inbox.has_reply(), "a former holder's reply is not the new one's");
            inbox.expect_replies(1);
            inbox.deliver(at(0), b"not taken", false);
            inbox.give_back();
            assert!(inbox.take_if_free() && !inbox.has_reply());
        },
        1,
    );
}

#[test]
fn of_replies_to_an_abandoned_request_the_last_one_is_kept() {
    shuttle::check_random(
        || {
            let (inbox, late) = (held(), RequestAt { shard: 1, sequence: 7 });
            inbox.expect_replies(4);
            inbox.abandon(late);
            for (to, is_followed) in [(late, true), (at(1), true), (late, true)] {
                assert_eq!(inbox.deliver(to, b"a part", is_followed), Some(false));
            }
            assert_eq!(inbox.take(1).unwrap(), b"a part");
            assert!(!inbox.has_reply(), "the abandoned one's parts are dropped");
            inbox.deliver(late, b"the last", false);
            assert_eq!(inbox.take(1).unwrap(), b"the last");
            // Its number may be another request's now.
            inbox.deliver(late, b"another one's part", true);
            assert!(inbox.has_reply());
            // Abandoned after the last reply came: nothing is to come.
            inbox.deliver(late, b"the last", false);
            inbox.abandon(late);
            inbox.deliver(late, b"a third one's part", true);
            assert_eq!([(); 3].map(|()| inbox.take(1).is_some()), [true; 3]);
        },
        1,
    );
}

#[test]
fn whoever_sleeps_in_the_kernel_is_to_be_woken_there() {
    shuttle::check_random(
        || {
            let inbox = held();
            inbox.expect_replies(3);
            assert!(inbox.may_sleep_in_kernel(1));
            assert_eq!(inbox.deliver(at(1), b"wakes", false), Some(true));
            assert!(!inbox.may_sleep_in_kernel(1), "a reply is here");
            assert_eq!(inbox.deliver(at(1), b"it stayed awake", false), Some(false));
            assert!(inbox.may_sleep_in_kernel(2), "it waits for another shard's");
            inbox.awake();
            assert_eq!(inbox.deliver(at(1), b"it is awake", false), Some(false));
            assert_eq!(inbox.deliver(at(1), b"nobody asked", false), None);
            // A search's replies but the last leave it expected.
            inbox.expect_replies(1);
            assert_eq!(inbox.deliver(at(1), b"a part", true), Some(false));
            assert_eq!(inbox.deliver(at(1), b"the last", false), Some(false));
            assert_eq!(inbox.deliver(at(1), b"nobody asked", true), None);
        },
        1,
    );
}

#[test]
fn a_nudge_reaches_who_is_parked_and_once() {
    shuttle::check_random(
        || {
            let inbox = held();
            assert!(!inbox.nudge_if_parked() && !inbox.take_nudge(), "nobody is parked");
            inbox.nudge();
            assert!(inbox.take_nudge() && !inbox.take_nudge());
            inbox.nudge();
            inbox.announce_parking();
            assert!(!inbox.take_nudge(), "what came before has had its effect");
            assert!(inbox.nudge_if_parked() && !inbox.nudge_if_parked());
            inbox.park(0, Duration::from_secs(600));
            assert!(inbox.take_nudge());
            assert!(!inbox.nudge_if_parked(), "it is awake");
        },
        1,
    );
}

/// There is no timeout here: a thread that is not woken is a deadlock.
#[test]
fn a_reply_wakes_who_is_parked_and_nobody_parks_over_one() {
    shuttle::check_random(
        || {
            let inbox = Arc::new(held());
            inbox.expect_replies(2);
            let waits = Arc::clone(&inbox);
            let waits = shuttle::thread::spawn(move || {
                waits.announce_parking();
                waits.park(0, Duration::from_secs(600));
                waits.take(0).expect("it was woken for this one")
            });
            inbox.deliver(at(1), b"another shard's", false);
            inbox.deliver(at(0), b"awaited", false);
            assert_eq!(waits.join().unwrap(), b"awaited");
        },
        100,
    );
}

#[test]
fn only_a_search_has_several_replies_and_no_more_bytes_than_it_may() {
    shuttle::check_random(
        || {
            let (inbox, search, most) = (held(), RequestAt { shard: 1, sequence: 0 }, 100);
            inbox.expect_replies(2);
            assert!(!inbox.admits_part(at(0), 1, most) && !inbox.admits_part(search, 1, most));
            inbox.begin_search(search);
            assert!(inbox.admits_part(search, 60, most) && inbox.admits_part(search, 40, most));
            assert!(!inbox.admits_part(search, 1, most), "they are too many");
            inbox.begin_search(search);
            assert!(inbox.admits_part(search, 60, most), "this is another one");
            // Its parts still come, and are dropped.
            inbox.abandon(search);
            assert!(inbox.admits_part(search, 40, most));
            assert!(!inbox.admits_part(search, 1, most) && !inbox.admits_part(at(0), 0, most));
            inbox.begin_search(at(0));
            inbox.end_search(search);
            assert!(inbox.admits_part(search, 0, most) && inbox.admits_part(at(0), 0, most));
            inbox.deliver(search, b"the last", false);
            assert!(!inbox.admits_part(search, 0, most), "it was answered");
            inbox.end_search(at(0));
            assert!(!inbox.admits_part(at(0), 0, most));
            // An abandoned request that is no search.
            inbox.abandon(at(2));
            assert!(!inbox.admits_part(at(2), 0, most));
        },
        1,
    );
}
