//! Connections of a protocol that is not RESP: lines of words. A number is answered at once,
//! other words are asked of their shard, which answers when the test says so.

use crate::ahead::{Next, parse_ahead};
use crate::{
    Asked, Connection, Connections, Counts, Executor, Here, Job, LongReply, ManyKeys, OwnedReply,
    Parsed, ParsedRequest, Part, Protocol, ReplyForm, Responder, ShardPort, Skipped, Token,
    Waiting, What, group,
};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    CONNECTION_KEYS_PER_TURN, CONNECTION_MAX_OUTPUT_BYTES, CONNECTION_PAUSE_PENDING,
    CONNECTION_REQUESTS_AHEAD,
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
        None
    }

    fn pass((): &mut (), input: &[u8]) -> Result<Skipped, &'static str> {
        Ok(Skipped { bytes: input.len(), is_whole: true })
    }
}

/// All parts' numbers in a line.
#[derive(Clone, Copy)]
struct Numbers;

enum NoLongReply {}

impl LongReply for NoLongReply {
    type Dialect = ();

    fn bytes(&self) -> usize {
        match *self {}
    }

    fn write_piece(&mut self, _: &mut Vec<u8>, (): ()) -> bool {
        match *self {}
    }

    fn go_on(&mut self, _: Vec<u8>) -> bool {
        match *self {}
    }
}

impl ReplyForm for Numbers {
    type Dialect = ();
    type Long = NoLongReply;

    fn write(self, out: &mut Vec<u8>, (): (), parts: &[Part<'_>]) {
        let numbers: Vec<String> = parts.iter().map(|part| part.number.to_string()).collect();
        out.extend_from_slice(format!("{}\n", numbers.join(" ")).as_bytes());
    }

    fn is_long(self) -> bool {
        false
    }

    fn long_reply(self, _: (Status, i64), _: &mut Option<Vec<u8>>) -> Option<NoLongReply> {
        None
    }
}

impl Protocol for Lines {
    type Request = Line;
    type Form = Numbers;
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
    counts: Counts,
    durable: u64,
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

    fn counts(&self) -> &Counts {
        &self.counts
    }

    fn note_end(&self) {}
}

#[derive(Default)]
struct Asks {
    shards: Shards,
}

impl Executor for Asks {
    type Protocol = Lines;
    type Port = Shards;

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
        if let Some(sequence) = line.words[0].strip_prefix("hold-") {
            responder.reply(|out, ()| out.extend_from_slice(b"held\n"));
            return responder.hold(sequence.parse().unwrap());
        }
        if let Ok(number) = line.words[0].parse::<i64>() {
            return responder
                .reply(|out, ()| out.extend_from_slice(format!("{number}\n").as_bytes()));
        }
        let mut asked = Vec::new();
        for (part, word) in line.words.iter().enumerate() {
            let (hash, shard) = self.shards.route(responder.database, word.as_bytes());
            let token = responder.token(self.shards.home(), shard, part);
            asked.push(Asked { shard, what: What::Read(group(hash)), bytes: word.len() });
            responder.ask(asked[part], self.shards.shards());
            self.shards.hand(shard, Job::execute(word.clone().into_bytes(), token));
        }
        responder.wait(Waiting::all(Numbers, asked));
    }

    fn go_on_with_keys(
        &mut self,
        _: &mut Responder<Lines>,
        _: ManyKeys<Numbers>,
        _: (&Line, &[u8]),
    ) {
    }

    fn take(&mut self, _: Token, reply: OwnedReply, _: bool) -> Option<OwnedReply> {
        Some(reply)
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
    connections: Connections<Stream, Asks>,
    stream: Stream,
}

impl World {
    fn new() -> Self {
        let stream = Stream::default();
        let mut connections = Connections::new(Asks::default());
        connections.add(stream.clone(), Connection::new(peer(), 1));
        Self { connections, stream }
    }

    /// The client's replies after it has sent this.
    fn send(&mut self, lines: &str) -> String {
        self.stream.0.borrow_mut().0.extend_from_slice(lines.as_bytes());
        self.connections.stir(0);
        self.got()
    }

    fn got(&mut self) -> String {
        while !self.connections.are_idle() {
            self.connections.serve(drop);
        }
        String::from_utf8(std::mem::take(&mut self.stream.0.borrow_mut().1)).unwrap()
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
        let (_, job) = self.connections.port_mut().jobs.remove(at);
        let reply = OwnedReply { number, ..OwnedReply::status(Status::Ok) };
        self.connections.take_reply(job.token, reply);
        self.got()
    }
}

#[test]
fn replies_leave_in_the_order_of_requests_whatever_is_answered_first() {
    let mut world = World::new();
    assert_eq!(world.send("1\na b\n2\nc\n3\n"), "1\n");
    assert_eq!(world.connections.port().jobs.len(), 3);
    assert_eq!(world.answer(2, 30), "", "the request before it has no answer");
    assert_eq!(world.answer(1, 20), "");
    assert_eq!(world.answer(0, 10), "10 20\n2\n30\n3\n");
    assert_eq!(world.connections.port().counts.pending_bytes.get(), 0);
}

#[test]
fn a_client_for_which_much_waits_is_not_read_on() {
    let mut world = World::new();
    let more = CONNECTION_PAUSE_PENDING + 500;
    world.send(&"key\n".repeat(more));
    let asked = world.connections.port().jobs.len();
    assert!(asked > CONNECTION_PAUSE_PENDING / 2 && asked < more, "{asked} are asked");
    let mut got = String::new();
    while !world.connections.port().jobs.is_empty() {
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
    assert_eq!(world.connections.port().counts.protocol_errors.get(), 1);
}

/// Replies that wait behind another count as bytes that the client has not read.
#[test]
fn a_connection_that_is_cut_off_is_counted() {
    let (mut responder, counts) = (Responder::<Lines>::new(peer(), 1), Counts::default());
    responder.wait(Waiting::all(Numbers, [Asked { shard: 0, what: What::Other, bytes: 1 }]));
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

/// A client that has closed its side may still wait for its replies.
#[test]
fn a_client_that_has_closed_its_side_gets_the_replies_that_wait() {
    let mut world = World::new();
    assert_eq!(world.send("hold-5\n1\n"), "");
    assert_eq!(world.close(Peer::Half), "");
    assert_eq!(world.connections.open(), 1);
    world.connections.port_mut().durable = 5;
    assert_eq!(world.got(), "", "nothing has served it yet");
    world.connections.serve(drop);
    assert_eq!((world.got(), world.connections.open()), ("held\n1\n".into(), 0));
}

/// Nothing says when a disk works again: a connection without a client would keep its place.
#[test]
fn a_client_that_is_gone_leaves_although_its_replies_wait() {
    let many = "key\n".repeat(CONNECTION_PAUSE_PENDING + 500);
    for requests in ["hold-5\n", "key\n", "hold-5\nkey\n1\n", &many] {
        for has_closed_before in [false, true] {
            let mut world = World::new();
            world.send(requests);
            if has_closed_before {
                world.close(Peer::Half);
            }
            assert_eq!(world.connections.open(), 1, "it waits");
            world.close(Peer::Gone);
            assert_eq!(world.connections.open(), 0, "{} bytes", requests.len());
            assert_eq!(world.connections.port().counts.pending_bytes.get(), 0);
        }
    }
}

#[test]
fn what_a_client_has_sent_before_it_went_is_executed() {
    let mut world = World::new();
    world.stream.0.borrow_mut().0.extend_from_slice(b"a\nb\n");
    world.close(Peer::Gone);
    assert_eq!((world.connections.port().jobs.len(), world.connections.open()), (2, 0));
}
