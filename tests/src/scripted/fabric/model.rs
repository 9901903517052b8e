//! What a connection must do with a stream of frames, by its contract alone.

use remora_fabric::tcp::{Frame, parse};
use remora_layout::wire::{WIRE_HEADER_BYTES, reason};
use std::collections::VecDeque;

/// What the peer may do with a region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// The regions: what the peer may do with them, and their bytes. One more was
/// withdrawn.
pub const REGIONS: [(Access, usize); 4] = [
    (Access::Read, 4_096),
    (Access::Read, 40 << 10),
    (Access::Write, 8_192),
    (Access::Write, 72 << 10),
];
pub const WITHDRAWN: u32 = 4;

/// What a region holds at first.
pub fn pattern(number: usize) -> Vec<u8> {
    let (access, bytes) = REGIONS[number];
    let byte = |at: usize| (at / 8 * 7 + at + number) as u8;
    if access == Access::Read { (0..bytes).map(byte).collect() } else { vec![0; bytes] }
}

/// What the peer must get.
#[derive(PartialEq, Eq)]
pub enum Answer {
    Data { number: u64, bytes: Vec<u8> },
    Fail { executed: u64, why: u32 },
}

/// What the connection must do, by its contract alone.
pub struct Model {
    pub regions: Vec<Vec<u8>>,
    pub answers: Vec<Answer>,
    pub immediates: Vec<u32>,
    pub executed: u64,
    /// As many of them the peer has to be told of.
    pub awaited: u64,
    pub is_refused: bool,
    pub is_withdrawn: bool,
    /// This end's operations that are not answered: bytes that a READ wants.
    pub flights: VecDeque<Option<usize>>,
    pub answered: usize,
    /// Bytes that the READs among them brought.
    pub landed: Vec<u8>,
    pub has_failed: bool,
    pub is_violated: bool,
    /// The stream ended inside of a frame.
    pub is_cut: bool,
    /// What all READs together take of the window.
    pub asked: usize,
}

impl Model {
    pub fn new(flights: VecDeque<Option<usize>>) -> Self {
        Self {
            regions: (0..REGIONS.len()).map(pattern).collect(),
            answers: Vec::new(),
            immediates: Vec::new(),
            executed: 0,
            awaited: 0,
            is_refused: false,
            is_withdrawn: false,
            flights,
            answered: 0,
            landed: Vec::new(),
            has_failed: false,
            is_violated: false,
            is_cut: false,
            asked: 0,
        }
    }

    /// Why a request is refused, if it is.
    fn refusal(&self, wanted: Access, region: u32, offset: u64, bytes: usize) -> Option<u32> {
        if self.is_withdrawn || region == WITHDRAWN {
            return Some(reason::WITHDRAWN);
        }
        let Some((access, length)) = REGIONS.get(region as usize) else {
            return Some(reason::NO_SUCH_REGION);
        };
        let fits = offset as u128 + bytes as u128 <= *length as u128 && offset.is_multiple_of(8);
        match (wanted, access) {
            _ if !fits => Some(reason::OUT_OF_BOUNDS),
            (Access::Read, Access::Write) => Some(reason::NOT_READABLE),
            (Access::Write, Access::Read) => Some(reason::NOT_WRITABLE),
            _ => None,
        }
    }

    /// Whether the request is to be passed over, which the first one is told.
    pub fn passes_over(&mut self, refusal: Option<u32>) -> bool {
        if let Some(why) = refusal
            && !self.is_refused
        {
            self.is_refused = true;
            self.answers.push(Answer::Fail { executed: self.executed, why });
        }
        self.is_refused
    }

    pub fn take(&mut self, stream: &[u8]) {
        let mut rest = stream;
        while !self.is_violated && !rest.is_empty() {
            let Some((header, behind)) = rest.split_first_chunk::<WIRE_HEADER_BYTES>() else {
                self.is_cut = true;
                return;
            };
            let Ok(frame) = parse(header) else {
                self.is_violated = true;
                return;
            };
            let wanted = match frame {
                Frame::Write { bytes, .. } | Frame::Data { bytes, .. } => bytes,
                _ => 0,
            };
            let payload = &behind[..wanted.min(behind.len())];
            self.is_cut = payload.len() < wanted;
            self.frame(frame, payload);
            rest = &behind[payload.len()..];
        }
    }

    fn frame(&mut self, frame: Frame, payload: &[u8]) {
        match frame {
            Frame::Read { region, offset, bytes } => {
                if self.is_refused
                    || self.passes_over(self.refusal(Access::Read, region, offset, bytes))
                {
                    return;
                }
                self.asked += bytes + WIRE_HEADER_BYTES;
                let from = offset as usize;
                let bytes = self.regions[region as usize][from..from + bytes].to_vec();
                self.answers.push(Answer::Data { number: self.executed, bytes });
                self.executed += 1;
                self.awaited = self.executed;
            }
            Frame::Write { region, offset, bytes, imm, is_signalled } => {
                if self.is_refused
                    || self.passes_over(self.refusal(Access::Write, region, offset, bytes))
                {
                    return;
                }
                let at = offset as usize;
                let stored = if self.is_cut { payload.len() & !7 } else { bytes };
                let words = &mut self.regions[region as usize][at..at + stored.next_multiple_of(8)];
                words.fill(0);
                words[..stored].copy_from_slice(&payload[..stored]);
                if !self.is_cut {
                    self.executed += 1;
                    if is_signalled {
                        self.awaited = self.executed;
                    }
                    self.immediates.extend(imm);
                }
            }
            _ if self.has_failed && !matches!(frame, Frame::Fail { .. }) => {}
            Frame::Data { number, bytes } => {
                let answered = self.answered;
                self.done(number);
                if self.is_violated || self.flights.front() != Some(&Some(bytes)) {
                    self.is_violated = true;
                    self.answered = answered;
                } else if !self.is_cut {
                    self.flights.pop_front();
                    self.answered += 1;
                    self.landed.extend_from_slice(payload);
                }
            }
            Frame::Done(executed) => self.done(executed),
            Frame::Fail { executed, why } => {
                if !self.has_failed {
                    self.done(executed);
                }
                let names_one = !self.flights.is_empty() || why as u32 == reason::WITHDRAWN;
                self.is_violated |= !names_one;
                self.has_failed = true;
                self.flights.clear();
            }
        }
    }

    /// The peer says that it has executed so many operations of this end.
    fn done(&mut self, executed: u64) {
        let more = executed.checked_sub(self.answered as u64);
        let Some(more) = more.filter(|more| *more <= self.flights.len() as u64) else {
            self.is_violated = true;
            return;
        };
        if self.flights.drain(..more as usize).any(|wanted| wanted.is_some()) {
            // A READ without its bytes: what says so is not believed at all.
            self.is_violated = true;
        } else {
            self.answered += more as usize;
        }
    }
}
