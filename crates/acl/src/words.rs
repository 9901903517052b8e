//! Words of a rule list: a selector may be several.

/// Joins the words of each selector by spaces: `(~a +get)` from `(~a` and `+get)`.
///
/// # Errors
/// The first word of a selector that has no end.
pub(crate) fn join_selectors<'a>(
    mut words: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Vec<u8>>, &'a [u8]> {
    let mut rules = Vec::new();
    while let Some(first) = words.next() {
        let mut rule = first.to_vec();
        if first.starts_with(b"(") {
            while !rule.ends_with(b")") {
                rule.push(b' ');
                rule.extend_from_slice(words.next().ok_or(first)?);
            }
        }
        rules.push(rule);
    }
    Ok(rules)
}
