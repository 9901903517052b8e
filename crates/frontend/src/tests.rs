//! Connections of a protocol that is not RESP: lines of words. A number is answered at once,
//! other words are asked of their shard, which answers when the test says so. The first word of a
//! line may choose another reply; `listen` has none: `text` (a long one), `many` (keys in several turns), `held` (one
//! that waits until a sequence is durable).

use crate::ahead::{Next, parse_ahead};
use crate::stream::ByteStream;
use crate::{
    Answers, Connection, ConnectionCounts, Connections, Each, Executor, Here, Job, Jobs,
    KeyReplies, LongReply, ManyKeys, News, Order, OwnedReply, Parsed, ParsedRequest, Protocol,
    Question, READ_BYTES, ReplyForm, Responder, ShardAnswer, ShardPort, Skipped, Token, Waiting,
    What, group,
};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    BLOCKED_INPUT_BYTES, CLIENT_MEMORY_STEP, CONNECTION_KEYS_PER_TURN, CONNECTION_MAX_OUTPUT_BYTES,
    CONNECTION_PAUSE_PENDING, CONNECTION_REQUESTS_AHEAD, STALL_BYTES,
};
use remora_layout::slot::SlotTable;
use remora_protocol::Command;
use remora_protocol::message::Status;
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

enum Lines {}

#[derive(Default)]
struct Line {
    words: Vec<String>,
    /// Bytes that were looked at of a line that is not all there.
    scanned: usize,
}

impl ParsedRequest for Line {
    type Violation = &'static str;
    type Skip = ();

    fn parse(&mut self, input: &[u8]) -> Result<Parsed, &'static str> {
        let scanned = std::mem::take(self).scanned;
        let Some(end) = input[scanned..].iter().position(|byte| *byte == b'\n') else {
            self.scanned = input.len();
            return Ok(Parsed::Incomplete { need: input.len() + 1 });
        };
        let end = scanned + end;
        let line = std::str::from_utf8(&input[..end]).map_err(|_| "no text")?;
        self.words.extend(line.split_whitespace().map(str::to_owned));
        Ok(Parsed::Request { consumed: end + 1 })
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn shrink(&mut self) {}

    fn memory(&self) -> usize {
        0
    }

    fn words(&self) -> usize {
        self.words.len()
    }

    fn first_key<'a>(&'a self, _: &'a [u8]) -> &'a [u8] {
        self.words.first().map_or(&[], |word| word.as_bytes())
    }

    fn announced_words(input: &[u8]) -> usize {
        let line = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
        line.split(|byte| *byte == b' ').count()
    }

    fn peek_key(_: &[u8]) -> Option<&[u8]> {
        None
    }

    fn give_up(&self) -> Option<(usize, ())> {
        Some((0, ()))
    }

    fn pass((): &mut (), input: &[u8]) -> Result<Skipped, &'static str> {
        let end = input.iter().position(|byte| *byte == b'\n');
        Ok(Skipped { bytes: end.map_or(input.len(), |end| end + 1), is_whole: end.is_some() })
    }
}

#[derive(Clone, Copy)]
enum Form {
    /// All answers' numbers in a line.
    Numbers,
    /// The only answer's value, in pieces.
    Text,
}

/// Bytes of a piece of a long reply.
const PIECE: usize = 1 << 10;

/// A value, and the bytes of it that are written.
struct Text(Vec<u8>, usize);

impl LongReply for Text {
    type Dialect = ();

    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn write_piece(&mut self, out: &mut Vec<u8>, (): ()) -> bool {
        let piece = &self.0[self.1..self.0.len().min(self.1 + PIECE)];
        out.extend_from_slice(piece);
        self.1 += piece.len();
        self.1 == self.0.len()
    }

    fn go_on(&mut self, value: Vec<u8>) -> bool {
        *self = Self(value, 0);
        true
    }
}

impl ReplyForm for Form {
    type Dialect = ();
    type Long = Text;

    fn write(self, out: &mut Vec<u8>, (): (), answers: &[ShardAnswer<'_>]) {
        if let Some(refused) = answers.iter().find(|answer| answer.status != Status::Ok) {
            return out.extend_from_slice(format!("{:?}\n", refused.status).as_bytes());
        }
        let numbers: Vec<_> = answers.iter().map(|answer| answer.number.to_string()).collect();
        out.extend_from_slice(format!("{}\n", numbers.join(" ")).as_bytes());
    }

    fn is_long(self) -> bool {
        matches!(self, Self::Text)
    }

    fn is_written_at_once(self, _bytes: usize) -> bool {
        !self.is_long()
    }

    fn long_reply(self, (status, _): (Status, i64), value: &mut Option<Vec<u8>>) -> Option<Text> {
        (self.is_long() && status == Status::Ok).then(|| Text(value.take().unwrap_or_default(), 0))
    }
}

impl Protocol for Lines {
    type Request = Line;
    type Form = Form;
    type Client = ();

    const TOO_LONG: &'static str = "too long";

    fn dialect((): &()) {}

    fn write_error(out: &mut Vec<u8>, text: &str) {
        out.extend_from_slice(format!("error: {text}\n").as_bytes());
    }
}

/// Two shards; jobs wait until the test answers them.
#[derive(Default)]
struct Shards {
    jobs: Vec<(usize, Job)>,
    durable: u64,
    counts: ConnectionCounts,
}

impl ShardPort for Shards {
    fn home(&self) -> usize {
        0
    }

    fn now_ms(&self) -> u64 {
        0
    }

    fn slots(&self) -> &SlotTable {
        static TWO: SlotTable = SlotTable::even(2);
        &TWO
    }

    fn hash_seed(&self) -> u64 {
        7
    }

    fn hand(&mut self, shard: usize, job: Job) {
        self.jobs.push((shard, job));
    }

    fn is_free(&mut self, _: &Token) -> bool {
        true
    }

    fn execute<R>(
        &mut self,
        _: (&Command<'_>, KeyHash),
        _: (Token, bool),
        _: impl FnOnce(Here<'_>) -> R,
    ) -> Option<R> {
        None
    }

    fn durable_sequence(&self) -> u64 {
        self.durable
    }

    fn counts(&self) -> &ConnectionCounts {
        &self.counts
    }

    fn note_end(&self) {}
}

/// What a connection's buffers may hold in these tests.
const MOST_HELD_BYTES: usize = 8 << 20;

#[derive(Default)]
struct Asks {
    shards: Shards,
    /// What connections are told next.
    news: News,
    message: String,
    /// The request for which the connection waits is known to wait.
    has_parked: bool,
    /// Connections that were forgotten.
    forgotten: Vec<u64>,
    /// What the buffers of the connection held, one after the other.
    held: Vec<usize>,
}

impl Executor for Asks {
    type Protocol = Lines;
    type Port = Shards;
    type Held = usize;

    fn hold(
        &mut self,
        _: &Responder<Lines>,
        held: &mut usize,
        bytes: usize,
    ) -> Result<(), &'static str> {
        if bytes > MOST_HELD_BYTES {
            return Err("too much");
        }
        *held = bytes;
        self.held.push(bytes);
        Ok(())
    }

    fn port(&self) -> &Shards {
        &self.shards
    }

    fn port_mut(&mut self) -> &mut Shards {
        &mut self.shards
    }

    fn fetch_ahead(&mut self, _: &[(KeyHash, usize)]) {}

    fn request(
        &mut self,
        responder: &mut Responder<Lines>,
        (line, _): (&Line, &[u8]),
        _: Option<(KeyHash, usize)>,
    ) {
        if line.words == ["quit"] {
            responder.reply(|out, ()| out.extend_from_slice(b"bye\n"));
            return responder.quit();
        }
        if line.words == ["listen"] {
            return responder.take_pushes(true);
        }
        if let Ok(number) = line.words[0].parse::<i64>() {
            return responder
                .reply(|out, ()| out.extend_from_slice(format!("{number}\n").as_bytes()));
        }
        match &line.words[..] {
            [held, sequence] if held == "held" => {
                assert!(responder.may_hold(), "a test sends it alone");
                responder.reply(|out, ()| out.extend_from_slice(b"done\n"));
                return responder.hold(sequence.parse().expect("a sequence"));
            }
            [many, keys @ ..] if many == "many" => {
                let each = Each::Key(|key| Command::Get { key });
                let many = ManyKeys::new(each, Form::Numbers, keys.len(), Answers::default());
                return self.take_keys(responder, many, keys);
            }
            _ => {}
        }
        if line.words[0] == "block" {
            responder.block();
        }
        let form = if line.words[0] == "text" { Form::Text } else { Form::Numbers };
        let mut asked = Vec::new();
        for (part, word) in line.words.iter().enumerate() {
            let (hash, shard) = self.shards.route(responder.database, word.as_bytes());
            let token = responder.token(self.shards.home(), shard, part);
            asked.push(Question { shard, what: What::Read(group(hash)), bytes: word.len() });
            responder.ask(asked[part], self.shards.shards());
            self.shards.hand(shard, Job::execute(word.clone().into_bytes(), token));
        }
        responder.wait(Waiting::all(form, asked));
    }

    fn go_on_with_keys(
        &mut self,
        responder: &mut Responder<Lines>,
        many: ManyKeys<Form>,
        (line, _): (&Line, &[u8]),
    ) {
        self.take_keys(responder, many, &line.words[1..]);
    }

    fn take(&mut self, _: Token, reply: OwnedReply, _: bool) -> Option<OwnedReply> {
        Some(reply)
    }

    fn has_parked(&mut self, _: &Responder<Lines>) -> bool {
        self.has_parked
    }

    fn forget(&mut self, responder: &Responder<Lines>) {
        self.forgotten.push(responder.serial());
    }

    fn news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    fn push(&mut self, responder: &mut Responder<Lines>) {
        responder.push(|out, ()| out.extend_from_slice(self.message.as_bytes()));
    }
}

/// Keys that a turn of a request takes.
const KEYS_PER_TURN: usize = 4;

impl Asks {
    /// One turn of a request about these keys.
    fn take_keys(
        &mut self,
        responder: &mut Responder<Lines>,
        mut many: ManyKeys<Form>,
        keys: &[String],
    ) {
        let (mut jobs, first) = (Jobs::default(), many.keys() - many.left());
        let some = many.left().min(KEYS_PER_TURN);
        for (at, key) in keys.iter().enumerate().skip(first).take(some) {
            let (hash, shard) = self.shards.route(responder.database, key.as_bytes());
            let what = What::Read(group(hash));
            many.add(&mut jobs, (key.as_bytes(), hash, shard), (at as u32, what));
            responder.ask(Question { shard, what, bytes: 0 }, self.shards.shards());
        }
        many.took(some);
        let home = self.shards.home();
        let token = |shard, part| responder.token(home, shard, part);
        many.hand_out(jobs, token, |job, _| self.shards.hand(job.token.shard, job));
        if many.has_left() {
            responder.expect_large();
        }
        responder.wait_for_keys(many);
    }
}

/// The bytes that a client has sent, and those that it got.
#[derive(Clone, Default)]
struct Stream(Rc<RefCell<(Vec<u8>, Vec<u8>)>>, Rc<Cell<Peer>>);

/// What a client has closed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Peer {
    #[default]
    Open,
    /// Its own side.
    Half,
    /// Both, and the stream is broken.
    Gone,
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let input = &mut self.0.borrow_mut().0;
        let bytes = input.len().min(into.len());
        if bytes == 0 {
            return match self.1.get() {
                Peer::Open => Err(ErrorKind::WouldBlock.into()),
                Peer::Half => Ok(0),
                Peer::Gone => Err(ErrorKind::ConnectionReset.into()),
            };
        }
        into[..bytes].copy_from_slice(&input[..bytes]);
        input.drain(..bytes);
        Ok(bytes)
    }
}

impl ByteStream for Stream {}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn peer() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 1))
}

struct World {
    executor: Asks,
    connections: Connections<Stream, Lines, usize>,
    stream: Stream,
}

impl World {
    fn new() -> Self {
        let stream = Stream::default();
        let mut connections = Connections::numbered_from(0);
        connections.add(stream.clone(), Connection::new(peer(), 1));
        Self { executor: Asks::default(), connections, stream }
    }

    /// The client's replies after it has sent this.
    fn send(&mut self, lines: &str) -> String {
        self.stream.0.borrow_mut().0.extend_from_slice(lines.as_bytes());
        self.connections.stir(0);
        self.got()
    }

    fn got(&mut self) -> String {
        while !self.connections.are_idle() {
            self.connections.serve(&mut self.executor, drop);
        }
        String::from_utf8(std::mem::take(&mut self.stream.0.borrow_mut().1)).unwrap()
    }

    /// Connections that listen are told this.
    fn tell(&mut self, message: &str) -> String {
        self.executor.message = message.to_owned();
        self.executor.news.has_pushes = true;
        self.connections.tell(&mut self.executor, drop);
        self.got()
    }

    /// The client closes something; the kernel reports that as an event.
    fn close(&mut self, peer: Peer) -> String {
        self.stream.1.set(peer);
        self.connections.announce_end(0, peer == Peer::Gone);
        self.connections.stir(0);
        self.got()
    }

    /// The job at this place is answered by this number.
    fn answer(&mut self, at: usize, number: i64) -> String {
        self.reply(at, OwnedReply { number, ..OwnedReply::status(Status::Ok) })
    }

    /// The job at this place gets this reply.
    fn reply(&mut self, at: usize, reply: OwnedReply) -> String {
        let (_, job) = self.executor.port_mut().jobs.remove(at);
        self.connections.take_reply(&mut self.executor, job.token, reply);
        self.got()
    }

    /// The job about keys at this place is answered, each key by the number that is its name.
    fn answer_keys(&mut self, at: usize) -> String {
        let Order::ExecuteEach(batch) = &self.executor.port().jobs[at].1.order else {
            panic!("no job about keys");
        };
        let mut replies = KeyReplies::with_room(batch.keys());
        for at in 0..batch.keys() {
            let key = batch.command(at).key().unwrap_or_default();
            let number = std::str::from_utf8(key).unwrap().parse().unwrap();
            replies.push(Status::Ok, number, None);
        }
        self.reply(at, OwnedReply { value: Some(replies.take()), ..OwnedReply::status(Status::Ok) })
    }

    /// A value for a long reply, of which the shard may keep the rest.
    fn answer_text(&mut self, at: usize, value: Vec<u8>, has_more: bool) -> String {
        let reply = OwnedReply { value: Some(value), ..OwnedReply::status(Status::Ok) };
        self.reply(at, OwnedReply { has_more, ..reply })
    }
}

#[test]
fn replies_leave_in_the_order_of_requests_whatever_is_answered_first() {
    let mut world = World::new();
    assert_eq!(world.send("1\na b\n2\nc\n3\n"), "1\n");
    assert_eq!(world.executor.port().jobs.len(), 3);
    assert_eq!(world.answer(2, 30), "", "the request before it has no answer");
    assert_eq!(world.answer(1, 20), "");
    assert_eq!(world.answer(0, 10), "10 20\n2\n30\n3\n");
    assert_eq!(world.executor.port().counts.pending_bytes.get(), 0);
}

#[test]
fn a_client_for_which_much_waits_is_not_read_on() {
    let mut world = World::new();
    let more = CONNECTION_PAUSE_PENDING + 500;
    world.send(&"key\n".repeat(more));
    let asked = world.executor.port().jobs.len();
    assert!(asked > CONNECTION_PAUSE_PENDING / 2 && asked < more, "{asked} are asked");
    let mut got = String::new();
    while !world.executor.port().jobs.is_empty() {
        got += &world.answer(0, 1);
    }
    assert_eq!(got, "1\n".repeat(more));
}

#[test]
fn what_is_no_request_is_told_behind_the_replies_before_it() {
    let mut world = World::new();
    world.stream.0.borrow_mut().0.extend_from_slice(b"a\n\xff\n1\n");
    assert_eq!(world.send(""), "");
    assert_eq!(world.answer(0, 5), "5\nerror: no text\n");
    assert_eq!(world.connections.open(), 0);
    assert_eq!(world.executor.port().counts.protocol_errors.get(), 1);
}

/// Replies that wait behind another count as bytes that the client has not read.
#[test]
fn a_connection_that_is_cut_off_is_counted() {
    let (mut responder, counts) = (Responder::<Lines>::new(peer(), 1), ConnectionCounts::default());
    responder
        .wait(Waiting::all(Form::Numbers, [Question { shard: 0, what: What::Other, bytes: 1 }]));
    responder.reply(|out, ()| out.resize(CONNECTION_MAX_OUTPUT_BYTES, b'x'));
    assert!(responder.flush(&mut Stream::default(), &counts));
    responder.reply(|out, ()| out.push(b'x'));
    assert!(!responder.flush(&mut Stream::default(), &counts));
    assert_eq!(counts.output_cut_off.get(), 1);
}

#[test]
fn nothing_behind_the_last_request_is_executed() {
    let mut world = World::new();
    assert_eq!(world.send("1\nquit\n2\n"), "1\nbye\n");
    assert_eq!(world.connections.open(), 0);
}

/// Each of the requests before it may pause the connection, and later ones are parsed again then.
#[test]
fn a_request_of_many_words_is_not_parsed_behind_others() {
    let many = vec!["w"; CONNECTION_KEYS_PER_TURN + 1].join(" ") + "\n";
    for end in [&many[..], &many[..many.len() - 1]] {
        let input = "a b\n".repeat(CONNECTION_REQUESTS_AHEAD - 1) + end;
        let (mut last, mut ahead) = (Line::default(), Vec::<Next<Line>>::new());
        let parse = |last: &mut Line, ahead: &mut Vec<_>, from: usize| {
            parse_ahead(&input.as_bytes()[from..], last, ahead, CONNECTION_REQUESTS_AHEAD)
        };
        let (parsed, behind) = parse(&mut last, &mut ahead, 0);
        assert_eq!((parsed, behind), (CONNECTION_REQUESTS_AHEAD - 1, Ok(None)));
        assert!(ahead.iter().all(|next| next.request.words() == 2) && last.scanned == 0);
        // As the first request it is; if it is incomplete, the progress is kept.
        let from = ahead[parsed - 1].bytes.end;
        let (parsed, behind) = parse(&mut last, &mut ahead, from);
        if end == many {
            assert_eq!((parsed, ahead[0].request.words()), (1, CONNECTION_KEYS_PER_TURN + 1));
        } else {
            assert_eq!((parsed, behind), (0, Ok(Some(many.len()))));
            assert_eq!(last.scanned, end.len());
        }
    }
}

/// The shard sends the second half when the first one is written, and not before.
#[test]
fn a_long_reply_is_written_piece_by_piece_and_its_rest_is_asked_for() {
    let mut world = World::new();
    assert_eq!(world.send("text\nb\n7\n"), "");
    let (first, second) = (vec![b'x'; 3 * PIECE + 1], vec![b'y'; PIECE]);
    assert_eq!(world.answer(1, 2), "", "the long reply comes first");
    let got = world.answer_text(0, first.clone(), true);
    assert_eq!(got.as_bytes(), first);
    assert!(matches!(world.executor.port().jobs[..], [(_, Job { order: Order::Continue, .. })]));
    let got = world.answer_text(0, second.clone(), false);
    assert_eq!(got.as_bytes(), [&second[..], b"2\n7\n"].concat());
    assert_eq!(world.executor.port().counts.pending_bytes.get(), 0);
}

#[test]
fn a_shard_keeps_no_rest_for_a_connection_that_ends() {
    let mut world = World::new();
    world.send("text\n");
    world.answer_text(0, vec![b'x'; PIECE], true);
    // A reply without a rest ends what the client was told is longer.
    assert_eq!(world.reply(0, OwnedReply::status(Status::Outrun)), "");
    assert_eq!(world.connections.open(), 0);
    let port = world.executor.port();
    assert!(matches!(port.jobs[..], [(_, Job { order: Order::Abandon, .. })]));
    assert_eq!(port.counts.output_cut_off.get(), 1);
}

#[test]
fn many_keys_are_asked_in_turns_and_answered_in_their_order() {
    let mut world = World::new();
    let keys: Vec<String> = (0..3 * KEYS_PER_TURN + 1).map(|key| key.to_string()).collect();
    let keys = keys.join(" ");
    assert_eq!(world.send(&format!("many {keys}\n77\n")), "");
    let jobs = &world.executor.port().jobs;
    assert!(jobs.len() > 4 && jobs.iter().any(|(shard, _)| *shard != jobs[0].0));
    let mut got = String::new();
    while !world.executor.port().jobs.is_empty() {
        // The last ones first.
        assert_eq!(got, "");
        got = world.answer_keys(world.executor.port().jobs.len() - 1);
    }
    assert_eq!(got, format!("{keys}\n77\n"));
    assert_eq!(world.executor.port().counts.pending_bytes.get(), 0);
}

#[test]
fn many_keys_of_which_one_job_is_too_large_have_one_error() {
    let mut world = World::new();
    world.send("many 0 1 2 3\n");
    assert_eq!(world.executor.port().jobs.len(), 2);
    assert_eq!(world.reply(0, OwnedReply::status(Status::TooLarge)), "");
    assert_eq!(world.answer_keys(0), "TooLarge\n");
}

#[test]
fn a_request_of_which_no_more_comes_is_given_up_and_the_next_one_is_served() {
    let mut world = World::new();
    assert_eq!(world.send(&"x".repeat(STALL_BYTES)), "");
    assert!(!world.connections.wait_for_parts(), "so little is kept for each connection");
    assert_eq!(world.send("xxx"), "");
    assert!(world.connections.wait_for_parts());
    for _ in 0..2 {
        world.connections.count_idle(&mut world.executor, 2, drop);
        assert_eq!(world.got(), "");
    }
    world.connections.count_idle(&mut world.executor, 2, drop);
    let told = "error: the request was given up: no more of it came for 2 s; send it again\n";
    assert_eq!(world.got(), told);
    assert!(!world.connections.wait_for_parts());
    assert_eq!(world.executor.port().counts.requests_abandoned.get(), 1);
    // Its rest is skipped, in several reads.
    assert_eq!(world.send("still the same"), "");
    assert_eq!(world.send(" line\n5\n"), "5\n");
}

#[test]
fn what_buffers_hold_is_counted_in_steps_and_one_too_many_ends_the_connection() {
    let mut world = World::new();
    world.send(&" ".repeat(CLIENT_MEMORY_STEP - 1));
    assert!(world.executor.held.is_empty(), "so little is free");
    world.send(&" ".repeat(2 * CLIENT_MEMORY_STEP));
    assert_eq!(world.send("7\n"), "7\n");
    let held = std::mem::take(&mut world.executor.held);
    assert_eq!(held.last(), Some(&0));
    assert!(held.iter().all(|of| of % CLIENT_MEMORY_STEP == 0), "{held:?}");
    let most = held.iter().max().copied().unwrap_or_default();
    assert!((2 * CLIENT_MEMORY_STEP..=6 * CLIENT_MEMORY_STEP).contains(&most), "{held:?}");

    let mut world = World::new();
    let sent = world.send(&"1".repeat(MOST_HELD_BYTES + CLIENT_MEMORY_STEP));
    assert_eq!(sent, "error: too much\n");
    assert_eq!(world.connections.open(), 0);
}

#[test]
fn a_connection_that_may_not_hold_more_ends_also_where_something_waits_before_the_error() {
    // Keys of a request that are not all taken, and a request that waits for its keys.
    for begun in ["many 0 1 2 3 4 5 6 7 8 9\n", "block 1\n"] {
        let mut world = World::new();
        assert_eq!(world.send(begun), "");
        world.send(&"1".repeat(MOST_HELD_BYTES + CLIENT_MEMORY_STEP));
        while !world.executor.port().jobs.is_empty() && world.connections.open() > 0 {
            world.reply(0, OwnedReply::status(Status::Ok));
            world.send(&"1".repeat(MOST_HELD_BYTES));
        }
        assert_eq!(world.connections.open(), 0, "{begun}");
    }
}

#[test]
fn a_request_whose_bytes_still_come_is_not_given_up() {
    let mut world = World::new();
    world.send(&"1".repeat(STALL_BYTES + 1));
    for _ in 0..5 {
        world.connections.count_idle(&mut world.executor, 2, drop);
        world.connections.count_idle(&mut world.executor, 2, drop);
        assert_eq!(world.send(" "), "");
    }
    assert_eq!(world.executor.port().counts.requests_abandoned.get(), 0);
}

#[test]
fn replies_that_are_not_durable_are_held_with_those_behind_them() {
    let mut world = World::new();
    assert_eq!(world.send("held 5\n2\n"), "");
    assert_eq!(world.send("held 7\n"), "");
    assert_eq!(world.connections.held_replies(), 2);
    let durable = |world: &mut World, sequence| {
        world.executor.port_mut().durable = sequence;
        let may_release = world.connections.may_release(world.executor.port().durable);
        world.connections.serve(&mut world.executor, drop);
        (may_release, world.got())
    };
    assert_eq!(durable(&mut world, 4), (false, String::new()));
    assert_eq!(durable(&mut world, 5), (true, "done\n".to_owned()));
    assert_eq!(durable(&mut world, 9), (true, "2\ndone\n".to_owned()));
    assert_eq!(
        (
            world.connections.held_replies(),
            world.connections.may_release(world.executor.port().durable)
        ),
        (0, false)
    );
}

/// A reply that is held delays the answers behind it, and is not delayed by them.
#[test]
fn an_answer_of_a_shard_leaves_behind_a_held_reply() {
    let mut world = World::new();
    assert_eq!(world.send("held 3\nb\n"), "");
    assert_eq!(world.answer(0, 8), "");
    world.executor.port_mut().durable = 3;
    world.connections.serve(&mut world.executor, drop);
    assert_eq!(world.got(), "done\n8\n");
}

/// A client that has closed its side may still wait for its replies.
#[test]
fn a_client_that_has_closed_its_side_gets_the_replies_that_wait() {
    let mut world = World::new();
    assert_eq!(world.send("held 5\n1\n"), "");
    assert_eq!(world.close(Peer::Half), "");
    assert_eq!(world.connections.open(), 1);
    world.executor.port_mut().durable = 5;
    assert_eq!(world.got(), "", "nothing has served it yet");
    world.connections.serve(&mut world.executor, drop);
    assert_eq!((world.got(), world.connections.open()), ("done\n1\n".into(), 0));
}

/// Nothing says when a disk works again: a connection without a client would keep its place.
#[test]
fn a_client_that_is_gone_leaves_although_its_replies_wait() {
    let many = "key\n".repeat(CONNECTION_PAUSE_PENDING + 500);
    for requests in ["held 5\n", "key\n", "held 5\nkey\n1\n", &many] {
        for has_closed_before in [false, true] {
            let mut world = World::new();
            world.send(requests);
            if has_closed_before {
                world.close(Peer::Half);
            }
            assert_eq!(world.connections.open(), 1, "it waits");
            world.close(Peer::Gone);
            assert_eq!(world.connections.open(), 0, "{} bytes", requests.len());
            assert_eq!(world.executor.port().counts.pending_bytes.get(), 0);
        }
    }
}

#[test]
fn what_a_client_has_sent_before_it_went_is_executed() {
    let mut world = World::new();
    world.stream.0.borrow_mut().0.extend_from_slice(b"a\nb\n");
    world.close(Peer::Gone);
    assert_eq!((world.executor.port().jobs.len(), world.connections.open()), (2, 0));
}

#[test]
fn a_message_waits_for_replies_before_it_and_for_a_reply_that_is_being_written() {
    let mut world = World::new();
    assert_eq!(world.tell("lost\n"), "", "it does not listen");
    world.send("listen\n");
    assert_eq!(world.tell("one\n"), "one\n");
    assert_eq!(world.send("a\n1\n"), "");
    assert_eq!(world.tell("two\n") + &world.tell("three\n"), "");
    assert_eq!(world.answer(0, 7), "7\n1\ntwo\nthree\n");
    // Of a request with more keys than a turn takes, too, whose keys are taken meanwhile.
    let keys: Vec<_> = (0..3 * KEYS_PER_TURN).map(|at| at.to_string()).collect();
    assert_eq!(world.send(&format!("many {}\n", keys.join(" "))), "");
    assert_eq!(world.tell("four\n"), "");
    let mut got = String::new();
    while !world.executor.port().jobs.is_empty() {
        got += &world.answer_keys(0);
    }
    assert_eq!(got, format!("{}\nfour\n", keys.join(" ")));
    // The rest of a long reply is still to come.
    world.send("text\n");
    let begun = world.answer_text(0, vec![b'x'; 3], true);
    assert_eq!((begun + &world.tell("five\n")).as_str(), "xxx");
    assert_eq!(world.answer_text(0, vec![b'y'; 3], false), "yyyfive\n");
}

#[test]
fn a_connection_that_listens_stays_in_its_thread() {
    let mut world = World::new();
    world.connections.add(Stream::default(), Connection::new(peer(), 2));
    world.send("listen\n1\n");
    world.connections.stir(1);
    world.got();
    let (_, moved) =
        world.connections.take_out(world.executor.port(), 1.0).expect("the other one goes");
    assert_eq!(moved.responder().serial(), 2);
}

#[test]
fn connections_that_do_not_listen_end_with_what_they_have_sent_if_they_are_to() {
    let mut world = World::new();
    world.send("a\n");
    world.stream.0.borrow_mut().0.extend_from_slice(b"b\n");
    world.executor.news.ends_others = true;
    world.connections.tell(&mut world.executor, drop);
    assert_eq!(world.got(), "");
    assert_eq!(world.answer(0, 1) + &world.answer(0, 2), "1\n2\n");
    assert_eq!(world.connections.open(), 0);
}

#[test]
fn requests_behind_one_that_waits_are_read_and_executed_once_it_is_answered() {
    let mut world = World::new();
    assert_eq!(world.send("block\n5\n"), "");
    assert_eq!(world.send("6\n"), "");
    assert!(world.stream.0.borrow().0.is_empty(), "what comes is read");
    assert_eq!(world.executor.port().jobs.len(), 1, "and nothing of it is asked");
    assert_eq!(world.answer(0, 4), "4\n5\n6\n");
    assert_eq!(world.send("7\n"), "7\n");
}

#[test]
fn a_client_that_sends_on_while_it_waits_is_read_up_to_a_bound() {
    let mut world = World::new();
    assert_eq!(world.send("block\n"), "");
    let lines = "12345678\n".repeat(BLOCKED_INPUT_BYTES / 3);
    assert_eq!(world.send(&lines), "");
    let unread = world.stream.0.borrow().0.len();
    assert!(lines.len() - unread <= BLOCKED_INPUT_BYTES + READ_BYTES, "{unread}");
    assert_eq!(world.answer(0, 4), format!("4\n{lines}"));
}

#[test]
fn a_client_that_goes_while_it_waits_is_forgotten() {
    for (peer, has_parked) in [(Peer::Half, true), (Peer::Gone, true), (Peer::Gone, false)] {
        let mut world = World::new();
        world.executor.has_parked = has_parked;
        assert_eq!(world.send("block\n5\n"), "");
        assert_eq!(world.close(peer), "");
        assert_eq!(world.connections.open(), 0);
        assert_eq!(world.executor.forgotten, [1]);
    }
}

#[test]
fn a_client_that_has_closed_its_side_gets_what_is_there_at_once() {
    let mut world = World::new();
    assert_eq!(world.send("block\n5\n"), "");
    // Whether there is something is not known yet.
    assert_eq!(world.close(Peer::Half), "");
    assert_eq!(world.connections.open(), 1);
    assert_eq!(world.answer(0, 4), "4\n5\n");
    assert_eq!(world.connections.open(), 0);
}
