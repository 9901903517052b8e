//! Replies to commands of one key, from its shard's answer, in the shapes that several types share.

use crate::commands::sorted::ScoredReply;
use crate::error::status_error;
use crate::form::{ListForm, ObjectReply, Shape};
use crate::wire::{RespVersion, encode};
use remora_frontend::ShardAnswer;
use remora_layout::packed::Field;
use remora_protocol::Items;

/// Bytes of items that are written in one piece.
const PIECE_BYTES: usize = 64 << 10;

/// Appends a reply that is not written piece by piece.
pub(crate) fn write(
    out: &mut Vec<u8>,
    version: RespVersion,
    form: &ObjectReply,
    answer: ShardAnswer<'_>,
) {
    let ShardAnswer { status, number, value } = answer;
    let own = form.errors.iter().find(|(own, _)| *own == status).map(|(_, text)| *text);
    if let Some(text) = own {
        return encode::error(out, text);
    }
    if let Some(text) = status_error(status, form.command) {
        return encode::error(out, &text);
    }
    match form.shape {
        Shape::Ok => encode::ok(out),
        Shape::Number => encode::integer(out, number),
        Shape::Value => encode::bulk_or_null(out, version, value),
        Shape::OneItem => {
            let item = value.and_then(Items::split).and_then(|(item, _)| item);
            encode::bulk_or_null(out, version, item);
        }
        Shape::ErrorUnlessEmpty(text) if number != 0 => encode::error(out, text),
        Shape::ErrorUnlessEmpty(_) => {
            ItemsReply::new(Vec::new(), 0, ListForm::Cursor).write_piece(out, version);
        }
        Shape::Own(write) => write(out, version, answer),
        Shape::Scored(list) => {
            let members = value.unwrap_or_default().to_vec();
            let mut reply = ScoredReply::new(members, number, list);
            while !reply.write_piece(out, version) {}
        }
        Shape::List(list) => {
            let items = value.unwrap_or_default();
            open(out, version, (items, number, list));
            write_items(out, version, list, items, usize::MAX);
        }
    }
}

/// A list, written piece by piece.
#[derive(Debug)]
pub struct ItemsReply {
    list: Vec<u8>,
    number: i64,
    form: ListForm,
    /// Bytes of the list that are written.
    written: usize,
    is_open: bool,
}

impl ItemsReply {
    /// The reply with these items (as [`Items`] encodes them).
    pub const fn new(list: Vec<u8>, number: i64, form: ListForm) -> Self {
        Self { list, number, form, written: 0, is_open: false }
    }

    /// Bytes of the items.
    pub fn bytes(&self) -> usize {
        self.list.len()
    }

    /// Continues with these items, behind those that are written.
    pub fn go_on(&mut self, list: Vec<u8>) {
        (self.list, self.written) = (list, 0);
    }

    /// Appends the next piece. Whether it was the last one.
    pub fn write_piece(&mut self, out: &mut Vec<u8>, version: RespVersion) -> bool {
        if !self.is_open {
            open(out, version, (&self.list, self.number, self.form));
            self.is_open = true;
        }
        let rest = &self.list[self.written..];
        self.written += write_items(out, version, self.form, rest, PIECE_BYTES);
        self.written == self.list.len()
    }
}

/// Appends what comes before the items of a list.
fn open(out: &mut Vec<u8>, version: RespVersion, (list, number, form): (&[u8], i64, ListForm)) {
    let items = number as usize;
    match (form, version) {
        (ListForm::Pairs, RespVersion::Resp3) => encode::array(out, items / 2),
        (ListForm::Array | ListForm::Links | ListForm::Pairs, _) => encode::array(out, items),
        (ListForm::Set, _) => encode::set(out, version, items),
        (ListForm::Map, _) => encode::map(out, version, items / 2),
        (ListForm::Cursor, _) => {
            encode::array(out, 2);
            encode::bulk(out, (number as u64).to_string().as_bytes());
            encode::array(out, Items::parse(list).map_or(0, |list| list.iter().count()));
        }
    }
}

/// Appends the first items of a list, until they have so many bytes there. Bytes of the list that
/// are written.
fn write_items(
    out: &mut Vec<u8>,
    version: RespVersion,
    form: ListForm,
    list: &[u8],
    most: usize,
) -> usize {
    let is_paired = form == ListForm::Pairs && version == RespVersion::Resp3;
    // The head of an item has about as many bytes here as there.
    out.reserve(list.len().min(most) + list.len().min(most) / 4);
    let mut rest = list;
    while let Some((item, after)) = Items::split_field(rest) {
        let is_told = |item: &Field<'_>| form != ListForm::Links || item.is_link;
        let item = item.filter(is_told).map(|item| item.value);
        if is_paired {
            encode::array(out, 2);
        }
        encode::bulk_or_null(out, version, item);
        rest = after;
        if is_paired && let Some((item, after)) = Items::split(rest) {
            encode::bulk_or_null(out, version, item);
            rest = after;
        }
        if list.len() - rest.len() >= most {
            break;
        }
    }
    list.len() - rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_protocol::message::Status;

    #[test]
    fn the_only_item_of_a_list_or_null() {
        static FORM: ObjectReply = ObjectReply::new("hrandfield", Shape::OneItem);
        let mut list = Vec::new();
        for expected in ["$-1\r\n", "$4\r\nname\r\n"] {
            let mut out = Vec::new();
            write(&mut out, RespVersion::Resp2, &FORM, (Status::Ok, 1, Some(&list[..])).into());
            assert_eq!(out, expected.as_bytes());
            Items::push(&mut list, b"name");
        }
    }
}
