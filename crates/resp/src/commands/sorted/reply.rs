//! Replies with scores.

use crate::form::ScoredForm;
use crate::numbers;
use crate::wire::{RespVersion, encode};
use remora_protocol::sorted::Scored;

/// Bytes of members that are written in one piece.
const PIECE_BYTES: usize = 64 << 10;

/// The scores in a shard's answer; none for a member that is not there.
pub(crate) fn scores(value: Option<&[u8]>) -> impl Iterator<Item = Option<f64>> {
    let (chunks, _) = value.unwrap_or_default().as_chunks();
    let score = |bytes: &[u8; 8]| Some(f64::from_le_bytes(*bytes)).filter(|score| !score.is_nan());
    chunks.iter().map(score)
}

/// Members with their scores, written piece by piece.
#[derive(Debug)]
pub struct ScoredReply {
    list: Vec<u8>,
    number: i64,
    form: ScoredForm,
    /// Bytes of the list that are written.
    written: usize,
    is_open: bool,
}

impl ScoredReply {
    /// The reply with these members (as [`Scored`] encodes them).
    pub(crate) const fn new(list: Vec<u8>, number: i64, form: ScoredForm) -> Self {
        Self { list, number, form, written: 0, is_open: false }
    }

    /// Bytes of the members.
    pub(crate) fn bytes(&self) -> usize {
        self.list.len()
    }

    /// Continues with these members, behind those that are written.
    pub(crate) fn go_on(&mut self, list: Vec<u8>) {
        (self.list, self.written) = (list, 0);
    }

    /// Appends the next piece. Whether it was the last one.
    pub(crate) fn write_piece(&mut self, out: &mut Vec<u8>, version: RespVersion) -> bool {
        if !self.is_open {
            self.open(out, version);
            self.is_open = true;
        }
        let end = self.written + PIECE_BYTES;
        while let Some((score, member, rest)) = Scored::split_first(&self.list[self.written..]) {
            if self.written >= end {
                return false;
            }
            write_one(out, version, self.form, (score, member));
            self.written = self.list.len() - rest.len();
        }
        true
    }

    /// Appends what comes before the members.
    fn open(&self, out: &mut Vec<u8>, version: RespVersion) {
        let members = self.number as usize;
        match (self.form, version) {
            (ScoredForm::Members, _) | (ScoredForm::Pairs, RespVersion::Resp3) => {
                encode::array(out, members);
            }
            (ScoredForm::Pairs | ScoredForm::Flat, _) => encode::array(out, 2 * members),
            (ScoredForm::Cursor, _) => {
                encode::array(out, 2);
                encode::bulk(out, (self.number as u64).to_string().as_bytes());
                encode::array(out, 2 * Scored::in_list(&self.list).count());
            }
        }
    }
}

fn write_one(
    out: &mut Vec<u8>,
    version: RespVersion,
    form: ScoredForm,
    (score, member): (f64, &[u8]),
) {
    if form == ScoredForm::Pairs && version == RespVersion::Resp3 {
        encode::array(out, 2);
    }
    encode::bulk(out, member);
    match form {
        ScoredForm::Members => {}
        ScoredForm::Pairs | ScoredForm::Flat => numbers::write(out, version, score),
        ScoredForm::Cursor => encode::bulk(out, numbers::integral_text(score).as_bytes()),
    }
}

/// Appends an array of arrays of a member and its score, in either version.
pub(super) fn write_nested(out: &mut Vec<u8>, version: RespVersion, list: &[u8]) {
    encode::array(out, Scored::in_list(list).count());
    for (score, member) in Scored::in_list(list) {
        encode::array(out, 2);
        encode::bulk(out, member);
        numbers::write(out, version, score);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole reply, and the number of its pieces.
    fn written(list: &[u8], number: i64, form: ScoredForm, version: RespVersion) -> (String, u32) {
        let mut reply = ScoredReply::new(list.to_vec(), number, form);
        let (mut out, mut pieces) = (Vec::new(), 1);
        while !reply.write_piece(&mut out, version) {
            pieces += 1;
        }
        (String::from_utf8(out).unwrap(), pieces)
    }

    #[test]
    fn each_form_is_that_of_its_version() {
        use RespVersion::{Resp2, Resp3};
        let mut list = Vec::new();
        Scored::push(&mut list, 0.5, b"a");
        for (form, version, text) in [
            (ScoredForm::Members, Resp2, "*1\r\n$1\r\na\r\n"),
            (ScoredForm::Pairs, Resp2, "*2\r\n$1\r\na\r\n$3\r\n0.5\r\n"),
            (ScoredForm::Pairs, Resp3, "*1\r\n*2\r\n$1\r\na\r\n,0.5\r\n"),
            (ScoredForm::Flat, Resp3, "*2\r\n$1\r\na\r\n,0.5\r\n"),
            (ScoredForm::Cursor, Resp3, "*2\r\n$1\r\n1\r\n*2\r\n$1\r\na\r\n$3\r\n0.5\r\n"),
        ] {
            assert_eq!(written(&list, 1, form, version), (text.to_owned(), 1));
        }
    }

    #[test]
    fn a_long_list_comes_in_pieces() {
        let mut list = Vec::new();
        (0..10_000).for_each(|at| Scored::push(&mut list, f64::from(at), b"member"));
        let (text, pieces) = written(&list, 10_000, ScoredForm::Members, RespVersion::Resp2);
        assert_eq!(pieces as usize, list.len().div_ceil(PIECE_BYTES));
        assert_eq!(text, format!("*10000\r\n{}", "$6\r\nmember\r\n".repeat(10_000)));
    }
}
