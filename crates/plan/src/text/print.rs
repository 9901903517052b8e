//! From plans to words.

use super::{ESCAPE, Query, is_clause};
use crate::plan::{Bytes, Comparison, Condition, Find, Limits, Objects, Range, Start, Step, Test};
use std::ops::Bound;

/// The words that say a plan: [`super::parse`] makes the same plan of them. Limits that the plan has
/// from [`Limits::default`] are not said, nor is PATH.
pub fn print(query: &Query) -> Vec<Bytes> {
    let plan = &query.plan;
    let mut words = Words(Vec::new());
    words.flag("EXPLAIN", query.explain);
    words.say("FROM");
    let tests_items = matches!(plan.steps().first(), Some(Step::Where(_)));
    words.start(plan.start(), tests_items);
    plan.steps().iter().for_each(|step| words.step(step));
    words.limits(plan.limits());
    words.0
}

struct Words(Vec<Bytes>);

impl Words {
    fn say(&mut self, word: impl ToString) {
        self.0.push(word.to_string().into_bytes().into());
    }

    fn bytes(&mut self, word: &Bytes) {
        self.0.push(word.clone());
    }

    fn flag(&mut self, word: &str, is_set: bool) {
        if is_set {
            self.say(word);
        }
    }

    fn start(&mut self, start: &Start, tests_items: bool) {
        match start {
            Start::Keys(keys) => {
                self.say("KEYS");
                self.say(keys.len());
                keys.iter().for_each(|key| self.bytes(key));
            }
            Start::List { key, start, stop, by_key } => {
                self.say("LIST");
                self.bytes(key);
                self.say(start);
                self.say(stop);
                self.flag("KEY", *by_key);
            }
            Start::Window { window, objects } => {
                self.say("WINDOW");
                self.bytes(&objects.tree);
                let corners = [window.min_x, window.min_y, window.max_x, window.max_y];
                corners.iter().for_each(|coordinate| self.say(coordinate));
                self.objects(objects, tests_items);
            }
            Start::Nearest { point: (x, y), count, objects } => {
                self.say("NEAREST");
                self.bytes(&objects.tree);
                self.say(x);
                self.say(y);
                self.say(count);
                self.objects(objects, tests_items);
            }
        }
    }

    /// The prefix ends the conditions on the objects, if one on their items follows.
    fn objects(&mut self, objects: &Objects, tests_items: bool) {
        objects.conditions.iter().for_each(|condition| self.condition(condition));
        if tests_items || !objects.prefix.is_empty() {
            self.say("KEY");
            self.bytes(&objects.prefix);
        }
    }

    fn condition(&mut self, condition: &Condition) {
        self.say("WHERE");
        self.bytes(&condition.field);
        match &condition.test {
            Test::Exists => self.say("EXISTS"),
            Test::Missing => self.say("MISSING"),
            Test::Is(comparison, value) => {
                let is_it = |(known, _): &&(Comparison, &str)| known == comparison;
                let (_, text) = Comparison::ALL.iter().find(is_it).expect("all are there");
                self.say(text);
                self.bytes(value);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Follow { field, by_key } => {
                self.say("FOLLOW");
                self.bytes(field);
                self.flag("KEY", *by_key);
            }
            Step::Each { by_key } => {
                self.say("EACH");
                self.flag("KEY", *by_key);
            }
            Step::Fields { by_key } => {
                self.say("FIELDS");
                self.flag("KEY", *by_key);
            }
            Step::Range(range) => self.range(range),
            Step::Find(Find { filter, count }) => {
                self.say("FIND");
                self.bytes(filter);
                if *count < u64::MAX {
                    self.say("COUNT");
                    self.say(count);
                }
            }
            Step::Walk { via, depth, once, by_key } => {
                self.say("WALK");
                self.bytes(via);
                self.say(depth);
                self.flag("REPEAT", !once);
                self.flag("KEY", *by_key);
            }
            Step::Suffix(suffix) => {
                self.say("SUFFIX");
                self.bytes(suffix);
            }
            Step::Where(condition) => self.condition(condition),
            Step::Get(fields) => {
                self.say("GET");
                fields.iter().for_each(|field| self.field(field));
            }
            Step::GetKey => self.say("GETKEY"),
            Step::GetAll => self.say("GETALL"),
            Step::GetLevel => self.say("GETLEVEL"),
            Step::Once => self.say("ONCE"),
            Step::Skip(count) => {
                self.say("SKIP");
                self.say(count);
            }
            Step::Take(count) => {
                self.say("TAKE");
                self.say(count);
            }
        }
    }

    fn range(&mut self, range: &Range) {
        self.say("RANGE");
        self.bound(&range.keys.from, "-");
        self.bound(&range.keys.to, "+");
        self.flag("REV", range.keys.is_reverse);
        if range.count < u64::MAX {
            self.say("COUNT");
            self.say(range.count);
        }
        self.flag("WITHKEYS", range.with_keys);
        self.flag("KEY", range.by_key);
    }

    /// A bound, or this word if there is none. Some keys need a `[` in front.
    fn bound(&mut self, bound: &Bound<Bytes>, open: &str) {
        match bound {
            Bound::Unbounded => self.say(open),
            Bound::Excluded(key) => self.0.push([b"(", &**key].concat().into()),
            Bound::Included(key) => match &**key {
                [b'(' | b'[', ..] | b"-" | b"+" => self.0.push([b"[", &**key].concat().into()),
                _ => self.bytes(key),
            },
        }
    }

    /// A field of a GET.
    fn field(&mut self, field: &Bytes) {
        if is_clause(field) || field.first() == Some(&ESCAPE) {
            self.0.push([&[ESCAPE], &**field].concat().into());
        } else {
            self.bytes(field);
        }
    }

    fn limits(&mut self, limits: &Limits) {
        let default = Limits::default();
        let all = [
            ("VISITS", limits.visits, default.visits),
            ("ROWS", limits.rows, default.rows),
            ("BYTES", limits.bytes, default.bytes),
            ("REMEMBERED", limits.remembered, default.remembered),
            ("MS", limits.time_ms, default.time_ms),
        ];
        for (name, limit, _) in all.into_iter().filter(|(_, limit, default)| limit != default) {
            self.say("LIMIT");
            self.say(name);
            self.say(limit);
        }
    }
}
