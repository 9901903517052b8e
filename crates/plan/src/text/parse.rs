//! From words to plans.

use super::{ESCAPE, Query, TextError, is_clause};
use crate::plan::{
    BadPlan, Bytes, Comparison, Condition, Find, KeyRange, Limits, Objects, Plan, Range, Start,
    Step, Test,
};
use remora_layout::integer;
use remora_layout::rect::Rect;
use std::ops::Bound;

const START: &str = "KEYS, LIST, WINDOW or NEAREST";
const STEP: &str = "a step (FOLLOW, PATH, EACH, FIELDS, RANGE, FIND, WALK, SUFFIX, WHERE, GET, GETKEY, GETALL, \
                    GETLEVEL, ONCE, SKIP, TAKE) or LIMIT";
const TEST: &str = "EXISTS, MISSING, =, !=, <, <=, > or >=";
const LIMIT: &str = "VISITS, ROWS, BYTES, REMEMBERED or MS";
const FIELD: &str = "a field";
const FIRST_FIELD: &str = "a field (one that is called like a step has a \\ in front)";
const PATH: &str = "fields with a dot between two of them";
const MIN: &str = "a smallest key (KEY, [KEY, (KEY or -)";
const MAX: &str = "a greatest key (KEY, [KEY, (KEY or +)";
const NUMBER: &str = "a whole number from 0";
const INDEX: &str = "a whole number";
const COORDINATE: &str = "a finite number";

/// The plan that the words say.
///
/// # Errors
/// The first word that is wrong, or that a word is missing, with what would be right; or which bound
/// the plan is not within.
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<Query, TextError> {
    let mut words = Words { words, at: 0 };
    let explain = words.accept("EXPLAIN");
    if !words.accept("FROM") {
        return Err(words.error(if explain { "FROM" } else { "FROM or EXPLAIN" }));
    }
    let start = words.start()?;
    let (mut steps, mut limits) = (Vec::new(), Limits::default());
    while !words.is_over() {
        words.clause(&mut steps, &mut limits)?;
    }
    Ok(Query { plan: Plan::new(start, steps, limits)?, explain })
}

/// The words, and the next one.
struct Words<'a, W> {
    words: &'a [W],
    at: usize,
}

impl<W: AsRef<[u8]>> Words<'_, W> {
    fn is_over(&self) -> bool {
        self.at == self.words.len()
    }

    fn peek(&self) -> Option<&[u8]> {
        self.words.get(self.at).map(AsRef::as_ref)
    }

    /// The next word, taken.
    fn next(&mut self, expected: &'static str) -> Result<Bytes, TextError> {
        let word = self.peek().ok_or_else(|| self.error(expected))?.into();
        self.at += 1;
        Ok(word)
    }

    /// Takes the next word if it is this one.
    fn accept(&mut self, word: &str) -> bool {
        let is_it = self.peek().is_some_and(|next| next.eq_ignore_ascii_case(word.as_bytes()));
        self.at += usize::from(is_it);
        is_it
    }

    /// The next word is not as expected.
    fn error(&self, expected: &'static str) -> TextError {
        match self.peek() {
            Some(word) => TextError::Word { number: self.at + 1, word: word.into(), expected },
            None => TextError::Ended { words: self.at, expected },
        }
    }

    /// Takes a word that reads as something.
    fn read<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<T, TextError> {
        let value = self.peek().and_then(read).ok_or_else(|| self.error(expected))?;
        self.at += 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<u64, TextError> {
        self.read(NUMBER, |word| {
            let is_number = word.first().is_some_and(u8::is_ascii_digit);
            str::from_utf8(word).ok().filter(|_| is_number)?.parse().ok()
        })
    }

    /// A number that is beyond a bound of plans if it has more than 32 bits.
    fn small(&mut self, bad: BadPlan) -> Result<u32, TextError> {
        Ok(self.number()?.try_into().map_err(|_| bad)?)
    }

    fn coordinate(&mut self) -> Result<f64, TextError> {
        self.read(COORDINATE, |word| {
            let number: f64 = str::from_utf8(word).ok()?.parse().ok()?;
            number.is_finite().then_some(number)
        })
    }

    fn start(&mut self) -> Result<Start, TextError> {
        if self.accept("KEYS") {
            let number = self.number()?;
            let left = (self.words.len() - self.at) as u64;
            let keys = (0..number.min(left + 1)).map(|_| self.next("a key"));
            return Ok(Start::Keys(keys.collect::<Result<_, _>>()?));
        }
        if self.accept("LIST") {
            let key = self.next("the key of a list")?;
            let start = self.read(INDEX, integer::parse)?;
            let stop = self.read(INDEX, integer::parse)?;
            return Ok(Start::List { key, start, stop, by_key: self.accept("KEY") });
        }
        if self.accept("WINDOW") {
            let tree = self.next("the key of a tree")?;
            let [min_x, min_y] = [self.coordinate()?, self.coordinate()?];
            let [max_x, max_y] = [self.coordinate()?, self.coordinate()?];
            let window = Rect { min_x, max_x, min_y, max_y };
            return Ok(Start::Window { window, objects: self.objects(tree)? });
        }
        if self.accept("NEAREST") {
            let tree = self.next("the key of a tree")?;
            let point = (self.coordinate()?, self.coordinate()?);
            let count = self.small(BadPlan::Count)?;
            return Ok(Start::Nearest { point, count, objects: self.objects(tree)? });
        }
        Err(self.error(START))
    }

    fn objects(&mut self, tree: Bytes) -> Result<Objects, TextError> {
        let mut conditions = Vec::new();
        while self.accept("WHERE") {
            conditions.push(self.condition()?);
        }
        let has_prefix = self.accept("KEY");
        let prefix = if has_prefix { self.next("a prefix of keys")? } else { Bytes::default() };
        Ok(Objects { tree, conditions, prefix })
    }

    fn condition(&mut self) -> Result<Condition, TextError> {
        let field = self.next(FIELD)?;
        if self.accept("EXISTS") {
            return Ok(Condition { field, test: Test::Exists });
        }
        if self.accept("MISSING") {
            return Ok(Condition { field, test: Test::Missing });
        }
        let known = |word: &[u8]| {
            let mut all = Comparison::ALL.into_iter();
            all.find(|(_, text)| text.as_bytes() == word).map(|(comparison, _)| comparison)
        };
        let comparison = self.read(TEST, known)?;
        Ok(Condition { field, test: Test::Is(comparison, self.next("a value to compare with")?) })
    }

    /// A step, or a limit.
    fn clause(&mut self, steps: &mut Vec<Step>, limits: &mut Limits) -> Result<(), TextError> {
        if self.accept("LIMIT") {
            return self.limit(limits);
        }
        if self.accept("PATH") {
            let is_path = |word: &[u8]| !word.split(|byte| *byte == b'.').any(<[u8]>::is_empty);
            let path = self.read(PATH, |word| is_path(word).then(|| Bytes::from(word)))?;
            steps.extend(Step::path(&path, self.accept("KEY")));
            return Ok(());
        }
        let step = self.step()?;
        steps.push(step);
        Ok(())
    }

    fn step(&mut self) -> Result<Step, TextError> {
        if self.accept("FOLLOW") {
            return Ok(Step::Follow { field: self.next(FIELD)?, by_key: self.accept("KEY") });
        }
        if self.accept("EACH") {
            return Ok(Step::Each { by_key: self.accept("KEY") });
        }
        if self.accept("FIELDS") {
            return Ok(Step::Fields { by_key: self.accept("KEY") });
        }
        if self.accept("RANGE") {
            return Ok(Step::Range(self.range()?));
        }
        if self.accept("FIND") {
            let filter = self.next("a filter")?;
            let count = if self.accept("COUNT") { self.number()? } else { u64::MAX };
            return Ok(Step::Find(Find { filter, count }));
        }
        if self.accept("WALK") {
            let (via, depth) = (self.next(FIELD)?, self.small(BadPlan::Depth)?);
            let (once, by_key) = (!self.accept("REPEAT"), self.accept("KEY"));
            return Ok(Step::Walk { via, depth, once, by_key });
        }
        if self.accept("SUFFIX") {
            return Ok(Step::Suffix(self.next("the end of a key")?));
        }
        if self.accept("WHERE") {
            return Ok(Step::Where(self.condition()?));
        }
        if self.accept("GET") {
            return self.get();
        }
        if self.accept("SKIP") {
            return Ok(Step::Skip(self.number()?));
        }
        if self.accept("TAKE") {
            return Ok(Step::Take(self.number()?));
        }
        let plain = [
            ("GETKEY", Step::GetKey),
            ("GETALL", Step::GetAll),
            ("GETLEVEL", Step::GetLevel),
            ("ONCE", Step::Once),
        ];
        let plain = plain.into_iter().find(|(word, _)| self.accept(word));
        plain.map(|(_, step)| step).ok_or_else(|| self.error(STEP))
    }

    fn range(&mut self) -> Result<Range, TextError> {
        let from = self.read(MIN, |word| Some(bound(word, b"-", b"+")))?;
        let to = self.read(MAX, |word| Some(bound(word, b"+", b"-")))?;
        // An end at the other end: nothing lies between.
        let nothing = || Bound::Excluded(Bytes::from(&b"0"[..]));
        let (from, to) = match (from, to) {
            (Some(from), Some(to)) => (from, to),
            _ => (nothing(), nothing()),
        };
        let is_reverse = self.accept("REV");
        let count = if self.accept("COUNT") { self.number()? } else { u64::MAX };
        let (with_keys, by_key) = (self.accept("WITHKEYS"), self.accept("KEY"));
        Ok(Range { keys: KeyRange { from, to, is_reverse }, count, with_keys, by_key })
    }

    fn get(&mut self) -> Result<Step, TextError> {
        let mut fields = Vec::new();
        while let Some(word) = self.peek().filter(|word| !is_clause(word)) {
            fields.push(word.strip_prefix(&[ESCAPE]).unwrap_or(word).into());
            self.at += 1;
        }
        if fields.is_empty() { Err(self.error(FIRST_FIELD)) } else { Ok(Step::Get(fields)) }
    }

    fn limit(&mut self, limits: &mut Limits) -> Result<(), TextError> {
        let names = ["VISITS", "ROWS", "BYTES", "REMEMBERED", "MS"];
        let Some(which) = (0..names.len()).find(|at| self.accept(names[*at])) else {
            return Err(self.error(LIMIT));
        };
        let Limits { visits, rows, bytes, remembered, time_ms } = limits;
        *[visits, rows, bytes, remembered, time_ms][which] = self.number()?;
        Ok(())
    }
}

/// An end of a range: `open` says that there is none; `None` is `wrong`, the other end's word.
fn bound(word: &[u8], open: &[u8], wrong: &[u8]) -> Option<Bound<Bytes>> {
    match word {
        word if word == open => Some(Bound::Unbounded),
        word if word == wrong => None,
        [b'(', key @ ..] => Some(Bound::Excluded(key.into())),
        [b'[', key @ ..] => Some(Bound::Included(key.into())),
        key => Some(Bound::Included(key.into())),
    }
}
