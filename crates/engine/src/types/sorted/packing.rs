//! How members and their scores lie in records ([`remora_layout::packed_scores`]).

use crate::elements::bins::Packing;
use remora_layout::kind::Kind;
use remora_layout::packed_scores;
use remora_layout::sorted::SORTED_PARTS_AT;
use remora_protocol::sorted::Scored;

/// Members with scores.
pub(super) struct Scores;

impl Packing for Scores {
    const ROOT_KIND: Kind = Kind::SORTED_SET;
    const PART_KIND: Kind = Kind::SORTED_PART;
    const PARTS_AT: usize = SORTED_PARTS_AT;
    type Payload = f64;

    fn each_of_whole(value: &[u8], each: impl FnMut(&[u8], f64)) {
        Self::each(value, each);
    }

    fn find_in_whole(value: &[u8], member: &[u8]) -> Option<f64> {
        packed_scores::find(value, member)
    }

    fn begin(items: &mut Vec<u8>) {
        items.clear();
    }

    fn push(items: &mut Vec<u8>, member: &[u8], score: f64) {
        packed_scores::push(items, score, member);
    }

    fn each(items: &[u8], mut each: impl FnMut(&[u8], f64)) {
        packed_scores::items(items).for_each(|(score, member)| each(member, score));
    }

    fn find(items: &[u8], member: &[u8]) -> Option<f64> {
        packed_scores::find(items, member)
    }

    fn count(items: &[u8]) -> usize {
        packed_scores::count(items)
    }

    fn is_empty(items: &[u8]) -> bool {
        items.is_empty()
    }

    fn bytes_of(score: f64) -> impl AsRef<[u8]> {
        score.to_le_bytes()
    }

    fn payload_of(bytes: &[u8]) -> f64 {
        f64::from_le_bytes(*bytes.first_chunk().expect("the owner's own"))
    }

    fn push_told(list: &mut Vec<u8>, member: &[u8], score: f64) {
        Scored::push(list, score, member);
    }
}
