//! Plans as bytes, in messages. The layer of messages says which version they have.
//!
//! ```text
//! plan        start | steps 1 | step ... | visits 8 | rows 8 | bytes 8 | remembered 8 | ms 8
//! start       0 | keys 4 | word ...                          KEYS
//!             1 or, if KEY, 5 | word | first 8 | last 8      LIST
//!             2 | minx 8 | maxx 8 | miny 8 | maxy 8 | objects
//!             3 | x 8 | y 8 | count 4 | objects
//! objects     word | conditions 1 | condition ... | word
//! step        0 + 64 if KEY | word                           FOLLOW
//!             1 + 64 if KEY                                  EACH
//!             2 + 64 if KEY + 128 if once | word | depth 4   WALK
//!             3 | condition                                  WHERE
//!             4 | fields 1 | word ...                        GET
//!             5, 6, 7                                        GETALL, GETKEY, ONCE
//!             8 | rows 8                                     SKIP
//!             9 | rows 8                                     TAKE
//!             10                                             GETLEVEL
//!             11 | word                                      SUFFIX
//!             12, 76                                         FIELDS, with KEY
//!             13 + 64 if KEY + 128 if REV | range            RANGE
//!             14 | word | documents 8                         FIND
//! range       bounds 1 | word of the lower one, if any | word of the upper one, if any | entries 8
//! bounds      lower + 4 * upper + 16 if WITHKEYS; of each 0 none, 1 inclusive, 2 exclusive
//! condition   test 1 | word | word to compare with, if the test has one
//! test        0 EXISTS, 1 MISSING, 2 =, 3 !=, 4 <, 5 <=, 6 >, 7 >=
//! word        length 4 | bytes
//! ```
//! Numbers are little-endian. Each plan has one form: [`decode`] refuses what [`encode`] does not give.
//!
//! ```
//! use remora_plan::{Limits, Plan, Start, Step, bytes};
//!
//! let start = Start::Keys(vec![(*b"user:7").into()]);
//! let plan = Plan::new(start, vec![Step::GetAll], Limits::default()).unwrap();
//! let mut form = bytes::encode(&plan);
//! assert_eq!(bytes::decode(&form), Some(plan));
//! form.push(0);
//! assert_eq!(bytes::decode(&form), None);
//! ```

use crate::limits::{MAX_CONDITIONS, MAX_GET_FIELDS, MAX_START_KEYS, MAX_STEPS};
use crate::plan::{
    Bytes, Comparison, Condition, Find, KeyRange, Limits, Objects, Plan, Range, Start, Step, Test,
};
use remora_layout::rect::Rect;
use std::ops::Bound;

const KEYS: u8 = 0;
const LIST: u8 = 1;
const WINDOW: u8 = 2;
const NEAREST: u8 = 3;
/// [`LIST`], with KEY.
const LIST_BY_KEY: u8 = 5;

const FOLLOW: u8 = 0;
const EACH: u8 = 1;
const WALK: u8 = 2;
const WHERE: u8 = 3;
const GET: u8 = 4;
const GET_ALL: u8 = 5;
const GET_KEY: u8 = 6;
const ONCE: u8 = 7;
const SKIP: u8 = 8;
const TAKE: u8 = 9;
const GET_LEVEL: u8 = 10;
const SUFFIX: u8 = 11;
const FIELDS: u8 = 12;
const RANGE: u8 = 13;
const FIND: u8 = 14;
/// Added to [`FOLLOW`], [`EACH`], [`FIELDS`], [`WALK`] and [`RANGE`].
const BY_KEY: u8 = 64;
/// Added to [`WALK`].
const EACH_ONCE: u8 = 128;
/// Added to [`RANGE`].
const REVERSE: u8 = 128;

/// Of a bound, and of the upper one times [`UPPER`].
const NO_BOUND: u8 = 0;
const INCLUSIVE: u8 = 1;
const EXCLUSIVE: u8 = 2;
const UPPER: u8 = 4;
/// Added to the bounds.
const WITH_KEYS: u8 = 16;

const EXISTS: u8 = 0;
const MISSING: u8 = 1;
/// The first comparison, in the order of [`Comparison::ALL`].
const COMPARISONS: u8 = 2;

// Numbers of parts fit their bytes.
const _: () = assert!(MAX_STEPS <= 255 && MAX_CONDITIONS <= 255 && MAX_GET_FIELDS <= 255);

/// The bytes of a plan.
pub fn encode(plan: &Plan) -> Vec<u8> {
    let mut out = Out(Vec::new());
    out.start(plan.start());
    out.byte(plan.steps().len() as u8);
    plan.steps().iter().for_each(|step| out.step(step));
    let Limits { visits, rows, bytes, remembered, time_ms } = *plan.limits();
    [visits, rows, bytes, remembered, time_ms].iter().for_each(|limit| out.word64(*limit));
    out.0
}

/// The plan that the bytes encode; `None` if they encode none, or one that is not within the bounds.
///
/// It takes memory in proportion to the bytes, whatever they say.
pub fn decode(bytes: &[u8]) -> Option<Plan> {
    let mut input = Input(bytes);
    let start = input.start()?;
    let count = input.byte()?.into();
    let steps = input.list(count, MAX_STEPS, Input::step)?;
    let [visits, rows, bytes] = [input.word64()?, input.word64()?, input.word64()?];
    let limits =
        Limits { visits, rows, bytes, remembered: input.word64()?, time_ms: input.word64()? };
    if !input.0.is_empty() {
        return None;
    }
    Plan::new(start, steps, limits).ok()
}

/// Bytes on their way out.
#[derive(Debug, Default)]
pub(crate) struct Out(pub(crate) Vec<u8>);

impl Out {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn word32(&mut self, word: u32) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    pub(crate) fn word64(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn double(&mut self, number: f64) {
        self.word64(number.to_bits());
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.word32(text.len() as u32);
        self.0.extend_from_slice(text);
    }

    fn start(&mut self, start: &Start) {
        match start {
            Start::Keys(keys) => {
                self.byte(KEYS);
                self.word32(keys.len() as u32);
                keys.iter().for_each(|key| self.text(key));
            }
            Start::List { key, start, stop, by_key } => {
                self.byte(if *by_key { LIST_BY_KEY } else { LIST });
                self.text(key);
                self.word64(*start as u64);
                self.word64(*stop as u64);
            }
            Start::Window { window: Rect { min_x, max_x, min_y, max_y }, objects } => {
                self.byte(WINDOW);
                [min_x, max_x, min_y, max_y].iter().for_each(|number| self.double(**number));
                self.objects(objects);
            }
            Start::Nearest { point: (x, y), count, objects } => {
                self.byte(NEAREST);
                self.double(*x);
                self.double(*y);
                self.word32(*count);
                self.objects(objects);
            }
        }
    }

    fn objects(&mut self, objects: &Objects) {
        self.text(&objects.tree);
        self.byte(objects.conditions.len() as u8);
        objects.conditions.iter().for_each(|condition| self.condition(condition));
        self.text(&objects.prefix);
    }

    fn condition(&mut self, condition: &Condition) {
        let position = |comparison: &Comparison| {
            let mut all = Comparison::ALL.iter();
            all.position(|(known, _)| known == comparison).expect("all are there") as u8
        };
        let (test, value) = match &condition.test {
            Test::Exists => (EXISTS, None),
            Test::Missing => (MISSING, None),
            Test::Is(comparison, value) => (COMPARISONS + position(comparison), Some(value)),
        };
        self.byte(test);
        self.text(&condition.field);
        value.into_iter().for_each(|value| self.text(value));
    }

    fn step(&mut self, step: &Step) {
        let by_key = |by_key: &bool| if *by_key { BY_KEY } else { 0 };
        match step {
            Step::Follow { field, by_key: flag } => {
                self.byte(FOLLOW + by_key(flag));
                self.text(field);
            }
            Step::Each { by_key: flag } => self.byte(EACH + by_key(flag)),
            Step::Fields { by_key: flag } => self.byte(FIELDS + by_key(flag)),
            Step::Walk { via, depth, once, by_key: flag } => {
                self.byte(WALK + by_key(flag) + if *once { EACH_ONCE } else { 0 });
                self.text(via);
                self.word32(*depth);
            }
            Step::Range(range) => {
                let reverse = if range.keys.is_reverse { REVERSE } else { 0 };
                self.byte(RANGE + by_key(&range.by_key) + reverse);
                self.range(range);
            }
            Step::Find(Find { filter, count }) => {
                self.byte(FIND);
                self.text(filter);
                self.word64(*count);
            }
            Step::Where(condition) => {
                self.byte(WHERE);
                self.condition(condition);
            }
            Step::Get(fields) => {
                self.byte(GET);
                self.byte(fields.len() as u8);
                fields.iter().for_each(|field| self.text(field));
            }
            Step::GetAll => self.byte(GET_ALL),
            Step::GetKey => self.byte(GET_KEY),
            Step::GetLevel => self.byte(GET_LEVEL),
            Step::Once => self.byte(ONCE),
            Step::Skip(count) => {
                self.byte(SKIP);
                self.word64(*count);
            }
            Step::Take(count) => {
                self.byte(TAKE);
                self.word64(*count);
            }
            Step::Suffix(suffix) => {
                self.byte(SUFFIX);
                self.text(suffix);
            }
        }
    }
}

impl Out {
    fn range(&mut self, range: &Range) {
        let bounds = [&range.keys.from, &range.keys.to].map(|bound| match bound {
            Bound::Unbounded => (NO_BOUND, None),
            Bound::Included(key) => (INCLUSIVE, Some(key)),
            Bound::Excluded(key) => (EXCLUSIVE, Some(key)),
        });
        let [(lower, _), (upper, _)] = bounds;
        self.byte(lower + UPPER * upper + if range.with_keys { WITH_KEYS } else { 0 });
        bounds.iter().filter_map(|(_, key)| *key).for_each(|key| self.text(key));
        self.word64(range.count);
    }
}

/// What is left to decode.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn word32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn word64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn double(&mut self) -> Option<f64> {
        self.word64().map(f64::from_bits)
    }

    pub(crate) fn text(&mut self) -> Option<Bytes> {
        let length = self.word32()? as usize;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text.into())
    }

    /// So many parts, at most `most`. Each takes a byte at least.
    pub(crate) fn list<T>(
        &mut self,
        count: usize,
        most: usize,
        mut part: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let fits = count <= most && count <= self.0.len();
        fits.then(|| (0..count).map(|_| part(self)).collect())?
    }

    fn start(&mut self) -> Option<Start> {
        let kind = self.byte()?;
        match kind {
            KEYS => {
                let count = self.word32()? as usize;
                Some(Start::Keys(self.list(count, MAX_START_KEYS, Self::text)?))
            }
            LIST | LIST_BY_KEY => {
                let key = self.text()?;
                let (start, stop) = (self.word64()? as i64, self.word64()? as i64);
                Some(Start::List { key, start, stop, by_key: kind != LIST })
            }
            WINDOW => {
                let [min_x, max_x] = [self.double()?, self.double()?];
                let [min_y, max_y] = [self.double()?, self.double()?];
                let window = Rect { min_x, max_x, min_y, max_y };
                Some(Start::Window { window, objects: self.objects()? })
            }
            NEAREST => {
                let point = (self.double()?, self.double()?);
                Some(Start::Nearest { point, count: self.word32()?, objects: self.objects()? })
            }
            _ => None,
        }
    }

    fn objects(&mut self) -> Option<Objects> {
        let tree = self.text()?;
        let count = self.byte()?.into();
        let conditions = self.list(count, MAX_CONDITIONS, Self::condition)?;
        Some(Objects { tree, conditions, prefix: self.text()? })
    }

    fn condition(&mut self) -> Option<Condition> {
        let test = self.byte()?;
        let field = self.text()?;
        let test = match test {
            EXISTS => Test::Exists,
            MISSING => Test::Missing,
            _ => {
                let (comparison, _) = Comparison::ALL.get(usize::from(test - COMPARISONS))?;
                Test::Is(*comparison, self.text()?)
            }
        };
        Some(Condition { field, test })
    }

    fn step(&mut self) -> Option<Step> {
        let kind = self.byte()?;
        let (by_key, once) = (kind & BY_KEY != 0, kind & EACH_ONCE != 0);
        match (kind & !(BY_KEY | EACH_ONCE), by_key, once) {
            (FOLLOW, _, false) => Some(Step::Follow { field: self.text()?, by_key }),
            (EACH, _, false) => Some(Step::Each { by_key }),
            (FIELDS, _, false) => Some(Step::Fields { by_key }),
            (WALK, ..) => {
                Some(Step::Walk { via: self.text()?, depth: self.word32()?, once, by_key })
            }
            (RANGE, _, is_reverse) => Some(Step::Range(self.range(is_reverse, by_key)?)),
            (plain, false, false) => self.plain_step(plain),
            _ => None,
        }
    }

    fn range(&mut self, is_reverse: bool, by_key: bool) -> Option<Range> {
        let bounds = self.byte()?;
        let with_keys = bounds & WITH_KEYS != 0;
        let (lower, upper) = (bounds % UPPER, (bounds & !WITH_KEYS) / UPPER);
        let (from, to) = (self.bound(lower)?, self.bound(upper)?);
        let keys = KeyRange { from, to, is_reverse };
        Some(Range { keys, count: self.word64()?, with_keys, by_key })
    }

    fn bound(&mut self, kind: u8) -> Option<Bound<Bytes>> {
        match kind {
            NO_BOUND => Some(Bound::Unbounded),
            INCLUSIVE => Some(Bound::Included(self.text()?)),
            EXCLUSIVE => Some(Bound::Excluded(self.text()?)),
            _ => None,
        }
    }

    fn plain_step(&mut self, kind: u8) -> Option<Step> {
        match kind {
            WHERE => Some(Step::Where(self.condition()?)),
            GET => {
                let count = self.byte()?.into();
                Some(Step::Get(self.list(count, MAX_GET_FIELDS, Self::text)?))
            }
            GET_ALL => Some(Step::GetAll),
            GET_KEY => Some(Step::GetKey),
            GET_LEVEL => Some(Step::GetLevel),
            ONCE => Some(Step::Once),
            SKIP => Some(Step::Skip(self.word64()?)),
            TAKE => Some(Step::Take(self.word64()?)),
            SUFFIX => Some(Step::Suffix(self.text()?)),
            FIND => Some(Step::Find(Find { filter: self.text()?, count: self.word64()? })),
            _ => None,
        }
    }
}
