//! The agent: reads frames, executes the peer's requests, and delivers the peer's answers. No input
//! of a peer makes it panic, block, or keep more than a bounded number of bytes.

use super::connection::{Connection, State};
use super::frame::{Frame, Refused, Violation, parse};
use super::inbound::{Expect, Inbound, Received};
use super::outbound::Flight;
use crate::LinkError;
use remora_arena::Words;
use remora_layout::limits::TCP_PIECE_BYTES;
use remora_layout::wire::WIRE_HEADER_BYTES;
use std::sync::atomic::Ordering;

impl Connection {
    /// One turn: receives, executes, answers, flushes.
    pub(super) fn pump(
        &self,
        inbound: &mut Inbound,
        is_hung_up: bool,
        on_immediate: &mut dyn FnMut(u32),
    ) -> State {
        if inbound.over {
            return self.ended();
        }
        let arrivals = self.arrivals.load(Ordering::Relaxed);
        let state = self.receive_and_execute(inbound, is_hung_up, on_immediate);
        if self.arrivals.load(Ordering::Relaxed) != arrivals {
            self.waiters.wake_all();
        }
        match state {
            Ok(state) => {
                self.tell(inbound);
                if inbound.over { self.ended() } else { state }
            }
            Err(violation) => {
                self.break_off(violation.into());
                inbound.over = true;
                self.ended()
            }
        }
    }

    /// One receive, unless the last turn left something of one to execute. Where it
    /// does not fill the buffer the socket is empty, but for the peer's end, and but for what TLS keeps.
    fn receive_and_execute(
        &self,
        inbound: &mut Inbound,
        is_hung_up: bool,
        on_immediate: &mut dyn FnMut(u32),
    ) -> Result<State, Violation> {
        (inbound.frames, inbound.read_bytes) = (0, 0);
        if std::mem::take(&mut inbound.is_suspended) {
            // Bytes may have arrived since the last receive, and this turn may be the only one for
            // their event: a further turn has to receive them.
            inbound.may_be_more = true;
        } else {
            match inbound.receive(&self.socket) {
                Received::Nothing if self.socket.has_more(is_hung_up) => return Ok(State::More),
                Received::Nothing => return Ok(State::Idle),
                Received::Closed => {
                    self.break_off(LinkError::Disconnected);
                    inbound.over = true;
                    return Ok(State::Closed);
                }
                Received::Bytes(bytes) => self.counters.received(bytes),
            }
            inbound.may_be_more = inbound.is_full() || self.socket.has_more(is_hung_up);
        }
        let executed = self.execute_all(inbound, on_immediate);
        self.counters.executed(inbound.frames);
        executed?;
        let may_be_more = is_hung_up || inbound.may_be_more || inbound.is_suspended;
        Ok(if may_be_more { State::More } else { State::Idle })
    }

    /// Executes all whole frames, up to the bound of a turn.
    fn execute_all(
        &self,
        inbound: &mut Inbound,
        on_immediate: &mut dyn FnMut(u32),
    ) -> Result<(), Violation> {
        // Each turn consumes bytes or ends.
        loop {
            if inbound.has_had_its_turn() {
                inbound.is_suspended = true;
                return Ok(());
            }
            let progressed = match inbound.expect {
                Expect::Header => self.header(inbound, on_immediate)?,
                Expect::Write { .. } => self.write_piece(inbound, on_immediate),
                Expect::Data { .. } => self.data_piece(inbound),
            };
            if !progressed {
                return Ok(());
            }
        }
    }

    fn header(
        &self,
        inbound: &mut Inbound,
        on_immediate: &mut dyn FnMut(u32),
    ) -> Result<bool, Violation> {
        let Some(header) = inbound.bytes().first_chunk::<WIRE_HEADER_BYTES>() else {
            return Ok(false);
        };
        let frame = parse(header)?;
        inbound.consume(WIRE_HEADER_BYTES);
        inbound.frames += 1;
        match frame {
            Frame::Read { region, offset, bytes } => self.read(inbound, region, offset, bytes)?,
            Frame::Write { region, offset, bytes, imm, is_signalled } => {
                let discard = inbound.refused
                    || self
                        .regions
                        .with_writable(region, offset, bytes, |_, _| ())
                        .map_err(|why| self.refuse(inbound, why))
                        .is_err();
                let left = bytes;
                inbound.expect = Expect::Write { region, offset, left, imm, is_signalled, discard };
                if bytes == 0 {
                    self.write_piece(inbound, on_immediate);
                }
            }
            Frame::Data { number, bytes } => self.data(inbound, number, bytes)?,
            Frame::Done(executed) => self.done(executed)?,
            Frame::Fail { executed, why } => self.failed(executed, why)?,
        }
        Ok(true)
    }

    /// The peer READs.
    fn read(
        &self,
        inbound: &mut Inbound,
        region: u32,
        offset: u64,
        bytes: usize,
    ) -> Result<(), Violation> {
        if inbound.refused {
            return Ok(());
        }
        if !self.lock_out().reserve_answer(bytes) {
            return Err(Violation("it asks for more than the window"));
        }
        let copied = inbound.answers.add_data(inbound.executed, bytes, |into| {
            self.regions.with_readable(region, offset, bytes, |view, at| {
                // x86-ordering: the loads of a READ come before those of the next one.
                view.copy_out(at, into);
            })
        });
        match copied {
            Ok(()) => {
                inbound.executed += 1;
                inbound.read_bytes += bytes;
                if inbound.answers.len() >= TCP_PIECE_BYTES {
                    self.tell(inbound);
                }
            }
            Err(why) => {
                self.lock_out().unreserve_answer(bytes);
                self.refuse(inbound, why);
            }
        }
        Ok(())
    }

    /// Some bytes of a WRITE by the peer: whole words, or its end.
    fn write_piece(&self, inbound: &mut Inbound, on_immediate: &mut dyn FnMut(u32)) -> bool {
        let Expect::Write { region, offset, left, imm, is_signalled, discard } = inbound.expect
        else {
            return false;
        };
        let there = inbound.bytes().len();
        let piece = if there < left { there & !7 } else { left };
        if piece == 0 && left > 0 {
            return false;
        }
        let mut discard = discard;
        if !discard && piece > 0 {
            let bytes = &inbound.bytes()[..piece];
            let stored = self.regions.with_writable(region, offset, piece, |words, at| {
                // x86-ordering: the stores of a WRITE become visible before those of the next one.
                words.copy_in(at, bytes);
            });
            if let Err(why) = stored {
                self.refuse(inbound, why);
                discard = true;
            }
        }
        inbound.consume(piece);
        let (offset, left) = (offset + piece as u64 * !discard as u64, left - piece);
        inbound.expect = Expect::Write { region, offset, left, imm, is_signalled, discard };
        if left == 0 {
            inbound.expect = Expect::Header;
            if !discard {
                inbound.is_awaited |= is_signalled;
                self.written(inbound, imm, on_immediate);
            }
        }
        true
    }

    fn written(&self, inbound: &mut Inbound, imm: Option<u32>, on_immediate: &mut dyn FnMut(u32)) {
        inbound.executed += 1;
        Words::full_fence();
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        if let Some(imm) = imm {
            on_immediate(imm);
        }
    }

    /// Tells the peer that its next request, and all later ones, are refused.
    pub(super) fn refuse(&self, inbound: &mut Inbound, why: Refused) {
        if inbound.refused {
            return;
        }
        inbound.refused = true;
        inbound.answers.add_failure(inbound.executed, why);
    }

    /// An answer to a READ of ours begins.
    fn data(&self, inbound: &mut Inbound, number: u64, bytes: usize) -> Result<(), Violation> {
        let mut finished = Vec::new();
        let handle = {
            let mut out = self.lock_out();
            if out.failure.is_some() {
                None
            } else {
                Some(out.data_begins(number, bytes, &mut finished).map_err(Violation)?)
            }
        };
        deliver(&finished);
        self.awaiting.completed();
        inbound.expect = Expect::Data { handle, left: bytes };
        if bytes == 0 {
            self.data_piece(inbound);
        }
        Ok(())
    }

    fn data_piece(&self, inbound: &mut Inbound) -> bool {
        let Expect::Data { handle, left } = &inbound.expect else { return false };
        let piece = inbound.bytes().len().min(*left);
        if piece == 0 && *left > 0 {
            return false;
        }
        let left = left - piece;
        let mut complete = 0;
        if left == 0 && handle.is_some() {
            complete = self.lock_out().data_arrived().is_some_and(|flight| flight.last) as u64;
        }
        if let Some(handle) = handle {
            handle.deliver(&inbound.bytes()[..piece], complete);
        }
        inbound.consume(piece);
        match &mut inbound.expect {
            Expect::Data { left: rest, .. } if left > 0 => *rest = left,
            expect => *expect = Expect::Header,
        }
        true
    }

    fn done(&self, executed: u64) -> Result<(), Violation> {
        let mut finished = Vec::new();
        {
            let mut out = self.lock_out();
            if out.failure.is_none() {
                out.done(executed, &mut finished).map_err(Violation)?;
            }
        }
        deliver(&finished);
        self.awaiting.completed();
        Ok(())
    }

    /// The peer refuses our next request.
    fn failed(&self, executed: u64, why: Refused) -> Result<(), Violation> {
        self.done(executed)?;
        let refused = self.lock_out().refused();
        let reason = match (why, refused) {
            (Refused::Withdrawn, _) => LinkError::Withdrawn,
            (_, None) => return Err(Violation("it refuses what nobody posted")),
            (Refused::OutOfBounds, Some(posted)) => LinkError::OutOfBounds {
                region: posted.region,
                offset: posted.offset,
                bytes: posted.bytes,
            },
            (Refused::NoSuchRegion, Some(posted)) => LinkError::NoSuchRegion(posted.region),
            (Refused::NotWritable, Some(posted)) => LinkError::NotWritable(posted.region),
            (Refused::NotReadable, Some(posted)) => LinkError::NotReadable(posted.region),
        };
        self.fail(reason);
        Ok(())
    }

    /// Passes the answers on, tells the peer the progress if it waits for that, and flushes.
    pub(super) fn tell(&self, inbound: &mut Inbound) {
        let is_awaited = std::mem::take(&mut inbound.is_awaited);
        self.lock_out().hand_over(&mut inbound.answers, inbound.executed, is_awaited);
        inbound.over |= !self.flush();
    }
}

fn deliver(finished: &[Flight]) {
    for flight in finished {
        flight.handle.deliver(&[], flight.last as u64);
    }
}
