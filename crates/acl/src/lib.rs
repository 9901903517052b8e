//! Users and their rights, as Redis 7's ACL has them: pure logic without I/O or clock.
//!
//! * [`Users`]: the table. ACL SETUSER, DELUSER, AUTH, `requirepass`, the users' file.
//! * [`User`]: one user. [`User::check`] says whether it may make a [`Call`].
//! * [`Rights`]: what one selector allows.
//! * [`Commands`]: what this crate must know of a server's commands.
//! * [`Published`], [`Login`]: the users that threads share, and the login of a connection.
//! * [`Log`]: ACL LOG. [`Genpass`]: ACL GENPASS.
//!
//! Passwords are kept as SHA-256 and compared in constant time. `Debug` shows neither.
//!
//! The texts are those of Redis 7.0. What differs:
//!
//! * The rules of commands are described in their order, as Redis 7.2 does. 7.0 looks for rules
//!   that make the same set. Each reads the other's.
//! * A key pattern `*` that was given as `%RW~*` is described so. Redis writes `~*`, and then
//!   cannot read a line with a pattern behind it.
//! * A selector is divided at spaces. Redis also takes quotes away when it reads a selector, but
//!   it writes none.
//! * A selector that begins in another one is a syntax error, as in Redis 7.2. Redis 7.0 forgets
//!   the words of the first.
//! * Some rules are syntax errors because a line with them cannot be read again: a word in a
//!   selector that ends with `)`, a first argument with spaces, and `%` without a mark, with which
//!   Redis stops.
//! * `%R~*` matches the empty key.
//! * Everything that a client can make grow has a limit.
#![forbid(unsafe_code)]

mod bounded_count;
mod call;
mod command_rules;
mod command_set;
mod commands;
mod error;
mod file;
mod genpass;
mod log;
mod login;
mod password;
mod pattern;
mod rights;
mod scram_keys;
mod user;
mod user_counts;
mod users;
mod words;

pub use bounded_count::BoundedCount;
pub use call::{Call, Channel, Denied, Key};
pub use commands::{CommandId, Commands};
pub use error::{DeleteError, DryRunError, RuleError, SetUserError, WRONG_PASSWORD};
pub use genpass::{BadBits, Genpass};
pub use log::{Context, Entry, Log, Reason, Refusal};
pub use login::{Login, LoginError, Published};
pub use pattern::Access;
pub use rights::Rights;
pub use user::User;
pub use users::{DEFAULT_USER, Users};
