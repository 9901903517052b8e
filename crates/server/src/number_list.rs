//! Lists of numbers as the kernel writes them.

use std::collections::BTreeSet;

/// The set that a list such as `0-3,8` names; `None` if it is not a list.
/// Empty text is the empty set. Numbers beyond any machine's are refused.
pub fn parse_list(text: &str) -> Option<BTreeSet<usize>> {
    const MOST: usize = 1 << 16;
    let mut set = BTreeSet::new();
    let text = text.trim();
    if text.is_empty() {
        return Some(set);
    }
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}
