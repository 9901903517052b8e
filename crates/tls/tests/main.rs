//! Two ends of a session, over sockets that take and give as little as they like.

mod bytes;
mod handshakes;

use remora_testing::Random;
use remora_tls::{Progress, TlsError, TlsSession};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::rc::Rc;

/// What is under way in one direction.
#[derive(Default)]
struct Wire {
    bytes: VecDeque<u8>,
    has_ended: bool,
    /// All that has passed.
    passed: Vec<u8>,
}

/// A socket that never blocks. It takes `most` bytes at a time, or fewer, and sometimes none.
struct Socket {
    incoming: Rc<RefCell<Wire>>,
    outgoing: Rc<RefCell<Wire>>,
    random: Random,
    /// Bytes that it holds for the peer.
    room: usize,
    is_moody: bool,
}

fn sockets(seed: u64, room: usize, is_moody: bool) -> (Socket, Socket) {
    let (one, other) = (Rc::default(), Rc::default());
    let socket = |incoming: &Rc<_>, outgoing: &Rc<_>, seed| Socket {
        incoming: Rc::clone(incoming),
        outgoing: Rc::clone(outgoing),
        random: Random::new(seed),
        room,
        is_moody,
    };
    (socket(&one, &other, seed), socket(&other, &one, seed + 1))
}

impl Socket {
    fn part(&mut self, most: usize) -> Result<usize> {
        if self.is_moody && self.random.one_in(4) {
            let kind = self.random.pick(&[ErrorKind::WouldBlock, ErrorKind::Interrupted]);
            return Err(kind.into());
        }
        Ok(if self.is_moody { self.random.within(1..most + 1) } else { most })
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let (there, has_ended) = {
            let wire = self.incoming.borrow();
            (wire.bytes.len(), wire.has_ended)
        };
        if there == 0 {
            return if has_ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        // As a kernel: a read takes all that is there, if there is room.
        let some = there.min(into.len());
        if self.is_moody && self.random.one_in(4) {
            return Err(ErrorKind::Interrupted.into());
        }
        for byte in &mut into[..some] {
            *byte = self.incoming.borrow_mut().bytes.pop_front().unwrap();
        }
        Ok(some)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let used = self.outgoing.borrow().bytes.len();
        let most = bytes.len().min(self.room - used);
        if most == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let some = self.part(most)?;
        let mut wire = self.outgoing.borrow_mut();
        wire.bytes.extend(&bytes[..some]);
        wire.passed.extend(&bytes[..some]);
        Ok(some)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Socket {
    /// The peer finds the end of the stream.
    fn end(&self) {
        self.outgoing.borrow_mut().has_ended = true;
    }
}

/// Both ends shake hands, or one says why not.
fn handshake(
    client: (&mut TlsSession, &mut Socket),
    server: (&mut TlsSession, &mut Socket),
) -> std::result::Result<(), TlsError> {
    for _ in 0..10_000 {
        let one = client.0.handshake(client.1)?;
        let other = server.0.handshake(server.1)?;
        // A server that is done may have tickets to send, which the client's reads take.
        if one == Progress::Done && other != Progress::WantsRead {
            return Ok(());
        }
    }
    Err(Error::from(ErrorKind::TimedOut).into())
}
