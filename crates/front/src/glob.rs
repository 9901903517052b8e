//! Glob patterns as Redis matches them: `*`, `?`, `[a-z]`, `[^a-z]`, `\x`.
//!
//! On a mismatch only the last `*` is tried again, one byte further: earlier
//! ones cannot help. So the work is at most pattern times text, whatever the
//! pattern.

/// Whether `text` matches `pattern`; `ignore_case` is for ASCII letters.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: behind the last star, and the text
    // that the star does not swallow yet.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        match text.get(t) {
            None if p >= pattern.len() => return true,
            // A star swallows at most the text: there is nothing to retry.
            None => return false,
            Some(&byte) => {
                if let Some(next) = one(pattern, p, byte, ignore_case) {
                    p = next;
                    t += 1;
                    continue;
                }
            }
        }
        let Some((behind_star, from)) = retry else { return false };
        p = behind_star;
        t = from + 1;
        retry = Some((behind_star, t));
    }
}

/// Matches one byte against the element at `p`: where the next element starts.
fn one(pattern: &[u8], p: usize, byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    let same = |other: u8| fold(other) == fold(byte);
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => class(pattern, p + 1, byte, ignore_case),
        b'\\' => match pattern.get(p + 1) {
            Some(&escaped) => same(escaped).then_some(p + 2),
            None => same(b'\\').then_some(p + 1),
        },
        literal => same(literal).then_some(p + 1),
    }
}

/// Matches one byte against the class whose `[` stands before `p`. A class
/// that is not closed ends with the pattern.
fn class(pattern: &[u8], mut p: usize, byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    let inverted = pattern.get(p) == Some(&b'^');
    p += usize::from(inverted);
    let mut found = false;
    loop {
        match pattern.get(p..).unwrap_or(&[]) {
            [] => break,
            [b'\\', escaped, ..] => {
                // Redis compares escaped bytes of a class with their case.
                found |= *escaped == byte;
                p += 2;
            }
            [b']', ..] => {
                p += 1;
                break;
            }
            [start, b'-', end, ..] => {
                let (low, high) = (*start.min(end), *start.max(end));
                found |= (fold(low)..=fold(high)).contains(&fold(byte));
                p += 3;
            }
            [literal, ..] => {
                found |= fold(*literal) == fold(byte);
                p += 1;
            }
        }
    }
    (found != inverted).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_of_redis() {
        let yes: [(&str, &str); 16] = [
            ("", ""),
            ("*", ""),
            ("*", "anything"),
            ("a*c", "abbbc"),
            ("a**c", "ac"),
            ("*b*b", "abab"),
            ("h?llo", "hello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("a\\*c", "a*c"),
            ("[\\]]", "]"),
            ("[a", "a"),
            ("a\\", "a\\"),
            ("maxmemory*", "maxmemory-policy"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
        let no: [(&str, &str); 11] = [
            ("", "a"),
            ("?", ""),
            ("a*c", "abbb"),
            ("h?llo", "hllo"),
            ("h[^a]llo", "hallo"),
            ("h[a-c]llo", "hdllo"),
            ("a\\*c", "abc"),
            ("[]", "a"),
            ("[]-a]", "-a]"),
            ("A", "a"),
            ("[a-", "c"),
        ];
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
        assert!(matches(b"MAX[L-N]*", b"maxmemory", true));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"a*".repeat(2_000);
        let text = vec![b'a'; 20_000];
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text, false));
    }

    /// Redis' own recursion, slow and plain.
    fn oracle(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|swallowed| oracle(rest, &text[swallowed..])),
            _ => text.split_first().is_some_and(|(&byte, text)| {
                one(pattern, 0, byte, false).is_some_and(|next| oracle(&pattern[next..], text))
            }),
        }
    }

    proptest! {
        #[test]
        fn stars_match_as_by_recursion(pattern in "[ab*?\\[\\]^\\\\-]{0,10}", text in "[ab]{0,10}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text, false), oracle(pattern, text));
        }

        #[test]
        fn no_bytes_panic(pattern: Vec<u8>, text: Vec<u8>) {
            matches(&pattern, &text, true);
        }
    }
}
