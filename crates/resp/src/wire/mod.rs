//! The wire: RESP2 and RESP3. Requests look the same in both.

mod args;
pub mod encode;
mod inline;
mod parse;
mod protocol_error;
mod skip;
mod value;
mod value_write;

pub use args::{Args, Made, Words};
pub use encode::RespVersion;
pub use parse::{parse, peek_key, peek_words};
pub use protocol_error::ProtocolError;
pub use remora_frontend::{Parsed, Skipped};
pub use skip::Skip;
pub use value::{MAX_VALUE_DEPTH, ParsedValue, Value, ValueError};
