//! How the members of one type's objects are packed, and what they have beside their names.

use crate::elements::kept::Elements;
use remora_layout::bins::{OWN, bin_number, is_bin};
use remora_layout::kind::Kind;
use remora_layout::limits::BIN_MEMBERS;
use remora_layout::packed::Field;
use remora_protocol::elements::Told;

/// What a member has beside its name.
pub(crate) trait Payload: Copy + PartialEq {
    /// The score of such a member.
    fn score(self) -> f64;
}

/// Nothing: such members count as if they had the score 1.
impl Payload for () {
    fn score(self) -> f64 {
        1.0
    }
}

impl Payload for f64 {
    fn score(self) -> f64 {
        self
    }
}

/// Members in records: several with their payloads in a whole object or a bin, or one that is a part
/// of its own, with its payload as the part's value. Each member has a payload of the same length,
/// which may be none.
pub(crate) trait Packing: 'static {
    /// The kind of the type's root records.
    const ROOT_KIND: Kind;
    /// The kind of its parts.
    const PART_KIND: Kind;
    /// Where the table of parts begins in the root record's state: a byte at which a slot could begin.
    const PARTS_AT: usize = 0;
    /// What a member has beside its name.
    type Payload: Payload;

    /// Hands over the members of an object that lies whole in its record, whose value is this.
    fn each_of_whole(value: &[u8], each: impl FnMut(&[u8], Self::Payload));

    /// The payload of one of these members.
    fn find_in_whole(value: &[u8], member: &[u8]) -> Option<Self::Payload>;

    /// Begins the items of a bin, in the place of what is there.
    fn begin(items: &mut Vec<u8>);

    /// Appends a short member to the items of a bin.
    fn push(items: &mut Vec<u8>, member: &[u8], payload: Self::Payload);

    /// Hands over the members among the items of a bin.
    fn each(items: &[u8], each: impl FnMut(&[u8], Self::Payload));

    /// The payload of one of these members.
    fn find(items: &[u8], member: &[u8]) -> Option<Self::Payload>;

    /// How many they are.
    fn count(items: &[u8]) -> usize;

    /// Whether there are none.
    fn is_empty(items: &[u8]) -> bool;

    /// The bytes of a payload: the value of the part of a member of its own.
    fn bytes_of(payload: Self::Payload) -> impl AsRef<[u8]>;

    /// The payload of these bytes.
    fn payload_of(bytes: &[u8]) -> Self::Payload;

    /// Appends a member to a list in the encoding of requests and replies.
    fn push_told(list: &mut Vec<u8>, member: &[u8], payload: Self::Payload);
}

impl<P: Packing> Elements for P {
    const KIND: Kind = P::ROOT_KIND;
    const PART: Kind = P::PART_KIND;
    const PARTS_AT: usize = <P as Packing>::PARTS_AT;
    /// A chain has seven bins on average.
    const LOT_PLACES: u64 = 20 * BIN_MEMBERS;

    fn of_whole(value: &[u8], mut each: impl FnMut(&[u8], Field<'_>)) {
        P::each_of_whole(value, |member, payload| {
            each(member, Field::plain(P::bytes_of(payload).as_ref()));
        });
    }

    fn of_part(name: &[u8], value: Field<'_>, mut each: impl FnMut(&[u8], Field<'_>)) {
        match name.split_first() {
            Some((&OWN, member)) => each(member, Field::plain(value.value)),
            _ => P::each(value.value, |member, payload| {
                each(member, Field::plain(P::bytes_of(payload).as_ref()));
            }),
        }
    }

    fn number_of(name: &[u8]) -> Option<u32> {
        bin_number(name)
    }

    fn in_part(name: &[u8], value: &[u8]) -> u64 {
        if is_bin(name) { P::count(value) as u64 } else { 1 }
    }

    fn tell(_told: Told, member: &[u8], payload: Field<'_>, list: &mut Vec<u8>) {
        P::push_told(list, member, P::payload_of(payload.value));
    }

    fn items_each(_told: Told) -> u64 {
        1
    }
}
