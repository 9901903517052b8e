//! Glob patterns as Redis matches them: `*`, `?`, `[a-z]`, `[^a-z]`, `\x`.
//!
//! The matcher looks for the elements between two stars from the left: the first match is as good
//! as any, because the star behind it takes the rest. It compares all elements of a pattern with a
//! byte at once, 64 in a word (shift-and, Baeza-Yates and Gonnet, 1992). So a match takes at most a
//! word for each byte of the text and 64 elements of the pattern, and a pattern has a limit.

use remora_layout::limits::MAX_PATTERN_BYTES;
use std::ops::Range;

/// Bits of a word.
const BITS: usize = u64::BITS as usize;
/// Words that a part of a pattern takes, at most.
const WORDS: usize = MAX_PATTERN_BYTES / BITS + 1;

/// A pattern, made for many texts.
///
/// ```
/// use remora_protocol::glob::Glob;
/// let glob = Glob::new(b"user:[0-9]*", false).expect("it is short");
/// assert!(glob.matches(b"user:17") && !glob.matches(b"user:x"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob {
    /// For each byte a bit for each element that it matches; 64 elements in a word.
    masks: Vec<[u64; 256]>,
    /// The elements between stars. One part more than there are stars.
    parts: Vec<Range<usize>>,
    /// The empty text matches: as in Redis only if the pattern is empty, or one star.
    takes_nothing: bool,
}

impl Glob {
    /// The pattern that these bytes are; `None` if there are more than
    /// `MAX_PATTERN_BYTES`. `ignore_case` is for ASCII letters.
    pub fn new(pattern: &[u8], ignore_case: bool) -> Option<Self> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return None;
        }
        let mut glob = Self {
            masks: Vec::new(),
            parts: Vec::new(),
            takes_nothing: matches!(pattern, [] | [b'*']),
        };
        let (mut at, mut begin, mut elements) = (0, 0, 0);
        while at < pattern.len() {
            if pattern[at] == b'*' {
                glob.parts.push(begin..elements);
                begin = elements;
                at += 1;
                continue;
            }
            let (matched, next) = element(pattern, at, ignore_case);
            if elements % BITS == 0 {
                glob.masks.push([0; 256]);
            }
            let word = glob.masks.last_mut().expect("just made");
            for (mask, is_matched) in word.iter_mut().zip(matched) {
                *mask |= u64::from(is_matched) << (elements % BITS);
            }
            (at, elements) = (next, elements + 1);
        }
        glob.parts.push(begin..elements);
        Some(glob)
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        if text.is_empty() {
            return self.takes_nothing;
        }
        let (first, last) = match &self.parts[..] {
            [only] => return text.len() == only.len() && self.stands_at(only, text),
            [first, .., last] => (first, last),
            [] => unreachable!("a pattern has a part"),
        };
        let Some(left) = text.len().checked_sub(first.len() + last.len()) else { return false };
        if !self.stands_at(first, text) || !self.stands_at(last, &text[first.len() + left..]) {
            return false;
        }
        let mut text = &text[first.len()..first.len() + left];
        for part in &self.parts[1..self.parts.len() - 1] {
            match self.end_of(part, text) {
                Some(end) => text = &text[end..],
                None => return false,
            }
        }
        true
    }

    /// Whether a text, which is long enough, begins with these elements.
    fn stands_at(&self, part: &Range<usize>, text: &[u8]) -> bool {
        part.clone().zip(text).all(|(element, &byte)| {
            self.masks[element / BITS][byte as usize] >> (element % BITS) & 1 == 1
        })
    }

    /// The end of the first match of these elements in a text.
    fn end_of(&self, part: &Range<usize>, text: &[u8]) -> Option<usize> {
        let Some(last) = part.clone().last() else { return Some(0) };
        let masks = &self.masks[part.start / BITS..=last / BITS];
        // A bit for each element up to which the text before matches.
        let mut state = [0u64; WORDS];
        for (at, &byte) in text.iter().enumerate() {
            let mut carry = 1 << (part.start % BITS);
            for (word, masks) in state.iter_mut().zip(masks) {
                let shifted = *word << 1 | carry;
                carry = *word >> (BITS - 1);
                *word = shifted & masks[byte as usize];
            }
            if state[masks.len() - 1] >> (last % BITS) & 1 == 1 {
                return Some(at + 1);
            }
        }
        None
    }
}

/// The bytes that the element at a place matches, and where the next one begins.
fn element(pattern: &[u8], at: usize, ignore_case: bool) -> ([bool; 256], usize) {
    let mut matched = [false; 256];
    let next = match pattern[at..] {
        [b'?', ..] => {
            matched = [true; 256];
            at + 1
        }
        [b'[', ..] => class(pattern, at + 1, ignore_case, &mut matched),
        [b'\\', escaped, ..] => {
            literal(escaped, ignore_case, &mut matched);
            at + 2
        }
        _ => {
            literal(pattern[at], ignore_case, &mut matched);
            at + 1
        }
    };
    (matched, next)
}

fn literal(byte: u8, ignore_case: bool, matched: &mut [bool; 256]) {
    matched[byte as usize] = true;
    if ignore_case {
        matched[byte.to_ascii_lowercase() as usize] = true;
        matched[byte.to_ascii_uppercase() as usize] = true;
    }
}

/// The class whose `[` is before `at`. An unclosed class ends with the pattern.
fn class(pattern: &[u8], mut at: usize, ignore_case: bool, matched: &mut [bool; 256]) -> usize {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    let inverted = pattern.get(at) == Some(&b'^');
    at += usize::from(inverted);
    loop {
        match pattern.get(at..).unwrap_or(&[]) {
            [] => break,
            [b'\\', escaped, ..] => {
                // Redis compares escaped bytes of a class with their case.
                matched[*escaped as usize] = true;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [start, b'-', end, ..] => {
                let range = fold(*start.min(end))..=fold(*start.max(end));
                for byte in 0..=u8::MAX {
                    matched[byte as usize] |= range.contains(&fold(byte));
                }
                at += 3;
            }
            [byte, ..] => {
                literal(*byte, ignore_case, matched);
                at += 1;
            }
        }
    }
    if inverted {
        matched.iter_mut().for_each(|is_matched| *is_matched = !*is_matched);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use remora_testing::Random;

    fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
        Glob::new(pattern, ignore_case).expect("it is short").matches(text)
    }

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

    /// A search that starts again at each byte would take a minute for this.
    #[test]
    fn the_longest_pattern_and_a_long_text_take_a_word_for_each_byte() {
        let text = vec![b'a'; 16 << 20];
        let most = MAX_PATTERN_BYTES - 3;
        for pattern in [b"a*".repeat(most / 2), vec![b'a'; most], b"[ab]".repeat(most / 4)] {
            assert!(!matches(&[b"*", &pattern[..], b"b*"].concat(), &text, false));
        }
        assert!(Glob::new(&[b'a'; MAX_PATTERN_BYTES], false).is_some());
        assert!(Glob::new(&[b'a'; MAX_PATTERN_BYTES + 1], false).is_none());
    }

    /// Redis's `stringmatchlen`, as it stands there: slow and plain.
    fn oracle(mut pattern: &[u8], mut text: &[u8]) -> bool {
        while let (Some(&first), false) = (pattern.first(), text.is_empty()) {
            match first {
                b'*' => {
                    while pattern.get(1) == Some(&b'*') {
                        pattern = &pattern[1..];
                    }
                    return pattern.len() == 1
                        || (0..text.len()).any(|from| oracle(&pattern[1..], &text[from..]));
                }
                b'?' => text = &text[1..],
                b'[' => {
                    pattern = &pattern[1..];
                    let not = pattern.first() == Some(&b'^');
                    pattern = &pattern[usize::from(not)..];
                    let mut found = false;
                    loop {
                        if pattern.len() >= 2 && pattern[0] == b'\\' {
                            pattern = &pattern[1..];
                            found |= pattern[0] == text[0];
                        } else if pattern.is_empty() || pattern[0] == b']' {
                            break;
                        } else if pattern.len() >= 3 && pattern[1] == b'-' {
                            let (start, end) = (pattern[0], pattern[2]);
                            pattern = &pattern[2..];
                            found |= (start.min(end)..=start.max(end)).contains(&text[0]);
                        } else {
                            found |= pattern[0] == text[0];
                        }
                        pattern = &pattern[1..];
                    }
                    if found == not {
                        return false;
                    }
                    text = &text[1..];
                }
                _ => {
                    if first == b'\\' && pattern.len() >= 2 {
                        pattern = &pattern[1..];
                    }
                    if pattern[0] != text[0] {
                        return false;
                    }
                    text = &text[1..];
                }
            }
            pattern = pattern.get(1..).unwrap_or_default();
            if text.is_empty() {
                while pattern.first() == Some(&b'*') {
                    pattern = &pattern[1..];
                }
                break;
            }
        }
        pattern.is_empty() && text.is_empty()
    }

    /// A long pattern of parts that span words, made to match or to fail late.
    fn long_parts(random: &mut impl FnMut(usize) -> usize) -> (Vec<u8>, Vec<u8>) {
        let (mut pattern, mut text) = (Vec::new(), Vec::new());
        for _ in 0..1 + random(5) {
            for _ in 0..random(200) {
                let byte = b"ab"[random(2)];
                text.push(byte);
                match random(6) {
                    0 => pattern.push(b'?'),
                    1 => pattern.extend(b"[ab]"),
                    2 => pattern.extend([b'[', byte, b']']),
                    _ => pattern.push(byte),
                }
            }
            if random(3) > 0 {
                pattern.push(b'*');
                text.extend((0..random(80)).map(|at| b"ab"[at % 2]));
            }
        }
        if random(3) == 0 && !text.is_empty() {
            let at = random(text.len());
            text[at] ^= 3;
        }
        pattern.truncate(MAX_PATTERN_BYTES);
        (pattern, text)
    }

    #[test]
    fn parts_of_several_words_match_as_those_of_one() {
        let mut numbers = Random::new(77);
        let mut random = |end: usize| numbers.below(end);
        let mut matched = 0;
        for _ in 0..3_000 {
            let (pattern, text) = long_parts(&mut random);
            let is_match = matches(&pattern, &text, false);
            let expected = !text.is_empty() && by_last_star(&pattern, &text);
            assert_eq!(
                is_match,
                expected || matches!(pattern[..], [] | [b'*']) && text.is_empty(),
                "{}",
                pattern.escape_ascii()
            );
            matched += is_match as u32;
        }
        assert!((500..2_800).contains(&matched), "{matched}");
    }

    /// The plain way for long patterns: on a mismatch the last star takes one byte more.
    fn by_last_star(pattern: &[u8], text: &[u8]) -> bool {
        let (mut p, mut t, mut retry) = (0, 0, None);
        loop {
            if pattern.get(p) == Some(&b'*') {
                p += 1;
                retry = Some((p, t));
                continue;
            }
            match text.get(t) {
                None => return p >= pattern.len(),
                Some(&byte) if p < pattern.len() => {
                    let (matched, next) = element(pattern, p, false);
                    if matched[byte as usize] {
                        (p, t) = (next, t + 1);
                        continue;
                    }
                }
                Some(_) => {}
            }
            let Some((behind_star, from)) = retry else { return false };
            (p, t) = (behind_star, from + 1);
            retry = Some((behind_star, t));
        }
    }

    proptest! {
        #[test]
        fn short_patterns_match_as_in_redis(pattern in "[abc*?\\[\\]^\\\\-]{0,10}", text in "[abc]{0,10}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            // SCAN and KEYS take one star for all there is.
            let expected = pattern == b"*" || oracle(pattern, text);
            prop_assert_eq!(matches(pattern, text, false), expected);
        }

        #[test]
        fn no_bytes_panic(pattern: Vec<u8>, text: Vec<u8>) {
            if let Some(glob) = Glob::new(&pattern, true) {
                glob.matches(&text);
            }
        }
    }
}
