//! Messages of members as bytes: what one server hands to another.
//!
//! ```text
//!   format 4 | kind 4 | cluster 8 | from: member 8, incarnation 8 | to: member 8, incarnation 8 | body
//!   withdraw       group 4 | 0 4 | epoch 8 | version 8
//!   withdrawn      group 4 | 0 4 | epoch 8 | count 8 | count times: epoch 8, sequence 8, applied 8
//!                  led: incarnation 8 | epoch 8 | is_durable 8, or 0 | 0 | 0
//!   hand over      group 4 | 0 4 | epoch 8
//!   released       as withdrawn, without led
//!   begun          group 4 | 0 4 | epoch 8 | is_released 8
//!   ask lease      epoch 8 | round 8 | clock 8
//!   confirm lease  the same
//!   promote        member 8
//! ```
//! All numbers are little endian. What is not of this form, or has bytes behind it, is refused.

use crate::lease::LeaseAsk;
use crate::led_epoch::LedEpoch;
use crate::message::{Message, Position};
use crate::topology::{GroupId, Instance, MemberId};
use remora_layout::limits::{MAX_EPOCH, MAX_SEQUENCE, MAX_SHARDS};

const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 48;
/// Most bytes of an envelope.
pub const MAX_ENVELOPE_BYTES: usize = HEADER_BYTES + 24 + MAX_SHARDS * 24 + 24;

/// A message and its address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The cluster: a server of another one takes nothing of it.
    pub cluster: u64,
    /// The sender.
    pub from: Instance,
    /// The receiver.
    pub to: Instance,
    /// What it says.
    pub letter: Letter,
}

/// What an envelope holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Letter {
    /// For the member, or the watcher, of the receiver.
    Message(Message),
    /// For its watcher: an operator wants this member to lead its group.
    Promote(MemberId),
}

mod kind {
    pub const WITHDRAW: u32 = 1;
    pub const WITHDRAWN: u32 = 2;
    pub const HAND_OVER: u32 = 3;
    pub const RELEASED: u32 = 4;
    pub const BEGUN: u32 = 5;
    pub const ASK_LEASE: u32 = 6;
    pub const CONFIRM_LEASE: u32 = 7;
    pub const PROMOTE: u32 = 8;
}

impl Envelope {
    /// The bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(HEADER_BYTES + 32));
        out.pair(FORMAT, 0);
        let words = [self.cluster, self.from.member.0, self.from.incarnation];
        words
            .into_iter()
            .chain([self.to.member.0, self.to.incarnation])
            .for_each(|of| out.word(of));
        let kind = match &self.letter {
            Letter::Message(message) => out.message(message),
            Letter::Promote(member) => {
                out.word(member.0);
                kind::PROMOTE
            }
        };
        out.0[4..8].copy_from_slice(&kind.to_le_bytes());
        out.0
    }

    /// The envelope that has these bytes; `None` if none has.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_ENVELOPE_BYTES {
            return None;
        }
        let mut of = Reader(bytes);
        let (format, kind) = of.pair()?;
        if format != FORMAT {
            return None;
        }
        let cluster = of.word()?;
        let (from, to) = (of.instance()?, of.instance()?);
        let letter = of.letter(kind)?;
        of.0.is_empty().then_some(Self { cluster, from, to, letter })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn pair(&mut self, first: u32, second: u32) {
        self.word(u64::from(first) | u64::from(second) << 32);
    }

    fn positions(&mut self, epoch: u64, positions: &[Position]) {
        self.word(epoch);
        self.word(positions.len() as u64);
        for of in positions {
            [of.epoch, of.sequence, of.applied].into_iter().for_each(|word| self.word(word));
        }
    }

    fn led(&mut self, led: Option<LedEpoch>) {
        let words = led.map_or([0; 3], |of| [of.incarnation, of.epoch, u64::from(of.is_durable)]);
        words.into_iter().for_each(|word| self.word(word));
    }

    fn lease(&mut self, ask: &LeaseAsk) {
        [ask.epoch, ask.round.into(), ask.clock_ns].into_iter().for_each(|word| self.word(word));
    }

    /// Writes the body; gives the kind.
    fn message(&mut self, message: &Message) -> u32 {
        match message {
            Message::Withdraw { group, epoch, version } => {
                self.pair(group.0, 0);
                self.word(*epoch);
                self.word(*version);
                kind::WITHDRAW
            }
            Message::Withdrawn { group, epoch, positions, led } => {
                self.pair(group.0, 0);
                self.positions(*epoch, positions);
                self.led(*led);
                kind::WITHDRAWN
            }
            Message::HandOver { group, epoch } => {
                self.pair(group.0, 0);
                self.word(*epoch);
                kind::HAND_OVER
            }
            Message::Released { group, epoch, positions } => {
                self.pair(group.0, 0);
                self.positions(*epoch, positions);
                kind::RELEASED
            }
            Message::Begun { group, epoch, is_released } => {
                self.pair(group.0, 0);
                self.word(*epoch);
                self.word(u64::from(*is_released));
                kind::BEGUN
            }
            Message::AskLease(ask) => {
                self.lease(ask);
                kind::ASK_LEASE
            }
            Message::ConfirmLease(ask) => {
                self.lease(ask);
                kind::CONFIRM_LEASE
            }
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn pair(&mut self) -> Option<(u32, u32)> {
        let word = self.word()?;
        Some((word as u32, (word >> 32) as u32))
    }

    fn epoch(&mut self) -> Option<u64> {
        self.word().filter(|epoch| *epoch <= MAX_EPOCH)
    }

    fn instance(&mut self) -> Option<Instance> {
        let (member, incarnation) = (self.word()?, self.word()?);
        (member != 0 && incarnation != 0)
            .then_some(Instance { member: MemberId(member), incarnation })
    }

    fn group(&mut self) -> Option<GroupId> {
        self.pair().filter(|(id, zero)| *id != 0 && *zero == 0).map(|(id, _)| GroupId(id))
    }

    fn positions(&mut self) -> Option<Vec<Position>> {
        let count = self.word().filter(|count| *count <= MAX_SHARDS as u64)?;
        let position = |of: &mut Self| {
            let (epoch, sequence, applied) = (of.epoch()?, of.word()?, of.word()?);
            let is_one = applied <= sequence && sequence <= MAX_SEQUENCE;
            is_one.then_some(Position { epoch, sequence, applied })
        };
        (0..count).map(|_| position(self)).collect()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.word()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn led(&mut self) -> Option<Option<LedEpoch>> {
        let (incarnation, epoch, is_durable) = (self.word()?, self.epoch()?, self.flag()?);
        match (incarnation, epoch, is_durable) {
            (0, 0, false) => Some(None),
            (0, ..) => None,
            _ => Some(Some(LedEpoch { incarnation, epoch, is_durable })),
        }
    }

    fn lease(&mut self) -> Option<LeaseAsk> {
        let (epoch, round, clock_ns) = (self.epoch()?, self.word()?, self.word()?);
        Some(LeaseAsk { epoch, round: round.try_into().ok()?, clock_ns })
    }

    fn letter(&mut self, kind: u32) -> Option<Letter> {
        let message = match kind {
            kind::WITHDRAW => {
                let (group, epoch, version) = (self.group()?, self.epoch()?, self.word()?);
                Message::Withdraw { group, epoch, version }
            }
            kind::WITHDRAWN => {
                let (group, epoch) = (self.group()?, self.epoch()?);
                Message::Withdrawn { group, epoch, positions: self.positions()?, led: self.led()? }
            }
            kind::HAND_OVER => Message::HandOver { group: self.group()?, epoch: self.epoch()? },
            kind::RELEASED => {
                let (group, epoch) = (self.group()?, self.epoch()?);
                Message::Released { group, epoch, positions: self.positions()? }
            }
            kind::BEGUN => {
                let (group, epoch) = (self.group()?, self.epoch()?);
                Message::Begun { group, epoch, is_released: self.flag()? }
            }
            kind::ASK_LEASE => Message::AskLease(self.lease()?),
            kind::CONFIRM_LEASE => Message::ConfirmLease(self.lease()?),
            kind::PROMOTE => {
                let member = self.word().filter(|member| *member != 0)?;
                return Some(Letter::Promote(MemberId(member)));
            }
            _ => return None,
        };
        Some(Letter::Message(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Letter> {
        let group = GroupId(3);
        let ask = LeaseAsk { epoch: 7, round: 2, clock_ns: 1 << 60 };
        let led = LedEpoch { incarnation: 1 << 63, epoch: 6, is_durable: true };
        let positions = vec![Position { epoch: 1, sequence: 2, applied: 2 }, Position::default()];
        let messages = [
            Message::Withdraw { group, epoch: 7, version: 9 },
            Message::Withdrawn { group, epoch: 7, positions: positions.clone(), led: Some(led) },
            Message::Withdrawn { group, epoch: 7, positions: Vec::new(), led: None },
            Message::HandOver { group, epoch: 7 },
            Message::Released { group, epoch: 7, positions },
            Message::Begun { group, epoch: 7, is_released: true },
            Message::AskLease(ask),
            Message::ConfirmLease(ask),
        ];
        messages.into_iter().map(Letter::Message).chain([Letter::Promote(MemberId(5))]).collect()
    }

    fn envelope(letter: Letter) -> Envelope {
        let instance = |member| Instance { member: MemberId(member), incarnation: member + 10 };
        Envelope { cluster: 77, from: instance(1), to: instance(2), letter }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        for letter in all() {
            let of = envelope(letter);
            assert_eq!(Envelope::decode(&of.encode()), Some(of));
        }
    }

    #[test]
    fn no_other_bytes_are_an_envelope() {
        for letter in all() {
            let bytes = envelope(letter).encode();
            for end in 0..bytes.len() {
                assert_eq!(Envelope::decode(&bytes[..end]), None, "its first {end} bytes");
            }
            assert_eq!(Envelope::decode(&[&bytes[..], &[0]].concat()), None, "a byte more");
        }
        let mut bytes = envelope(Letter::Promote(MemberId(5))).encode();
        bytes[0] = 2;
        assert_eq!(Envelope::decode(&bytes), None, "another format");
        let many = envelope(Letter::Message(Message::Withdrawn {
            group: GroupId(1),
            epoch: 1,
            positions: vec![Position::default(); MAX_SHARDS + 1],
            led: None,
        }));
        assert_eq!(Envelope::decode(&many.encode()), None, "no server has so many shards");
    }
}
