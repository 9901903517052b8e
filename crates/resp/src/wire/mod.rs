//! The wire: RESP2 and RESP3. Requests look the same in both.

mod args;
pub mod encode;
mod inline;
mod parse;
mod parsed;
mod skip;
mod value;
mod value_write;

pub use args::{Args, Made, Words};
pub use encode::Protocol;
pub use parse::{parse, peek_key, peek_words};
pub use parsed::{Parsed, ProtocolError};
pub use skip::{Skip, Skipped};
pub use value::{MAX_VALUE_DEPTH, ParsedValue, Value, ValueError};
