//! OP_QUERY, as far as drivers still use it: the first `hello` or `isMaster` of a connection,
//! before the client knows that the server understands OP_MSG. Its reply is an OP_REPLY.
//!
//! ```text
//! | header | flags u32 | collection, with zero byte | skip i32 | return i32 | document |
//! ```

use super::error::Refusal;
use crate::limits::MAX_BODY_DEPTH;
use crate::validate::validate;
use bson::RawDocument;

const COLLECTION: &[u8] = b"admin.$cmd\0";
const NUMBER_BYTES: usize = 4;
/// Names of the one command that may come this way.
const HANDSHAKES: [&str; 3] = ["hello", "isMaster", "ismaster"];

/// The first handshake: a command on the database `admin`.
#[derive(Clone, Copy, Debug)]
pub struct OpQuery<'a> {
    /// The command's document, which is valid. It has no `$db`.
    pub body: &'a RawDocument,
}

impl<'a> OpQuery<'a> {
    /// Reads what follows the header.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let rest = bytes.get(NUMBER_BYTES..).ok_or(Refusal::Query)?;
        let Some(rest) = rest.strip_prefix(COLLECTION) else {
            return Err(Refusal::UnsupportedQuery);
        };
        // Clients ask for one document by 1, or by -1 with the cursor closed.
        let document = rest.get(2 * NUMBER_BYTES..).ok_or(Refusal::Query)?;
        let body = validate(document, MAX_BODY_DEPTH)?;
        let name = body.iter_elements().next().and_then(Result::ok).map(|first| first.key());
        match name {
            Some(name) if HANDSHAKES.contains(&name.as_str()) => Ok(Self { body }),
            _ => Err(Refusal::UnsupportedQuery),
        }
    }
}
