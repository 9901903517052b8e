//! SORT: what is asked of shards, one question after the other, and the result. It asks no shard itself.
//!
//! The elements come first; then, where they are sorted by other keys, the values of those; at last the
//! values of the keys that GET names, of the elements that LIMIT leaves. Values are asked for some
//! elements at a time.
//!
//! Invariant: a turn ([`Sorting::turn`]) does a bounded part of the work, and all that is kept is bounded
//! by [`MAX_SORT_ELEMENTS`] and [`MAX_REPLY_BYTES`].

pub(crate) mod merge;
mod score;

use merge::{Compare, MergeSort};
use remora_frontend::OwnedReply;
use remora_layout::limits::{
    CONNECTION_KEYS_PER_TURN, MAX_KEY_BYTES, MAX_REPLY_BYTES, MAX_SORT_ELEMENTS, SORT_TURN_BYTES,
    SORT_TURN_ELEMENTS,
};
use remora_protocol::Items;
use remora_protocol::message::Status;
use score::score;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// A name of keys, with an element in the place of its star.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    before: Box<[u8]>,
    behind: Box<[u8]>,
    /// The name of a field of the keys' objects, whose value is meant.
    pub field: Option<Arc<[u8]>>,
}

impl Pattern {
    /// The pattern that a word is; `None` without a star.
    pub fn parse(word: &[u8]) -> Option<Self> {
        let star = word.iter().position(|byte| *byte == b'*')?;
        let (before, behind) = (&word[..star], &word[star + 1..]);
        let arrow = behind.windows(2).position(|two| two == b"->");
        let (behind, field) = match arrow.filter(|at| at + 2 < behind.len()) {
            Some(at) => (&behind[..at], Some(behind[at + 2..].into())),
            None => (behind, None),
        };
        Some(Self { before: before.into(), behind: behind.into(), field })
    }

    /// Bytes of the key for an element of this length.
    fn key_bytes(&self, element_bytes: usize) -> usize {
        self.before.len() + element_bytes + self.behind.len()
    }

    /// The key for an element; `None` if it, or the field, is longer than any there is.
    fn key(&self, element: &[u8]) -> Option<Box<[u8]>> {
        let is_long = self.field.as_ref().is_some_and(|field| field.len() > MAX_KEY_BYTES)
            || self.key_bytes(element.len()) > MAX_KEY_BYTES;
        (!is_long).then(|| [&self.before, element, &self.behind].concat().into())
    }
}

/// What elements are sorted by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum By {
    /// Themselves.
    Element,
    /// Nothing: they keep the order that they have.
    Nothing,
    /// The values of other keys.
    Pattern(Pattern),
}

/// What the reply has of an element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Get {
    /// The element.
    Element,
    /// Nothing: null.
    Nothing,
    /// The value of another key.
    Pattern(Pattern),
}

/// What SORT is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SortOptions {
    /// BY.
    pub by: By,
    /// ALPHA: text is compared, and no numbers.
    pub is_alpha: bool,
    /// DESC.
    pub is_descending: bool,
    /// LIMIT: elements that are left out at first, and how many follow; all if that is below 0.
    pub limit: (i64, i64),
    /// GET, in order; without any the reply has the elements.
    pub gets: Vec<Get>,
    /// STORE: the result becomes a key's object.
    pub is_stored: bool,
}

impl Default for SortOptions {
    fn default() -> Self {
        Self {
            by: By::Element,
            is_alpha: false,
            is_descending: false,
            limit: (0, -1),
            gets: Vec::new(),
            is_stored: false,
        }
    }
}

/// What comes next.
#[derive(Debug)]
pub enum SortStep {
    /// Another turn.
    Again,
    /// The values of these keys, or of this field of their objects; of `None` there is no value. Then
    /// [`Sorting::take_values`], and a turn.
    Look {
        /// The keys.
        keys: Vec<Option<Box<[u8]>>>,
        /// The field.
        field: Option<Arc<[u8]>>,
    },
    /// The result: [`Items`], of which there are so many.
    Done {
        /// The items.
        items: Vec<u8>,
        /// Their number.
        count: u64,
    },
}

/// A SORT under way.
#[derive(Debug)]
pub struct Sorting {
    options: SortOptions,
    /// They have an order of their own, so that only those of [`Sorting::range`] came.
    is_ordered: bool,
    elements: Elements,
    phase: Phase,
    result: Vec<u8>,
    count: u64,
}

#[derive(Debug)]
enum Phase {
    /// The elements are looked at, from this byte of their list on.
    Split(usize),
    Weigh,
    Sort(MergeSort),
    Give(Giving),
}

/// The elements, and their weights.
#[derive(Debug, Default)]
struct Elements {
    list: Vec<u8>,
    /// Where each is in the list.
    places: Vec<(u32, u32)>,
    weights: Weights,
}

#[derive(Debug, Default)]
enum Weights {
    /// The elements are compared.
    #[default]
    None,
    Scores(Vec<f64>),
    /// Bytes of each text, one behind the other, and where each is; `None` without one.
    Texts(Vec<u8>, Vec<Option<Range<u32>>>),
}

impl Elements {
    fn element(&self, number: u32) -> &[u8] {
        let (from, bytes) = self.places[number as usize];
        &self.list[from as usize..][..bytes as usize]
    }

    fn count(&self) -> usize {
        self.places.len()
    }

    fn text(&self, number: u32) -> Option<&[u8]> {
        match &self.weights {
            Weights::Texts(bytes, places) => places[number as usize]
                .as_ref()
                .map(|place| &bytes[place.start as usize..place.end as usize]),
            Weights::None | Weights::Scores(_) => Some(self.element(number)),
        }
    }
}

/// The order of elements.
struct Ordered<'a> {
    elements: &'a Elements,
    is_descending: bool,
}

impl Compare for Ordered<'_> {
    fn compare(&self, a: u32, b: u32) -> Ordering {
        let of = self.elements;
        let order = match &of.weights {
            // Of equal scores the elements decide, as in Redis.
            Weights::Scores(scores) => compare_scores(scores[a as usize], scores[b as usize])
                .then_with(|| of.element(a).cmp(of.element(b))),
            Weights::None | Weights::Texts(..) => of.text(a).cmp(&of.text(b)),
        };
        if self.is_descending { order.reverse() } else { order }
    }

    fn cost(&self, number: u32) -> usize {
        let text = self.elements.text(number).map_or(0, <[u8]>::len);
        1 + text / BYTES_AS_ONE
    }
}

/// Bytes of text whose comparison costs about what an element costs otherwise.
const BYTES_AS_ONE: usize = 256;

/// Both zeros are equal; none of the scores is NaN.
fn compare_scores(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

/// The result is being made.
#[derive(Debug)]
struct Giving {
    /// The elements of the reply, in order.
    order: Vec<u32>,
    /// The first one that is not told yet.
    next: usize,
    /// The end of those whose values are asked for.
    end: usize,
    /// Lists of values of those, one for each GET that has a pattern.
    values: Vec<Vec<u8>>,
}

impl Sorting {
    /// Nothing is asked yet.
    pub fn new(options: SortOptions) -> Self {
        Self {
            options,
            is_ordered: false,
            elements: Elements::default(),
            phase: Phase::Split(0),
            result: Vec::new(),
            count: 0,
        }
    }

    /// The range of the elements that are wanted, if they have an order, as of
    /// [`remora_protocol::Command::Elements`].
    pub fn range(&self) -> (i64, i64) {
        let (offset, count) = self.options.limit;
        let offset = offset.max(0);
        let end = offset.saturating_add(count);
        match (&self.options.by, self.options.is_descending) {
            (By::Element | By::Pattern(_), _) => (0, -1),
            _ if count == 0 => (1, 0),
            (By::Nothing, false) if count < 0 => (offset, -1),
            (By::Nothing, false) => (offset, end - 1),
            (By::Nothing, true) if count < 0 => (0, -1 - offset),
            (By::Nothing, true) => (-end, -1 - offset),
        }
    }

    /// Bytes that it keeps, about.
    pub fn bytes(&self) -> usize {
        let Elements { list, places, weights } = &self.elements;
        let weights = match weights {
            Weights::None => 0,
            Weights::Scores(scores) => size_of_val(&scores[..]),
            Weights::Texts(bytes, places) => bytes.len() + size_of_val(&places[..]),
        };
        let order = match &self.phase {
            Phase::Split(_) | Phase::Weigh => 0,
            Phase::Sort(_) => 2 * size_of::<u32>() * places.len(),
            Phase::Give(giving) => {
                let values: usize = giving.values.iter().map(Vec::len).sum();
                size_of_val(&giving.order[..]) + values
            }
        };
        list.len() + size_of_val(&places[..]) + weights + order + self.result.len()
    }

    /// Takes the elements.
    ///
    /// # Errors
    /// The reply: there are none to be had, or too many.
    pub fn take_elements(&mut self, reply: OwnedReply) -> Result<(), OwnedReply> {
        if reply.status != Status::Ok {
            return Err(OwnedReply { value: None, number: 0, ..reply });
        }
        if reply.number / 2 > MAX_SORT_ELEMENTS as i64 {
            return Err(OwnedReply::status(Status::TooLarge));
        }
        self.is_ordered = reply.number % 2 == 1;
        self.elements.list = reply.value.unwrap_or_default();
        let options = &mut self.options;
        if options.by == By::Nothing && !self.is_ordered && options.is_stored {
            // What has no order would be stored in any: it is sorted as text, as in Redis.
            (options.by, options.is_alpha) = (By::Element, true);
        }
        self.elements.weights = match (options.is_alpha, &options.by) {
            (_, By::Nothing) | (true, By::Element) => Weights::None,
            (true, By::Pattern(_)) => Weights::Texts(Vec::new(), Vec::new()),
            (false, _) => Weights::Scores(Vec::new()),
        };
        Ok(())
    }

    /// Takes the values that were asked for, in the order of the keys.
    ///
    /// # Errors
    /// The status of the reply: a value is no number, or they are too long.
    pub fn take_values<'a>(
        &mut self,
        values: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Result<(), Status> {
        match &mut self.phase {
            Phase::Give(giving) => {
                let mut list = Vec::new();
                for value in values {
                    push(value, self.options.is_stored, &mut list);
                }
                giving.values.push(list);
                let bytes: usize = giving.values.iter().map(Vec::len).sum();
                if bytes + self.result.len() > MAX_REPLY_BYTES {
                    return Err(Status::TooLarge);
                }
            }
            _ => {
                for value in values {
                    self.elements.weights.push(value)?;
                }
            }
        }
        Ok(())
    }

    /// Goes on for one turn.
    ///
    /// # Errors
    /// The status of the reply: an element is no number, or the result is too long.
    pub fn turn(&mut self) -> Result<SortStep, Status> {
        match &mut self.phase {
            Phase::Split(at) => {
                let elements = &mut self.elements;
                for _ in 0..SORT_TURN_ELEMENTS {
                    let Some((element, rest)) = Items::split(&elements.list[*at..]) else {
                        self.phase = Phase::Weigh;
                        break;
                    };
                    *at = elements.list.len() - rest.len();
                    let bytes = element.map_or(0, <[u8]>::len);
                    elements.places.push(((*at - bytes) as u32, bytes as u32));
                }
            }
            Phase::Weigh => return self.weigh(),
            Phase::Sort(sort) => {
                let by =
                    Ordered { elements: &self.elements, is_descending: self.options.is_descending };
                if sort.turn(&by) {
                    let order = std::mem::replace(sort, MergeSort::new(0)).into_order();
                    self.begin_giving(order);
                }
            }
            Phase::Give(_) => return self.give(),
        }
        Ok(SortStep::Again)
    }

    /// Finds the weights of some more elements.
    fn weigh(&mut self) -> Result<SortStep, Status> {
        let Self { options, elements, .. } = self;
        let (from, count) = (elements.weights.count(), elements.count());
        if options.by == By::Nothing {
            let mut order: Vec<u32> = (0..count as u32).collect();
            if self.is_ordered && options.is_descending {
                order.reverse();
            }
            self.begin_giving(order);
        } else if matches!(elements.weights, Weights::None) || from == count {
            self.phase = Phase::Sort(MergeSort::new(count as u32));
        } else if let By::Pattern(pattern) = &options.by {
            let bytes = |at: usize| pattern.key_bytes(elements.element(at as u32).len());
            let to = chunk(from..count, CONNECTION_KEYS_PER_TURN, bytes);
            let keys = (from..to).map(|at| pattern.key(elements.element(at as u32))).collect();
            return Ok(SortStep::Look { keys, field: pattern.field.clone() });
        } else {
            let bytes = |at: usize| elements.element(at as u32).len();
            for at in from..chunk(from..count, SORT_TURN_ELEMENTS, bytes) {
                let score = score(elements.element(at as u32)).ok_or(Status::NotAnInteger)?;
                if let Weights::Scores(scores) = &mut elements.weights {
                    scores.push(score);
                }
            }
        }
        Ok(SortStep::Again)
    }

    /// The order is known; the reply has what LIMIT leaves of it.
    fn begin_giving(&mut self, mut order: Vec<u32>) {
        if !(self.is_ordered && self.options.by == By::Nothing) {
            let (offset, count) = self.options.limit;
            let offset = usize::try_from(offset.max(0)).unwrap_or(usize::MAX).min(order.len());
            order.drain(..offset);
            // All of them if the count is below 0.
            order.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        }
        let giving = Giving { order, next: 0, end: 0, values: Vec::new() };
        self.phase = Phase::Give(giving);
    }

    /// Adds the next elements to the result, or asks for the values that the reply has of them.
    fn give(&mut self) -> Result<SortStep, Status> {
        let Self { options, elements, phase: Phase::Give(giving), .. } = self else {
            return Err(Status::Malformed);
        };
        if giving.next == giving.order.len() {
            let items = std::mem::take(&mut self.result);
            return Ok(SortStep::Done { items, count: self.count });
        }
        let gets = &options.gets;
        if giving.end == giving.next {
            let most = match gets.len() {
                0 => SORT_TURN_ELEMENTS,
                gets => CONNECTION_KEYS_PER_TURN / gets,
            };
            let bytes = |at: usize| elements.element(giving.order[at]).len();
            giving.end = chunk(giving.next..giving.order.len(), most, bytes);
        }
        let mut of_patterns = gets.iter().filter_map(|get| match get {
            Get::Pattern(pattern) => Some(pattern),
            Get::Element | Get::Nothing => None,
        });
        let told = giving.next..giving.end;
        if let Some(pattern) = of_patterns.nth(giving.values.len()) {
            let key = |number: &u32| pattern.key(elements.element(*number));
            let keys = giving.order[told].iter().map(key).collect();
            return Ok(SortStep::Look { keys, field: pattern.field.clone() });
        }
        let values = std::mem::take(&mut giving.values);
        let mut values: Vec<_> = values
            .iter()
            .map(|list| Items::parse(list).into_iter().flat_map(Items::iter))
            .collect();
        for number in &giving.order[told] {
            let element = Some(elements.element(*number));
            let mut values = values.iter_mut();
            if gets.is_empty() {
                push(element, options.is_stored, &mut self.result);
            }
            for get in gets {
                let value = match get {
                    Get::Element => element,
                    Get::Nothing => None,
                    Get::Pattern(_) => values.next().and_then(Iterator::next).flatten(),
                };
                push(value, options.is_stored, &mut self.result);
            }
            self.count += gets.len().max(1) as u64;
            if self.result.len() > MAX_REPLY_BYTES {
                return Err(Status::TooLarge);
            }
        }
        giving.next = giving.end;
        Ok(SortStep::Again)
    }
}

impl Weights {
    fn count(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Scores(scores) => scores.len(),
            Self::Texts(_, places) => places.len(),
        }
    }

    /// Adds the weight that another key's value is.
    fn push(&mut self, value: Option<&[u8]>) -> Result<(), Status> {
        match self {
            Self::None => {}
            Self::Scores(scores) => {
                scores.push(value.map_or(Some(0.0), score).ok_or(Status::NotAnInteger)?);
            }
            Self::Texts(bytes, places) => {
                let from = bytes.len();
                bytes.extend_from_slice(value.unwrap_or_default());
                if bytes.len() > MAX_REPLY_BYTES {
                    return Err(Status::TooLarge);
                }
                places.push(value.map(|_| from as u32..bytes.len() as u32));
            }
        }
        Ok(())
    }
}

/// The end of the first of some numbers that a turn takes: at least one, if there is one, and at most
/// `most` and about [`SORT_TURN_BYTES`].
fn chunk(numbers: Range<usize>, most: usize, bytes: impl Fn(usize) -> usize) -> usize {
    let (mut to, mut sum) = (numbers.start, 0);
    while to < numbers.end && (to == numbers.start || to - numbers.start < most) {
        sum += bytes(to);
        to += 1;
        if sum >= SORT_TURN_BYTES {
            break;
        }
    }
    to
}

/// Adds an item to a result; a stored one has empty text where there is nothing.
fn push(value: Option<&[u8]>, is_stored: bool, list: &mut Vec<u8>) {
    match value {
        Some(value) => Items::push(list, value),
        None if is_stored => Items::push(list, b""),
        None => Items::push_none(list),
    }
}

#[cfg(test)]
mod tests;
