//! A target in another process, on this host or another one, and the control
//! connection that carries its orders.
//!
//! ```text
//! initiator's process                        target's process
//! command, bed, offset, bytes: 4 x u64   ->
//! STORE: the bytes                       ->
//!                                       <-   bytes: u64, then the bytes
//! ```
//! All numbers are little endian. NEW makes a bed of `bytes`: its stream is the
//! next connection to the same port from the same host, and its answer comes
//! once its halves are connected. One port thus carries all.
//!
//! This is for tests, and without any password. It is bounded nevertheless: the
//! target refuses by ending, and it ends when its initiator does, or says nothing
//! for [`SILENCE`].

use super::{Backend, Bed, MAX_TOLD, Peer, Target};
use remora_arena::Words;
use remora_fabric::conformance::{self, DEADLINE};
use remora_layout::limits::MAX_READ_BYTES;
use rustix::event::{PollFd, PollFlags, poll};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

const NEW: u64 = 1;
const STORE: u64 = 2;
const LOAD: u64 = 3;
const WITHDRAW: u64 = 4;
const LOSE: u64 = 5;
const IMMEDIATES: u64 = 6;
const ECHO: u64 = 7;
const DROP: u64 = 8;

/// Longest region of a bed: the longest READ, and a word beyond it.
const MAX_REGION_BYTES: u64 = MAX_READ_BYTES as u64 + 8;
/// Beds at a time: the body has four at most.
const MAX_BEDS: usize = 8;
/// An initiator that says nothing for so long has gone: its links wait for at
/// most [`DEADLINE`] between two commands.
const SILENCE: Duration = Duration::from_secs(2 * DEADLINE.as_secs());

/// Where the target of another process listens, for the initiator.
const TARGET: &str = "REMORA_TEST_TARGET";
/// Where to listen, for the process that is the target.
const LISTEN: &str = "REMORA_TEST_LISTEN";
/// What a target prints when it listens; its address follows.
const LISTENS: &str = "conformance: the target listens at ";

type Refusal = String;

/// Runs `body`, whose beds have their targets at another process: this test,
/// whose name is `test`, is also that process, as the environment says. With
/// neither variable it starts the other one itself, on this host.
pub fn with_target_elsewhere<B: Backend>(test: &str, body: impl FnOnce()) {
    if let Ok(listen) = std::env::var(LISTEN) {
        let listener = TcpListener::bind(&listen)
            .unwrap_or_else(|error| panic!("the target cannot listen at {listen}: {error}"));
        // The line break ends what the test harness has begun.
        println!("\n{LISTENS}{}", listener.local_addr().unwrap());
        serve::<B>(&listener).unwrap();
        return;
    }
    let other = std::env::var(TARGET).is_err().then(|| Process::start(test));
    let address = match &other {
        Some(process) => process.address.clone(),
        None => std::env::var(TARGET).unwrap(),
    };
    let control = Control::dial(&address)
        .unwrap_or_else(|error| panic!("the target at {address} cannot be reached: {error}"));
    CONTROL.set(Some(Rc::new(RefCell::new(control))));
    body();
    CONTROL.set(None);
    if let Some(process) = other {
        process.end();
    }
}

thread_local! {
    /// The control connection of this thread's beds.
    static CONTROL: RefCell<Option<Rc<RefCell<Control>>>> = const { RefCell::new(None) };
}

/// Runs the whole body between the two, and the game of ping-pong.
pub fn run<B: Backend>(rounds: u64) {
    conformance::run::<Bed<B, Remote>>();
    assert_eq!(conformance::wake_ups_are_not_lost::<Bed<B, Remote>>(rounds), 0);
    println!("conformance: no wake-up is lost in {rounds} rounds");
}

/// This test binary once more, as the target.
struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
}

impl Process {
    fn start(test: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(LISTEN, "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut process = Self { child, out, address: String::new() };
        let lines = process.out.by_ref().lines().map(Result::unwrap);
        let said = lines.filter_map(|line| line.strip_prefix(LISTENS).map(str::to_owned)).next();
        process.address = said.expect("the target says where it listens");
        process
    }

    /// Its control connection has ended: so does it.
    fn end(mut self) {
        std::io::copy(&mut self.out, &mut std::io::sink()).unwrap();
        assert!(self.child.wait().unwrap().success(), "the target failed");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended, and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The initiator's end of the control connection.
struct Control {
    stream: TcpStream,
    target: SocketAddr,
    beds: u64,
}

impl Control {
    fn dial(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(Self { target: stream.peer_addr()?, stream, beds: 0 })
    }

    fn send(&mut self, command: [u64; 4], content: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(&command.map(u64::to_le_bytes).concat())?;
        self.stream.write_all(content)
    }

    /// The answer to the last command: at most so many bytes.
    fn answer(&mut self, most: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = [0; 8];
        self.stream.read_exact(&mut bytes)?;
        let bytes = u64::from_le_bytes(bytes);
        if bytes > most as u64 {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "an answer is too long"));
        }
        let mut content = vec![0; bytes as usize];
        self.stream.read_exact(&mut content)?;
        Ok(content)
    }
}

/// A target at the other end of the control connection.
pub struct Remote {
    control: Rc<RefCell<Control>>,
    bed: u64,
}

impl Remote {
    /// Tells the target to do something; its answer of at most `most` bytes.
    fn tell(&self, what: u64, at: usize, bytes: usize, content: &[u8], most: usize) -> Vec<u8> {
        let mut control = self.control.borrow_mut();
        let command = [what, self.bed, at as u64, bytes as u64];
        let answer = control.send(command, content).and_then(|()| control.answer(most));
        answer.unwrap_or_else(|error| panic!("the target does not answer: {error}"))
    }
}

impl<B: Backend> Peer<B> for Remote {
    fn new(region_bytes: usize, local: &Words) -> (Self, B::Link) {
        let control = CONTROL.with_borrow(Clone::clone).expect("there is a target");
        let mut open = control.borrow_mut();
        open.beds += 1;
        let bed = open.beds;
        open.send([NEW, bed, 0, region_bytes as u64], &[]).unwrap();
        let stream = TcpStream::connect(open.target).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let link = B::initiator(stream, region_bytes, local);
        open.answer(0).expect("the target has its half");
        drop(open);
        (Self { control, bed }, link)
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        self.tell(STORE, offset, bytes.len(), bytes, 0);
    }

    fn load(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let content = self.tell(LOAD, offset, bytes, &[], bytes);
        assert_eq!(content.len(), bytes, "the target loads what it is asked for");
        content
    }

    fn withdraw(&mut self) {
        self.tell(WITHDRAW, 0, 0, &[], 0);
    }

    fn lose(&mut self) {
        self.tell(LOSE, 0, 0, &[], 0);
    }

    fn immediates(&mut self) -> Vec<(u32, u64)> {
        let told = self.tell(IMMEDIATES, 0, 0, &[], 16 * MAX_TOLD);
        let numbers: Vec<u64> =
            told.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        numbers.chunks_exact(2).map(|pair| (pair[0] as u32, pair[1])).collect()
    }

    fn echo(&mut self) {
        self.tell(ECHO, 0, 0, &[], 0);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // After a panic the end of the connection tells the target.
        if !std::thread::panicking() {
            self.tell(DROP, 0, 0, &[], 0);
        }
    }
}

/// Does what one initiator says, until it ends.
///
/// # Errors
/// No initiator came, or it asked for what is not allowed.
pub fn serve<B: Backend>(listener: &TcpListener) -> Result<(), Refusal> {
    listener.set_nonblocking(true).unwrap();
    let (mut control, initiator) = accept(listener, None)?;
    control.set_nodelay(true).unwrap();
    control.set_read_timeout(Some(SILENCE)).unwrap();
    let mut beds: HashMap<u64, Target<B>> = HashMap::new();
    loop {
        let mut command = [[0; 8]; 4];
        if control.read_exact(command.as_flattened_mut()).is_err() {
            return Ok(());
        }
        let [what, bed, offset, bytes] = command.map(u64::from_le_bytes);
        let answer = match what {
            NEW if bytes > MAX_REGION_BYTES => {
                Err(format!("a region of {bytes} bytes is too long"))
            }
            NEW if beds.len() == MAX_BEDS => Err(format!("more than {MAX_BEDS} beds at a time")),
            NEW => {
                let (stream, _) = accept(listener, Some(initiator))?;
                beds.insert(bed, Target::on(stream, bytes as usize));
                Ok(Vec::new())
            }
            DROP => {
                beds.remove(&bed);
                Ok(Vec::new())
            }
            _ => match beds.get_mut(&bed) {
                Some(target) => obey(target, &mut control, what, offset, bytes),
                None => Err(format!("there is no bed {bed}")),
            },
        }?;
        let answer = [&(answer.len() as u64).to_le_bytes()[..], &answer].concat();
        if control.write_all(&answer).is_err() {
            return Ok(());
        }
    }
}

/// Does one thing with a bed; the answer.
fn obey<B: Backend>(
    target: &mut Target<B>,
    control: &mut TcpStream,
    what: u64,
    offset: u64,
    bytes: u64,
) -> Result<Vec<u8>, Refusal> {
    let length = target.shared.readable.bytes() as u64;
    if offset.checked_add(bytes).is_none_or(|end| end > length) || !offset.is_multiple_of(8) {
        return Err(format!("{bytes} bytes at {offset} do not lie in a region of {length}"));
    }
    let (offset, bytes) = (offset as usize, bytes as usize);
    match what {
        STORE => {
            let mut content = vec![0; bytes];
            // It has ended: the next command is not there either.
            if control.read_exact(&mut content).is_ok() {
                target.store(offset, &content);
            }
        }
        LOAD => return Ok(target.load(offset, bytes)),
        WITHDRAW => target.withdraw(),
        LOSE => target.lose(),
        IMMEDIATES => {
            let told = target.immediates().into_iter();
            return Ok(told
                .flat_map(|(imm, word)| [imm as u64, word])
                .flat_map(u64::to_le_bytes)
                .collect());
        }
        ECHO => target.echo(),
        _ => return Err(format!("there is no command {what}")),
    }
    Ok(Vec::new())
}

/// The next connection; from this host, if one is named.
fn accept(listener: &TcpListener, from: Option<IpAddr>) -> Result<(TcpStream, IpAddr), Refusal> {
    let nap = DEADLINE.try_into().unwrap();
    loop {
        match listener.accept() {
            Ok((stream, peer)) if from.is_none_or(|from| from == peer.ip()) => {
                stream.set_nonblocking(false).unwrap();
                return Ok((stream, peer.ip()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&nap)) == Ok(0) {
                    return Err(format!("no initiator came within {} s", DEADLINE.as_secs()));
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
