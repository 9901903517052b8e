//! From the syntax of PCRE, which MongoDB has, to that of the crate `regex`, where a pattern means
//! something in both, but not the same.
//!
//! * `\d`, `\s`, `\w` and `\b` know ASCII only. That also keeps the compiled pattern small.
//! * `$` also matches in front of a last line break, unless the option `m` is on.
//! * In brackets, `[`, `&&`, `--` and `~~` are characters.
//! * A possessive quantifier, which never gives back what it has taken, is an error.

use std::iter::Peekable;
use std::str::Chars;

/// The pattern in the syntax of the crate `regex`, or why there is none.
pub(super) fn translate(pattern: &str, options: &str) -> Result<String, &'static str> {
    let mut translation = Translation {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + pattern.len() / 4),
        is_multi_line: options.contains('m'),
        is_extended: options.contains('x'),
    };
    translation.pattern()?;
    Ok(translation.out)
}

struct Translation<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
    is_multi_line: bool,
    is_extended: bool,
}

impl Translation<'_> {
    fn pattern(&mut self) -> Result<(), &'static str> {
        let mut follows_quantifier = false;
        while let Some(c) = self.rest.next() {
            if c == '+' && follows_quantifier {
                return Err("possessive quantifiers are not supported");
            }
            // A `?` behind a group's parenthesis is none, and `group` takes it.
            follows_quantifier = matches!(c, '*' | '+' | '?' | '}') && !follows_quantifier;
            match c {
                '\\' => self.escape(),
                '[' => self.class(),
                '(' => self.group(),
                '$' if !self.is_multi_line => self.out.push_str(r"(?:\n?\z)"),
                '#' if self.is_extended => self.comment(),
                _ => self.out.push(c),
            }
        }
        Ok(())
    }

    /// A backslash outside of brackets.
    fn escape(&mut self) {
        match self.rest.next() {
            Some(c @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => {
                self.out.push('[');
                self.out.push_str(posix(c));
                self.out.push(']');
            }
            Some('b') => self.out.push_str(r"(?-u:\b)"),
            Some('Z') => self.out.push_str(r"(?:\n?\z)"),
            Some(c) => self.out.extend(['\\', c]),
            None => self.out.push('\\'),
        }
    }

    /// Flags inside the pattern hold for the rest of it here.
    fn group(&mut self) {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return;
        }
        self.out.push('?');
        while let Some(flag) = self.rest.next_if(|c| matches!(c, 'i' | 'm' | 's' | 'x')) {
            self.is_multi_line |= flag == 'm';
            self.is_extended |= flag == 'x';
            self.out.push(flag);
        }
    }

    /// A comment has no meaning, and may have brackets that do not match.
    fn comment(&mut self) {
        for c in self.rest.by_ref() {
            if c == '\n' {
                break;
            }
        }
    }

    /// What is in brackets.
    fn class(&mut self) {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        if self.rest.next_if_eq(&']').is_some() {
            self.out.push_str(r"\]");
        }
        while let Some(c) = self.rest.next() {
            match c {
                ']' => {
                    self.out.push(']');
                    return;
                }
                '\\' => match self.rest.next() {
                    Some(c @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => self.out.push_str(posix(c)),
                    Some('b') => self.out.push_str(r"\x08"),
                    Some(c) => self.out.extend(['\\', c]),
                    None => self.out.push('\\'),
                },
                '[' if self.rest.peek() == Some(&':') => self.named_class(),
                '[' | '&' | '~' | '#' | ' ' => self.out.extend(['\\', c]),
                '-' if self.rest.next_if_eq(&'-').is_some() => self.out.push_str(r"-\-"),
                _ => self.out.push(c),
            }
        }
    }

    /// `[:alpha:]`, which both know, up to its end.
    fn named_class(&mut self) {
        self.out.push('[');
        for c in self.rest.by_ref() {
            self.out.push(c);
            if c == ']' {
                return;
            }
        }
    }
}

/// The class of ASCII characters that an escape stands for, in brackets.
fn posix(escape: char) -> &'static str {
    match escape {
        'd' => "[:digit:]",
        'D' => "[:^digit:]",
        's' => "[:space:]",
        'S' => "[:^space:]",
        'w' => "[:word:]",
        _ => "[:^word:]",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, text: &str) -> bool {
        let translated = translate(pattern, "").expect("a pattern that is supported");
        let regex = regex::Regex::new(&translated);
        regex.unwrap_or_else(|error| panic!("{pattern}: {error}")).is_match(text)
    }

    #[test]
    fn classes_are_those_of_ascii() {
        for (pattern, text, expected) in [
            (r"^\w+$", "word_9", true),
            (r"^\w+$", "wörd", false),
            (r"^[\w-]+$", "a-b", true),
            (r"^[^\s\d]+$", "ab", true),
            (r"^[^\s\d]+$", "a1", false),
            (r"^\D\S\W$", "é→!", true),
            (r"\bon\b", "so on.", true),
            (r"\bon\b", "éon", true),
            (r"\d", "٣", false),
            (r"\\d", r"\d", true),
            (r"^\[\d$", "[5", true),
        ] {
            assert_eq!(is_match(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn the_end_is_also_in_front_of_a_last_line_break() {
        assert!(is_match("a$", "a\n"));
        assert!(!is_match("a$", "a\nb"));
        assert!(is_match("(?m)a$", "a\nb"));
        assert!(is_match(r"a\Z", "a\n"));
        assert!(!is_match(r"a\z", "a\n"));
        assert!(is_match(r"a\$", "a$"));
        assert!(is_match("[$]", "$"));
    }

    #[test]
    fn brackets_have_characters_only() {
        assert!(is_match("^[[a]$", "["));
        assert!(is_match("^[a&&b]$", "&"));
        assert!(is_match("^[]a]$", "]"));
        assert!(is_match("^[+--]$", ","));
        assert!(is_match("^[[:alpha:]]$", "q"));
        assert!(!is_match("^[^[]$", "["));
        assert!(is_match("^[~~ #]$", "#"));
    }

    #[test]
    fn possessive_quantifiers_are_errors() {
        for pattern in ["a++", "a*+", "a?+", "a{2}+"] {
            assert!(translate(pattern, "").is_err(), "{pattern}");
        }
        assert!(is_match(r"^\++$", "++"));
        assert!(is_match("^a+?b$", "aab"));
        assert!(is_match("^(?:a+)+$", "aa"));
    }

    #[test]
    fn comments_are_dropped() {
        assert_eq!(translate("a # it's [\nb", "x"), Ok("a b".into()));
        assert_eq!(translate("(?x)a # [\n", ""), Ok("(?x)a ".into()));
        assert_eq!(translate("a#b", ""), Ok("a#b".into()));
    }
}
