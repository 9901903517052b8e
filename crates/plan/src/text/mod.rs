//! Plans as words: the arguments of a command.
//!
//! ```text
//! plan    [EXPLAIN] FROM start [step ...] [LIMIT what most ...]
//! start   KEYS number key [key ...]
//!         LIST key start stop [KEY]
//!         WINDOW tree minx miny maxx maxy [WHERE condition ...] [KEY prefix]
//!         NEAREST tree x y count [WHERE condition ...] [KEY prefix]
//! step    FOLLOW field [KEY]             PATH field.field... [KEY]
//!         EACH [KEY]                     WALK field depth [REPEAT] [KEY]
//!         FIELDS [KEY]                   RANGE min max [REV] [COUNT count] [WITHKEYS] [KEY]
//!         SUFFIX text                    FIND filter [COUNT count]
//!         ONCE
//!         WHERE condition
//!         GET field [field ...]          GETKEY          GETALL          GETLEVEL
//!         SKIP rows                      TAKE rows
//! condition   field EXISTS | field MISSING | field comparison value
//! comparison  = | != | < | <= | > | >=
//! min, max    key | [key | (key, exclusive | - or +, the ends
//! what        VISITS | ROWS | BYTES | REMEMBERED | MS
//! ```
//! The case of these words does not matter. A WHERE directly behind WINDOW or NEAREST tests the objects
//! themselves; one behind `KEY prefix`, which may be empty, tests the items that they name. The fields of a
//! GET end at the next word that begins a step or a limit: a field with the name of such a word, or with a
//! `\` at its beginning, has one more `\` in front. All other names stand as they are, whatever they are.
//!
//! ```
//! use remora_plan::{Start, text};
//!
//! let words = "FROM NEAREST couriers 13.4 52.5 5 WHERE status = free KEY courier: \
//!              GET name phone FOLLOW zone GET name TAKE 5 LIMIT ROWS 100";
//! let words: Vec<&str> = words.split_whitespace().collect();
//! let query = text::parse(&words).unwrap();
//! assert!(matches!(query.plan.start(), Start::Nearest { count: 5, .. }));
//! assert_eq!(query.plan.steps().len(), 4);
//! assert_eq!(query.plan.limits().rows, 100);
//!
//! let error = text::parse(&["FROM", "KEYS", "1", "a", "FOLOW", "b"]).unwrap_err();
//! assert!(error.to_string().starts_with("word 5, 'FOLOW': expected a step ("));
//! ```

mod parse;
mod print;

pub use parse::parse;
pub use print::print;

use crate::plan::{BadPlan, Bytes, Plan};
use std::fmt;

/// A plan, and whether the counts of its run are wanted too.
#[derive(Clone, PartialEq, Debug)]
pub struct Query {
    /// The plan.
    pub plan: Plan,
    /// Whether EXPLAIN was said.
    pub explain: bool,
}

/// Why words are no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TextError {
    /// A word is wrong.
    #[error("word {number}, '{}': expected {expected}", Shown(.word))]
    Word {
        /// Its number; the first one is 1.
        number: usize,
        /// The word.
        word: Bytes,
        /// What would be right.
        expected: &'static str,
    },
    /// A word is missing at the end.
    #[error("the plan ends behind word {words}: expected {expected}")]
    Ended {
        /// The number of words.
        words: usize,
        /// What would be right.
        expected: &'static str,
    },
    /// The plan is not within the bounds.
    #[error(transparent)]
    Bad(#[from] BadPlan),
}

/// The beginning of a word, in an error.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST_BYTES: usize = 64;
        let start = &self.0[..self.0.len().min(MOST_BYTES)];
        write!(f, "{}", start.escape_ascii())?;
        if start.len() < self.0.len() { f.write_str("...") } else { Ok(()) }
    }
}

/// Words that end the fields of a GET.
const CLAUSES: [&str; 17] = [
    "FOLLOW", "PATH", "EACH", "FIELDS", "RANGE", "FIND", "WALK", "SUFFIX", "WHERE", "GET",
    "GETKEY", "GETALL", "GETLEVEL", "ONCE", "SKIP", "TAKE", "LIMIT",
];

fn is_clause(word: &[u8]) -> bool {
    CLAUSES.iter().any(|clause| word.eq_ignore_ascii_case(clause.as_bytes()))
}

/// Stands in front of a field of a GET that would be a clause.
const ESCAPE: u8 = b'\\';
