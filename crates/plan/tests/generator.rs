//! Random plans.

use crate::world::{FIELDS, KEYS, bytes, entry_key};
use remora_layout::rect::Rect;
use remora_plan::{
    Bytes, Comparison, Condition, KeyRange, Limits, Objects, Plan, Range, Start, Step, Test,
};
use remora_testing::Random;
use std::ops::Bound;

/// Where names and values come from.
#[derive(Clone, Copy)]
pub enum Names {
    /// The world: most plans give something.
    World,
    /// Anywhere: words of the text form, and any bytes.
    Wild,
}

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::AtMost,
    Comparison::Greater,
    Comparison::AtLeast,
];

impl Names {
    fn pick(self, random: &mut Random, world: &[&str]) -> Bytes {
        const WORDS: [&str; 14] = [
            "GET", "get", "\\GET", "\\", "KEY", "Limit", "WHERE", "=", "EXISTS", "REPEAT", "",
            "a.b", "TAKE", "FROM",
        ];
        match self {
            Self::World => bytes(random.pick(world)),
            Self::Wild if random.one_in(2) => bytes(random.pick(&WORDS)),
            Self::Wild => random.bytes_up_to(9).into(),
        }
    }

    fn number(self, random: &mut Random, usual: u64) -> u64 {
        match self {
            Self::World => random.below(usual),
            Self::Wild => random.bits() >> random.below(64u32),
        }
    }

    fn coordinate(self, random: &mut Random) -> f64 {
        match self {
            Self::World => f64::from(random.below(8u32)),
            Self::Wild => loop {
                let number = f64::from_bits(random.bits());
                if number.is_finite() {
                    break number;
                }
            },
        }
    }

    /// A plan within the bounds.
    pub fn plan(self, random: &mut Random) -> Plan {
        loop {
            let count = random.below(7usize);
            let start = self.start(random);
            let mut is_list = false;
            let mut steps: Vec<_> = (0..count).map(|_| self.step(random, &mut is_list)).collect();
            if start.first_key().is_some_and(|key| key.starts_with(b"o")) {
                steps.insert(0, Step::Range(self.range(random)));
            }
            if let Ok(plan) = Plan::new(start, steps, self.limits(random)) {
                break plan;
            }
        }
    }

    fn start(self, random: &mut Random) -> Start {
        match random.below(6u8) {
            0 => {
                let [start, stop] = [(); 2].map(|()| match self {
                    Self::World => i64::from(random.below(12i32)) - 6,
                    Self::Wild => random.bits() as i64 >> random.below(64u32),
                });
                let stop = if random.one_in(3) { -1 } else { stop };
                let key = self.pick(random, &["l0", "l1", "l2", "l3", "l4", "h0"]);
                Start::List { key, start, stop, by_key: random.one_in(2) }
            }
            3 if random.one_in(3) => {
                let (known, many) = (["o0", "o1", "o0", "h0"], random.within(1..4u32));
                Start::Keys((0..many).map(|_| self.pick(random, &known)).collect())
            }
            1 => {
                let mut corners = [(); 4].map(|()| self.coordinate(random));
                corners[..2].sort_by(f64::total_cmp);
                corners[2..].sort_by(f64::total_cmp);
                let [min_x, max_x, min_y, max_y] = corners;
                let window = Rect { min_x, max_x, min_y, max_y };
                Start::Window { window, objects: self.objects(random) }
            }
            2 => {
                let point = (self.coordinate(random), self.coordinate(random));
                let count = random.within(1..12u32);
                Start::Nearest { point, count, objects: self.objects(random) }
            }
            _ => {
                let many = if random.one_in(10) { 200 } else { random.within(1..5u32) };
                // Mostly hashes.
                let known = if random.one_in(6) { &KEYS[..] } else { &KEYS[..8] };
                Start::Keys((0..many).map(|_| self.pick(random, known)).collect())
            }
        }
    }

    fn objects(self, random: &mut Random) -> Objects {
        let tree = if random.one_in(20) { "none" } else { "tree" };
        let conditions = (0..random.below(3u8)).map(|_| match self {
            Self::World if random.one_in(2) => Condition {
                field: bytes("status"),
                test: Test::Is(Comparison::Equal, bytes("free")),
            },
            _ => self.condition(random),
        });
        let conditions = conditions.collect();
        Objects { tree: self.pick(random, &[tree]), conditions, prefix: self.pick(random, &["h"]) }
    }

    fn condition(self, random: &mut Random) -> Condition {
        let field = self.pick(random, &FIELDS);
        let test = match random.below(6u8) {
            0 => Test::Exists,
            1 => Test::Missing,
            _ => {
                let value = random.below(10u8).to_string();
                Test::Is(random.pick(&COMPARISONS), self.pick(random, &[&value]))
            }
        };
        Condition { field, test }
    }

    /// A step; mostly one that fits the item, which is a list or not, and says what the next one is.
    fn step(self, random: &mut Random, is_list: &mut bool) -> Step {
        let by_key = random.one_in(3);
        if *is_list && !random.one_in(5) {
            *is_list = random.one_in(9);
            return Step::Each { by_key };
        }
        if random.one_in(40) {
            return Step::Range(self.range(random));
        }
        match random.below(16u8) {
            0 | 1 => Step::Follow { field: self.pick(random, &FIELDS[..2]), by_key },
            2 | 3 => {
                *is_list = true;
                Step::Follow { field: self.pick(random, &FIELDS[2..4]), by_key }
            }
            4 if random.one_in(4) => Step::Each { by_key },
            4..=6 => Step::Walk {
                via: self.pick(random, &["list", "list", "more"]),
                depth: random.within(1..5u32),
                once: !random.one_in(3),
                by_key,
            },
            7 => Step::Where(self.condition(random)),
            8 | 9 => {
                let count = random.within(1..4u8);
                Step::Get((0..count).map(|_| self.pick(random, &FIELDS)).collect())
            }
            10 if random.one_in(2) => Step::Fields { by_key },
            10 => Step::GetAll,
            11 if random.one_in(2) => Step::Suffix(self.pick(random, &["", "0", "1"])),
            11 => Step::GetKey,
            12 => Step::GetLevel,
            13 => Step::Once,
            14 => Step::Skip(self.number(random, 4)),
            _ => Step::Take(self.number(random, 9)),
        }
    }

    fn range(self, random: &mut Random) -> Range {
        let mut bound = || match (random.below(3u8), self) {
            (0, _) => Bound::Unbounded,
            (kind, Self::Wild) => {
                let key = random.pick(&["", "(", "[", "-", "+", "(a", "KEY"]);
                if kind == 1 { Bound::Included(bytes(key)) } else { Bound::Excluded(bytes(key)) }
            }
            (1, Self::World) => Bound::Included(entry_key(random)),
            (_, Self::World) => Bound::Excluded(entry_key(random)),
        };
        let (from, to) = (bound(), bound());
        let count = if random.one_in(2) { u64::MAX } else { self.number(random, 130).max(1) };
        let keys = KeyRange { from, to, is_reverse: random.one_in(2) };
        Range { keys, count, with_keys: random.one_in(3), by_key: random.one_in(2) }
    }

    fn limits(self, random: &mut Random) -> Limits {
        let bytes = remora_plan::limits::MAX_RESULT_BYTES;
        let mut limits = Limits { visits: 3_000, bytes, ..Limits::default() };
        if random.one_in(2) {
            return limits;
        }
        match random.below(5u8) {
            0 => limits.visits = random.below(60),
            1 => limits.rows = random.below(12),
            2 => limits.bytes = random.below(900),
            3 => limits.remembered = random.below(8),
            _ => limits.time_ms = random.below(1_000),
        }
        limits
    }
}
