//! Values that a command hands to its expressions: the time, a seed, and the variables of `let`.

use crate::error::{DocumentError, FAILED_TO_PARSE};
use bson::raw::{CStr, RawBsonRef};
use bson::{RawBson, RawDocumentBuf, rawdoc};

/// What the expressions of one command see beside a document. The default has the time 0 and no variables.
///
/// ```
/// use bson::rawdoc;
/// use remora_document::{Filter, Variables};
///
/// let variables = Variables::parse(0, 1, Some(&rawdoc! { "least": 3 }))?;
/// let filter = rawdoc! { "$expr": { "$gte": ["$stock", "$$least"] } };
/// let filter = Filter::parse_with(&filter, &variables)?;
/// assert!(filter.matches(&rawdoc! { "stock": 3 }));
/// assert!(!filter.matches(&rawdoc! { "stock": 2 }));
/// # Ok::<(), remora_document::DocumentError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Variables {
    now_ms: i64,
    seed: u64,
    /// In the order of their positions, by which expressions know them. A missing value is one.
    user: Vec<(String, Option<RawBson>)>,
}

impl Variables {
    /// The time in Unix ms and a seed, without variables of a user.
    pub(crate) fn new(now_ms: i64, seed: u64) -> Variables {
        Variables { now_ms, seed, user: Vec::new() }
    }

    /// The document `let` that makes these variables again.
    #[must_use]
    pub fn to_let(&self) -> RawDocumentBuf {
        let mut values = RawDocumentBuf::new();
        for (name, value) in &self.user {
            let Ok(name) = <&CStr>::try_from(name.as_str()) else { continue };
            match value {
                Some(value) => values.append(name, rawdoc! { "$literal": value.clone() }),
                None => values.append(name, "$$REMOVE"),
            }
        }
        values
    }

    /// Sets a variable.
    pub(crate) fn set(&mut self, name: &str, value: Option<RawBson>) {
        match self.user.iter_mut().find(|(known, _)| known == name) {
            Some((_, place)) => *place = value,
            None => self.user.push((name.to_owned(), value)),
        }
    }

    /// The position of a variable.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.user.iter().position(|(known, _)| known == name)
    }

    pub(crate) fn get(&self, position: usize) -> Option<RawBsonRef<'_>> {
        self.user.get(position)?.1.as_ref().map(RawBson::as_raw_bson_ref)
    }

    /// The time, Unix ms.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// What one evaluation may use.
    pub(crate) fn env(&self) -> Env<'_> {
        Env::new(self)
    }
}

/// What one evaluation of expressions, for one document, sees and may use.
#[derive(Debug)]
pub(crate) struct Env<'a> {
    pub(crate) variables: &'a Variables,
    steps: std::cell::Cell<u64>,
    random: std::cell::Cell<u64>,
}

impl<'a> Env<'a> {
    fn new(variables: &'a Variables) -> Env<'a> {
        Env {
            variables,
            steps: std::cell::Cell::new(0),
            random: std::cell::Cell::new(variables.seed),
        }
    }

    /// Counts steps.
    ///
    /// # Errors
    /// The expressions of a document have taken too many.
    pub(crate) fn spend(&self, steps: usize) -> Result<(), DocumentError> {
        let limit = remora_layout::limits::MAX_EXPRESSION_STEPS;
        let steps = self.steps.get().saturating_add(steps as u64);
        self.steps.set(steps);
        if steps <= limit {
            return Ok(());
        }
        let text = format!("the expressions of one document take more than {limit} steps");
        Err(DocumentError::new(crate::error::OPERATION_FAILED, text))
    }

    /// Counts the bytes of a value that is made, and checks that there are not too many.
    pub(crate) fn spend_bytes(&self, bytes: usize) -> Result<(), DocumentError> {
        crate::value::fits(bytes)?;
        self.spend(bytes / 64)
    }

    /// A random number from 0 to 1: SplitMix64 (Steele, Lea, Flood 2014).
    pub(crate) fn random(&self) -> f64 {
        let mut state = self.random.get();
        let value = next_random(&mut state);
        self.random.set(state);
        (value >> 11) as f64 / (1u64 << 53) as f64
    }

    /// What the next evaluation begins with.
    pub(crate) fn seed(&self) -> u64 {
        self.random.get()
    }
}

/// The next number of SplitMix64.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Checks the name of a variable that a user defines.
pub(crate) fn check_name(name: &str) -> Result<(), DocumentError> {
    let bad = |text: String| Err(DocumentError::new(FAILED_TO_PARSE, text));
    let Some(first) = name.chars().next() else {
        return bad("empty variable names are not allowed".to_owned());
    };
    if !first.is_ascii_lowercase() && first.is_ascii() {
        return bad(format!("'{name}' starts with an invalid character for a user variable name"));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    match name.chars().find(|c| !is_allowed(*c)) {
        Some(c) => {
            bad(format!("'{name}' contains an invalid character for a variable name: '{c}'"))
        }
        None => Ok(()),
    }
}
