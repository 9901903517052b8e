//! Rust source without its comments and literals, for checks that look for
//! words in code. Lines and columns stay where they were.

/// `text` with comments and the insides of string and character literals
/// replaced by spaces.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out: Vec<char> = Vec::with_capacity(chars.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skipped_end(&chars, at);
        if end > at {
            out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out.into_iter().collect()
}

/// Where the comment or literal that begins at `at` ends; `at` if none does.
fn skipped_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => line_end(chars, at),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => string_end(chars, at + 1),
        'r' | 'b' | 'c' if !word_before(chars, at) => raw_string_end(chars, at),
        '\'' => char_end(chars, at),
        _ => at,
    }
}

fn word_before(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |length| at + length)
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0usize;
    let mut at = at;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

/// The end of a string whose first character stands at `at`.
fn string_end(chars: &[char], at: usize) -> usize {
    let mut at = at;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `r"..."`, `r#"..."#`, `br"..."`, `cr"..."`; `at` if it is none of them.
fn raw_string_end(chars: &[char], at: usize) -> usize {
    let mut from = at;
    while from < chars.len() && from < at + 2 && matches!(chars[from], 'b' | 'c' | 'r') {
        from += 1;
    }
    if chars[from - 1] != 'r' {
        return at; // b"..." and c"...": their quote is met next
    }
    let hashes = chars[from..].iter().take_while(|c| **c == '#').count();
    if chars.get(from + hashes) != Some(&'"') {
        return at;
    }
    let mut close = from + hashes + 1;
    while close < chars.len() {
        let tail = &chars[close + 1..chars.len().min(close + 1 + hashes)];
        if chars[close] == '"' && tail.len() == hashes && tail.iter().all(|c| *c == '#') {
            return close + 1 + hashes;
        }
        close += 1;
    }
    chars.len()
}

/// A character literal; `at` for a lifetime.
fn char_end(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        let close = chars[at + 3..].iter().position(|c| *c == '\'');
        return close.map_or(chars.len(), |length| at + 3 + length + 1);
    }
    if chars.get(at + 2) == Some(&'\'') { at + 3 } else { at }
}

/// Whether `word` stands in `line` with no letter, digit or `_` beside it.
pub fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(part)
            && !line[at + word.len()..].chars().next().is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_vanish_and_lines_stay() {
        let text = "a // unsafe\n/* unsafe /* x */ unsafe */ b\n\"unsafe \\\" unsafe\" c\nr#\"un\"safe\"# d\n'\"' e '\\'' f: &'a str";
        let code = code_only(text);
        assert_eq!(code.lines().count(), text.lines().count());
        assert!(!code.contains("unsafe") && !code.contains("safe"));
        for kept in ["a", "b", "c", "d", "e", "f: &'a str"] {
            assert!(code.contains(kept), "{kept} in {code:?}");
        }
    }

    #[test]
    fn prefixed_strings_and_words_ending_in_r() {
        assert!(!code_only("br\"unsafe\" b\"unsafe\" c\"unsafe\"").contains("unsafe"));
        assert_eq!(code_only("for x in bar").trim(), "for x in bar");
        assert_eq!(code_only("r#type b'x'").trim_end(), "r#type b");
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe {", "unsafe") && has_word("(unsafe)", "unsafe"));
        assert!(!has_word("forbid(unsafe_code)", "unsafe") && !has_word("xunsafe", "unsafe"));
    }
}
