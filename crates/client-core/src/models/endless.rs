//! A server whose search never ends.

use super::*;
use remora_protocol::message::{HAS_VALUE, MORE};
use remora_protocol::tree::TreeCommand;
use shuttle::sync::atomic::AtomicBool;

/// Long frames: few steps fill a ring.
static PART: [u8; 20_000] = [0; 20_000];

/// Answers request `id` of shard 0 by one part after the other, as fast as they are taken.
fn answer_without_end(fixture: &Fixture, id: u32, is_over: &AtomicBool) {
    let mut link = ShmLink::new(None);
    link.add_writable(0, fixture.to_client.clone());
    let (_, mut sender) = fixture.ends(0, 0);
    let mut part = ReplyHeader::new_zeroed();
    part.status = Status::Ok as u8;
    part.flags = HAS_VALUE | MORE;
    part.id.set(id);
    part.incarnation.set(INCARNATION);
    part.value_bytes.set(PART.len() as u32);
    while !is_over.load(Ordering::SeqCst) {
        let credit = set_offset(SHARDS, 0) / 8 + credit_word(0);
        sender.take_credit(fixture.to_server.load_acquire(credit)).expect("an honest client");
        if sender.has_room(part.as_bytes().len() + PART.len()) {
            sender.send(&mut link, &[part.as_bytes(), &PART]).expect("room");
            fixture.wake(0);
        }
        thread::yield_now();
    }
}

fn times_out_beside_a_search_that_never_ends(over: Over, wake: Wake) {
    let mut fixture = Fixture::new(over);
    let connection = Arc::get_mut(&mut fixture.client.connection).expect("there is no session");
    connection.search_bytes = u64::MAX;
    let mut searches = fixture.client.session().expect("a free number");
    let mut client = fixture.client.clone();
    client.options.wake = wake;
    client.options.timeout = Duration::from_micros(300);
    let mut asks = client.session().expect("a free number");
    let window = remora_layout::rect::Rect { min_x: 0.0, max_x: 1.0, min_y: 0.0, max_y: 1.0 };
    let search = TreeCommand::Search { window, predicate: Default::default() };
    let request = search.checked().map(TreeCommand::request).expect("a rectangle");
    searches.core.send_to(0, &Command::Of { key: b"tree", request }).expect("room");
    let id = searches.core.asker.queues[0].in_flight[0].id.to_number();
    let is_over = Arc::new(AtomicBool::new(false));
    let server = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || answer_without_end(&fixture, id, &is_over))
    };
    let command = Command::Exists { key: b"key" };
    let ticket = asks.core.send_to(0, &command).expect("room");
    let answer = asks.core.collect(0, ticket).map(|answer| answer.number);
    assert!(matches!(answer, Err(Error::TimedOut | Error::ServerSilent)), "{answer:?}");
    is_over.store(true, Ordering::SeqCst);
    server.join().expect("it ended");
}

/// It takes what the search gets out of the ring for the other thread, and looks at its
/// own time.
#[test]
fn a_search_that_never_ends_holds_up_nobody_else() {
    let _guard = lock_for_test();
    let wakes = [Wake::Poll, Wake::Hybrid, Wake::Event];
    for (over, wake) in wakes.into_iter().flat_map(|w| [(Over::Shm(1), w), (Over::Network, w)]) {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        config.max_steps = MaxSteps::FailAfter(20_000);
        let once = move || times_out_beside_a_search_that_never_ends(over, wake);
        Runner::new(RandomScheduler::new_from_seed(1, 50), config).run(once);
    }
}
