//! Counts the writes, receives and frames that leave together over TCP. The test drives both ends,
//! so that each count is exact.

use remora_arena::{AsleepWord, Mapping, Words};
use remora_fabric::shm::Sleeper;
use remora_fabric::tcp::{Connection, Exposed, Pumping, ReceiveBuffer, State, TcpLink, Traffic};
use remora_fabric::{Link, RemoteAddress, Work};
use remora_layout::limits::{
    TCP_FRAMES_PER_TURN, TCP_PIECE_BYTES, TCP_RECEIVE_BYTES, UNSIGNALLED_WRITES,
};
use remora_layout::wire::WIRE_HEADER_BYTES;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;

/// The regions that the target grants, and the initiator's operations.
const READABLE: u32 = 5;
const MAILBOX: u32 = 6;
const LOCAL: u32 = 0;

struct Ends {
    near: Arc<Connection>,
    far: Arc<Connection>,
    buffer: ReceiveBuffer,
    told: Vec<u32>,
}

fn ends() -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = Connection::new(listener.accept().unwrap().0, Pumping::ByAgent).unwrap();
    let near = Connection::new(near, Pumping::ByLinks).unwrap();
    let memory = || Words::new(Mapping::heap(2 * TCP_PIECE_BYTES));
    far.expose(READABLE, Exposed::Readable(memory().view()));
    far.expose(MAILBOX, Exposed::Writable(memory()));
    near.expose(LOCAL, Exposed::Writable(memory()));
    Ends { near, far, buffer: ReceiveBuffer::default(), told: Vec::new() }
}

impl Ends {
    /// Turns of the target until it has taken this many frames in all.
    fn serve(&mut self, frames: u64) {
        while self.far.traffic().frames < frames {
            let told = &mut |imm| self.told.push(imm);
            let progress = self.far.serve(&mut self.buffer, false, told);
            assert!(matches!(progress.state, State::Idle | State::More));
        }
    }
}

fn write(id: u64, region: u32, imm: Option<u32>) -> Work<'static> {
    Work::Write { id, to: RemoteAddress { region, offset: id * 8 }, bytes: &[7; 8], imm }
}

fn read(id: u64, bytes: usize) -> Work<'static> {
    let from = RemoteAddress { region: READABLE, offset: 0 };
    Work::Read { id, from, into: 0, bytes }
}

fn completed(link: &mut TcpLink) -> usize {
    std::iter::from_fn(|| link.poll()).inspect(|done| assert_eq!(done.result, Ok(()))).count()
}

#[test]
fn what_is_held_and_what_others_post_leaves_in_one_write() {
    let mut ends = ends();
    let [mut first, mut second] = [(); 2].map(|()| TcpLink::new(Arc::clone(&ends.near)));
    first.hold();
    for id in 0..31 {
        first.post(&[write(id, MAILBOX, Some(id as u32))]);
    }
    assert_eq!(ends.near.traffic(), Traffic::default(), "it is held");
    second.post(&[write(31, MAILBOX, Some(31))]);
    let bytes = 32 * (WIRE_HEADER_BYTES as u64 + 8);
    let sent = Traffic { writes: 1, written_bytes: bytes, ..Traffic::default() };
    assert_eq!(ends.near.traffic(), sent, "another link's post takes it along");
    first.release();
    assert_eq!(ends.near.traffic().writes, 1, "nothing is left");
    ends.serve(32);
    let seen = ends.far.traffic();
    assert_eq!((seen.receives, seen.frames, seen.received_bytes), (1, 32, bytes));
    assert_eq!(seen.writes, 1, "one answer for all");
    assert_eq!(ends.told, (0..32).collect::<Vec<_>>(), "in order, after their bytes");
    while completed(&mut first) == 0 {}
    assert_eq!(completed(&mut second), 1);
}

#[test]
fn reads_of_a_batch_are_answered_by_one_write_up_to_a_bound() {
    let mut ends = ends();
    let mut link = TcpLink::new(Arc::clone(&ends.near));
    link.reserve_landing(TCP_PIECE_BYTES);
    let batch: Vec<Work<'_>> = (0..100).map(|id| read(id, 640)).collect();
    link.post(&batch);
    ends.serve(100);
    assert_eq!((ends.near.traffic().writes, ends.far.traffic().writes), (1, 1));
    let mut left = 100;
    while left > 0 {
        left -= completed(&mut link);
    }
    // A batch is no longer than a piece: no READ waits for more.
    link.post(&[read(0, TCP_PIECE_BYTES), read(1, 8), read(2, TCP_PIECE_BYTES)]);
    ends.serve(103);
    assert!(ends.far.traffic().writes >= 3, "{:?}", ends.far.traffic());
}

/// A thread with other work executes a bounded part of the bytes that arrived together.
#[test]
fn a_turn_is_bounded_in_frames_and_in_bytes_of_reads() {
    let mut ends = ends();
    let mut link = TcpLink::new(Arc::clone(&ends.near));
    link.reserve_landing(3 * TCP_PIECE_BYTES);
    let small = 2 * TCP_FRAMES_PER_TURN + 10;
    let mut batch: Vec<Work<'_>> = (0..small as u64).map(|id| read(id, 8)).collect();
    // Three at once stay within the window.
    batch.extend((0..3).map(|id| read(id, TCP_PIECE_BYTES)));
    assert!(batch.len() * WIRE_HEADER_BYTES < TCP_RECEIVE_BYTES, "one receive takes all");
    link.post(&batch);
    let (mut turns, mut left) = (Vec::new(), batch.len());
    while turns.iter().map(|(frames, _)| frames).sum::<usize>() < batch.len() {
        let progress = ends.far.serve(&mut ends.buffer, false, &mut |_| ());
        turns.push((progress.frames, progress.read_bytes));
        // The last one received nothing: more may have arrived meanwhile.
        assert_eq!(progress.state, State::More);
        // It takes all bytes that were sent, or the socket is full.
        left -= completed(&mut link);
    }
    let full = TCP_FRAMES_PER_TURN;
    let (long, piece) = (10 * 8 + TCP_PIECE_BYTES, TCP_PIECE_BYTES);
    assert_eq!(turns, [(full, 8 * full), (full, 8 * full), (11, long), (1, piece), (1, piece)]);
    assert_eq!(ends.far.traffic().receives, 1, "what is left is not received again");
    assert_eq!(ends.far.serve(&mut ends.buffer, false, &mut |_| ()).state, State::Idle);
    while left > 0 {
        ends.far.serve(&mut ends.buffer, false, &mut |_| ());
        left -= completed(&mut link);
    }
}

/// Bytes arrive, and raise their only event, while frames of an earlier receive wait for the next
/// turn. That turn receives nothing, whether it follows the event or not: the connection is not
/// idle after it, because no further event would come for these bytes.
#[test]
fn bytes_that_arrive_while_a_turn_is_suspended_are_received() {
    let mut ends = ends();
    let mut sleeper = Sleeper::new(AsleepWord::new(Words::new(Mapping::heap(64)), 0)).unwrap();
    sleeper.watch_stream(ends.far.as_fd(), 0).unwrap();
    let mut link = TcpLink::new(Arc::clone(&ends.near));
    let frames = TCP_FRAMES_PER_TURN as u64 + 1;
    let batch: Vec<Work<'_>> = (0..frames).map(|id| write(id, MAILBOX, None)).collect();
    link.post(&batch);
    let told = &mut |_| {};
    let unread = |ends: &Ends| rustix::io::ioctl_fionread(&*ends.far).unwrap();
    while unread(&ends) < frames * (WIRE_HEADER_BYTES as u64 + 8) {
        std::thread::yield_now();
    }
    assert_eq!(ends.far.serve(&mut ends.buffer, false, told).state, State::More, "one is left");
    link.post(&[write(0, MAILBOX, None)]);
    while unread(&ends) == 0 {
        std::thread::yield_now();
    }
    sleeper.look();
    assert!(std::iter::from_fn(|| sleeper.pop_stream_event()).count() > 0);
    // The event and the frame that is left are one reason for a turn, as for an agent.
    while ends.far.serve(&mut ends.buffer, false, told).state == State::More {}
    assert_eq!((unread(&ends), ends.far.traffic().frames), (0, frames + 1));
}

/// The completion of an unsignalled WRITE leaves with the next frame, or once there are many of
/// them.
#[test]
fn unsignalled_writes_are_told_with_what_goes_out_next() {
    let mut ends = ends();
    let mut link = TcpLink::new(Arc::clone(&ends.near)).unsignalled();
    let mut back = TcpLink::new(Arc::clone(&ends.far)).unsignalled();
    for id in 0..10 {
        link.post(&[write(id, MAILBOX, None)]);
    }
    ends.serve(10);
    assert_eq!(ends.far.traffic().writes, 0, "nobody waits for it");
    back.post(&[write(0, LOCAL, None)]);
    assert_eq!(ends.far.traffic().writes, 1);
    let mut done = 0;
    while done < 10 {
        done += completed(&mut link);
    }
    assert_eq!(done, 10);
    // The first of them also carries the completion of the operation that this end has executed.
    for id in 0..UNSIGNALLED_WRITES {
        assert_eq!(ends.far.traffic().writes, 1, "after {id}");
        link.post(&[write(id, MAILBOX, None)]);
        ends.serve(10 + 1 + 1 + id);
    }
    assert_eq!(ends.far.traffic().writes, 2, "many are told of");
    // A link that waits for its WRITEs receives their completions at once, and those of other
    // links.
    link.post(&[write(0, MAILBOX, None)]);
    TcpLink::new(Arc::clone(&ends.near)).post(&[write(1, MAILBOX, None)]);
    ends.serve(10 + 1 + UNSIGNALLED_WRITES + 2);
    assert_eq!(ends.far.traffic().writes, 3);
    let mut done = 0;
    while done < UNSIGNALLED_WRITES as usize + 1 {
        done += completed(&mut link);
    }
}

/// A receive that does not fill the buffer has emptied the socket. The end that the peer sent
/// afterwards is found after the event that reports it.
#[test]
fn a_short_receive_empties_the_socket_but_for_the_peers_end() {
    let mut ends = ends();
    let mut link = TcpLink::new(Arc::clone(&ends.near));
    for id in 0..100 {
        link.post(&[write(id, MAILBOX, None)]);
    }
    ends.near.close();
    let told = &mut |_| {};
    let unread = || rustix::io::ioctl_fionread(&*ends.far).unwrap();
    while unread() < 100 * (WIRE_HEADER_BYTES as u64 + 8) {
        std::thread::yield_now();
    }
    assert_eq!(ends.far.serve(&mut ends.buffer, false, told).state, State::Idle);
    assert_eq!((unread(), ends.far.traffic().frames), (0, 100));
    let ended = ends.far.serve(&mut ends.buffer, true, told).state;
    assert!(!matches!(ended, State::Idle | State::More), "{ended:?}");
}
