//! Sorted sets that lie whole in their records.

use super::changes::{Put, sort};
use remora_layout::limits::{WHOLE_ITEM_BYTES, WHOLE_ITEMS};
use remora_layout::packed_scores;

/// Whether these members fit one record.
pub(super) fn is_whole(members: &[(f64, &[u8])]) -> bool {
    members.len() <= WHOLE_ITEMS && members.iter().all(|(_, member)| is_short(member))
}

fn is_short(member: &[u8]) -> bool {
    member.len() <= WHOLE_ITEM_BYTES
}

/// Members that get other scores.
pub(super) struct Changed<'m> {
    /// As they are packed, in ascending order.
    pub gone: Vec<(f64, &'m [u8])>,
    /// With their new scores, in ascending order.
    pub new: Vec<(f64, &'m [u8])>,
    /// Whether all of the set fits one record then.
    pub is_whole: bool,
}

/// What changes in a set of these members. As in Redis, -0 becomes 0 before the set is large.
pub(super) fn changed<'m>(packed: &[u8], puts: &[Put<'m>]) -> Changed<'m> {
    let adds = puts.iter().any(|put| put.old.is_none());
    let mut members = if adds { packed_scores::count(packed) } else { 0 };
    let mut is_whole = true;
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for &Put { member, old, new: score } in puts {
        match old {
            Some(old) => gone.push((old, member)),
            None => {
                members += 1;
                is_whole &= members <= WHOLE_ITEMS && is_short(member);
            }
        }
        new.push((if is_whole { score + 0.0 } else { score }, member));
    }
    sort(&mut gone);
    sort(&mut new);
    Changed { gone, new, is_whole }
}

/// Packs members in ascending order, in the place of what is there. -0 becomes 0, as in Redis's
/// listpacks.
pub(super) fn pack(members: &[(f64, &[u8])], packed: &mut Vec<u8>) {
    packed.clear();
    members.iter().for_each(|&(score, member)| packed_scores::push(packed, score + 0.0, member));
}
