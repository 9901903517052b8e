//! How the members of sets are packed: names alone.

use crate::elements::bins::Packing;
use remora_layout::kind::Kind;
use remora_layout::packed_set::{self, Member};
use remora_protocol::Items;
use remora_protocol::set::{each_member, packs};

/// Members of sets: several in a part, or one.
pub(super) struct Members;

impl Packing for Members {
    const ROOT_KIND: Kind = Kind::SET;
    const PART_KIND: Kind = Kind::SET_PART;
    type Payload = ();

    fn each_of_whole(value: &[u8], mut each: impl FnMut(&[u8], ())) {
        each_member(value, |member| each(member, ()));
    }

    fn find_in_whole(value: &[u8], member: &[u8]) -> Option<()> {
        packs(value, member).then_some(())
    }

    fn begin(items: &mut Vec<u8>) {
        packed_set::begin_items(items);
    }

    #[inline]
    fn push(items: &mut Vec<u8>, member: &[u8], (): ()) {
        packed_set::push_item(items, member);
    }

    #[inline]
    fn each(items: &[u8], mut each: impl FnMut(&[u8], ())) {
        for member in packed_set::members(items) {
            if let Member::Bytes(member) = member {
                each(member, ());
            }
        }
    }

    #[inline]
    fn find(items: &[u8], member: &[u8]) -> Option<()> {
        packed_set::contains(items, member, || None).then_some(())
    }

    fn count(items: &[u8]) -> usize {
        packed_set::count(items)
    }

    fn is_empty(items: &[u8]) -> bool {
        packed_set::members(items).next().is_none()
    }

    fn bytes_of((): ()) -> impl AsRef<[u8]> {
        []
    }

    fn payload_of(_bytes: &[u8]) {}

    #[inline]
    fn push_told(list: &mut Vec<u8>, member: &[u8], (): ()) {
        Items::push(list, member);
    }
}
