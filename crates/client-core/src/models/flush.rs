//! Messages handed over to a sending thread that does not send them.

use super::*;
use crate::session::Session;

/// One run, of one thread.
fn once(test: impl Fn(Over) + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    let run = move || [Over::Shm(1), Over::Network].into_iter().for_each(&test);
    Runner::new(RandomScheduler::new_from_seed(1, 1), config).run(run);
}

/// Sends while another thread has the role; that thread then leaves without a check, as one does
/// that finds the ring full.
fn hand_over(session: &mut Session, key: &[u8]) {
    let set = Arc::clone(&session.core.asker.endpoint.set);
    let combiner = lock(&set.lanes[0].sending);
    session.core.send_to(0, &Command::Exists { key }).expect("room to hand over");
    drop(combiner);
}

fn takes_frame(requests: &mut Receiver) -> bool {
    matches!(requests.poll(&mut Vec::new()), Poll::Frame(_))
}

#[test]
fn what_was_flushed_is_in_the_ring() {
    let _guard = lock_for_test();
    once(|over| {
        let fixture = Fixture::new(over);
        let mut session = fixture.client.session().expect("a free number");
        let (mut requests, _) = fixture.ends(0, 0);
        hand_over(&mut session, b"flushed");
        assert!(!takes_frame(&mut requests), "nobody has sent it");
        session.flush().expect("room");
        assert!(takes_frame(&mut requests));
        hand_over(&mut session, b"left");
        drop(session);
        assert!(takes_frame(&mut requests), "a session that leaves flushes");
    });
}

#[test]
fn without_room_a_flush_waits_and_then_fails() {
    let _guard = lock_for_test();
    once(|over| {
        let fixture = Fixture::new(over);
        let mut fills = fixture.client.session().expect("a free number");
        let mut client = fixture.client.clone();
        client.options.timeout = Duration::from_micros(300);
        let mut session = client.session().expect("a free number");
        let (mut requests, _) = fixture.ends(0, 0);
        let value = vec![0; 60_000];
        for _ in 0..RING_BYTES / 62_000 {
            fills.core.send_to(0, &Command::Append { key: b"k", value: &value }).expect("room");
        }
        let set = Arc::clone(&session.core.asker.endpoint.set);
        let combiner = lock(&set.lanes[0].sending);
        session.core.send_to(0, &Command::Append { key: b"k", value: &value }).expect("room");
        drop(combiner);
        assert_eq!(session.flush(), Err(Error::TimedOut));
        for _ in 0..RING_BYTES / 62_000 {
            assert!(takes_frame(&mut requests));
        }
        assert!(!takes_frame(&mut requests));
        let credit = requests.credit_due().expect("much was taken");
        fixture.to_client.store(set_offset(SHARDS, 0) / 8 + credit_word(0), credit);
        session.flush().expect("there is room");
        assert!(takes_frame(&mut requests));
    });
}
