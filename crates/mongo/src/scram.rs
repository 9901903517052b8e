//! The server's side of SCRAM-SHA-256, in the commands `saslStart` and `saslContinue` and in
//! `speculativeAuthenticate` of the handshake.
//!
//! ```text
//! saslStart     n,,n=user,r=<client's nonce>        ->  r=<both nonces>,s=<salt>,i=<iterations>
//! saslContinue  c=biws,r=<both nonces>,p=<proof>    ->  v=<the server's signature>
//! saslContinue  (empty, unless it is to be skipped) ->  (empty)
//! ```
//!
//! The state machine draws no random numbers: nonces and salts come from the caller. A user that
//! does not exist goes through the same steps with a salt that never changes, and fails at the
//! proof, as with a wrong password.
//!
//! Sources: RFC 5802, RFC 7677, and "Authentication" of the drivers' specifications.

use crate::command::Command;
use crate::reply::{CommandError, ErrorCode};
use crate::writer::DocumentWriter;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::raw::RawBsonRef;
use bson::{RawDocument, cstr};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::{fmt, mem};
use subtle::{Choice, ConstantTimeEq as _};
use thiserror::Error;

/// The name of the mechanism.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// Iterations for new passwords: those of MongoDB.
pub const ITERATIONS: u32 = 15_000;
/// Fewest iterations that drivers accept.
pub const MIN_ITERATIONS: u32 = 4096;
/// Bytes of a salt: those of MongoDB.
pub const SALT_BYTES: usize = 28;
/// Longest message of a client.
const MAX_PAYLOAD_BYTES: usize = 4096;
/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// A connection logs in one step after the other, so that one number is enough.
const CONVERSATION_ID: i32 = 1;

type Key = [u8; KEY_BYTES];

/// Why a login fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ScramError {
    /// No such user, or the wrong password.
    #[error("Authentication failed.")]
    Failed,
    /// Another mechanism.
    #[error("Received authentication for mechanism that is not enabled; only SCRAM-SHA-256 is")]
    Mechanism,
    /// The client's message is not as the RFC has it.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// There is no such conversation, or it is over.
    #[error("No SASL session state found")]
    NoConversation,
    /// The password has characters that RFC 4013 does not allow, or is empty.
    #[error("the password is not allowed")]
    Password,
    /// The server's nonce or the number of iterations does not suit; a mistake of the caller.
    #[error("the server's parameters do not suit")]
    Parameters,
}

impl ScramError {
    /// The code of the error that is the reply.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Failed => ErrorCode::AuthenticationFailed,
            Self::Mechanism | Self::Malformed(_) | Self::Password => ErrorCode::BadValue,
            Self::NoConversation => ErrorCode::ProtocolError,
            Self::Parameters => ErrorCode::InternalError,
        }
    }
}

impl From<ScramError> for CommandError {
    fn from(error: ScramError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// What the server stores of a password. A reader of it cannot log in with it.
#[derive(Clone)]
pub struct Credentials {
    salt: [u8; SALT_BYTES],
    salt_bytes: usize,
    iterations: u32,
    stored_key: Key,
    server_key: Key,
}

/// Without the keys: they are secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Of a password. `salt` has 8 to [`SALT_BYTES`] random bytes, another for each user and
    /// password. It takes some milliseconds.
    ///
    /// # Errors
    /// A password that is not allowed; a salt or a number of iterations out of bounds.
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> Result<Self, ScramError> {
        let prepared = stringprep::saslprep(password).map_err(|_| ScramError::Password)?;
        if prepared.is_empty() {
            return Err(ScramError::Password);
        }
        let mut salted = [0; KEY_BYTES];
        // Before the costly part.
        Self::from_keys(salt, iterations, salted, salted)?;
        pbkdf2::pbkdf2_hmac::<Sha256>(prepared.as_bytes(), salt, iterations, &mut salted);
        let client_key = hmac(&salted, &[b"Client Key"]);
        let stored_key = Sha256::digest(client_key).into();
        Self::from_keys(salt, iterations, stored_key, hmac(&salted, &[b"Server Key"]))
    }

    /// As stored before.
    ///
    /// # Errors
    /// A salt or a number of iterations out of bounds.
    pub fn from_keys(
        salt: &[u8],
        iterations: u32,
        stored_key: [u8; 32],
        server_key: [u8; 32],
    ) -> Result<Self, ScramError> {
        let bounds = 8..=SALT_BYTES;
        if !bounds.contains(&salt.len()) || iterations < MIN_ITERATIONS {
            return Err(ScramError::Parameters);
        }
        let mut padded = [0; SALT_BYTES];
        padded[..salt.len()].copy_from_slice(salt);
        Ok(Self { salt: padded, salt_bytes: salt.len(), iterations, stored_key, server_key })
    }

    /// As words of printable ASCII, for a file.
    pub fn to_text(&self) -> String {
        let of = |bytes: &[u8]| BASE64.encode(bytes);
        let (salt, stored, server) = (of(self.salt()), of(&self.stored_key), of(&self.server_key));
        format!("{}:{salt}:{stored}:{server}", self.iterations)
    }

    /// From such words.
    ///
    /// # Errors
    /// They are none.
    pub fn from_text(text: &[u8]) -> Result<Self, ScramError> {
        let text = std::str::from_utf8(text).map_err(|_| ScramError::Parameters)?;
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or(ScramError::Parameters);
        let iterations = next()?.parse().map_err(|_| ScramError::Parameters)?;
        let mut bytes = || BASE64.decode(next()?).map_err(|_| ScramError::Parameters);
        let (salt, stored, server) = (bytes()?, bytes()?, bytes()?);
        let key = |bytes: Vec<u8>| Key::try_from(bytes).map_err(|_| ScramError::Parameters);
        Self::from_keys(&salt, iterations, key(stored)?, key(server)?)
    }

    /// The salt.
    pub fn salt(&self) -> &[u8] {
        &self.salt[..self.salt_bytes]
    }

    /// The iterations.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// `StoredKey` of the RFC.
    pub fn stored_key(&self) -> &[u8; 32] {
        &self.stored_key
    }

    /// `ServerKey` of the RFC.
    pub fn server_key(&self) -> &[u8; 32] {
        &self.server_key
    }
}

/// Makes the answers for users that do not exist. A name has always the same salt, as long as the
/// secret stays the same.
#[derive(Clone)]
pub struct UnknownUsers {
    secret: [u8; 32],
    iterations: u32,
}

/// Without the secret.
impl fmt::Debug for UnknownUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnknownUsers").finish_non_exhaustive()
    }
}

impl UnknownUsers {
    /// From a random secret, which outlives the process, and the iterations of real users.
    pub fn new(secret: [u8; 32], iterations: u32) -> Self {
        Self { secret, iterations }
    }

    fn credentials(&self, database: &str, user: &str) -> Credentials {
        // The zero byte keeps `a.b` and `c` apart from `a` and `b.c`; names have none.
        let of =
            |label: &[u8]| hmac(&self.secret, &[label, database.as_bytes(), &[0], user.as_bytes()]);
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&of(b"salt")[..SALT_BYTES]);
        Credentials {
            salt,
            salt_bytes: SALT_BYTES,
            iterations: self.iterations,
            stored_key: of(b"stored"),
            server_key: of(b"server"),
        }
    }
}

/// The first message of a login.
#[derive(Clone, Debug)]
pub struct SaslStart<'a> {
    /// The name of the user.
    pub user: Cow<'a, str>,
    /// The database that the user belongs to.
    pub database: &'a str,
    /// The header of the message, `n,,` or `y,,`.
    gs2: &'a str,
    /// The message behind the header.
    bare: &'a str,
    client_nonce: &'a str,
    skip_empty: bool,
}

impl<'a> SaslStart<'a> {
    /// Of the command `saslStart`.
    ///
    /// # Errors
    /// Another mechanism, or a message that is not as the RFC has it.
    pub fn of(command: &Command<'a>) -> Result<Self, CommandError> {
        Ok(Self::read(command.body(), command.database())?)
    }

    /// Of `speculativeAuthenticate` in a handshake, which names its database itself.
    ///
    /// # Errors
    /// As of [`SaslStart::of`].
    pub fn of_speculative(document: &'a RawDocument) -> Result<Self, ScramError> {
        let database = document.get_str("db").map_err(|_| ScramError::Malformed("no db"))?;
        Self::read(document, database)
    }

    fn read(document: &'a RawDocument, database: &'a str) -> Result<Self, ScramError> {
        if document.get_str("mechanism").ok() != Some(MECHANISM) {
            return Err(ScramError::Mechanism);
        }
        let skip_empty = document
            .get_document("options")
            .is_ok_and(|options| options.get_bool("skipEmptyExchange").unwrap_or(false));
        let message = text(payload(document)?)?;
        let wrong = ScramError::Malformed;
        let gs2 = ["n,,", "y,,"].into_iter().find(|gs2| message.starts_with(gs2));
        // Channel binding and acting for another user are not offered.
        let gs2 = gs2.ok_or(wrong("the header is not n,, or y,,"))?;
        let bare = &message[gs2.len()..];
        let mut parts = bare.split(',');
        let user = parts.next().and_then(|part| part.strip_prefix("n="));
        let user = unescape(user.ok_or(wrong("no user"))?)?;
        let nonce = parts.next().and_then(|part| part.strip_prefix("r="));
        let client_nonce = nonce.filter(|nonce| is_nonce(nonce)).ok_or(wrong("no nonce"))?;
        // Extensions may follow. Optional ones are ignored, as the RFC says.
        if user.is_empty() || user.contains('\0') {
            return Err(wrong("no user"));
        }
        Ok(Self { user, database, gs2, bare, client_nonce, skip_empty })
    }

    /// Begins the conversation. `found` is what is stored for the user, or `None` if there is no
    /// such user. `server_nonce` has 18 random bytes or more, as printable ASCII without commas.
    ///
    /// # Errors
    /// The nonce does not suit.
    pub fn begin(
        &self,
        found: Option<&Credentials>,
        unknown: &UnknownUsers,
        server_nonce: &str,
    ) -> Result<(Conversation, SaslReply), ScramError> {
        if !is_nonce(server_nonce) || server_nonce.len() < 18 {
            return Err(ScramError::Parameters);
        }
        // Made for every user, so that the time is the same.
        let fake = unknown.credentials(self.database, &self.user);
        let is_known = Choice::from(u8::from(found.is_some()));
        let credentials = found.unwrap_or(&fake).clone();
        let nonce = format!("{}{server_nonce}", self.client_nonce);
        let salt = BASE64.encode(credentials.salt());
        let first = format!("r={nonce},s={salt},i={}", credentials.iterations);
        let proof = AwaitedProof {
            auth: format!("{},{first},", self.bare),
            binding: format!("c={}", BASE64.encode(self.gs2)),
            nonce,
            credentials,
            is_known,
            skip_empty: self.skip_empty,
        };
        let conversation = Conversation {
            user: self.user.clone().into_owned(),
            database: self.database.to_owned(),
            state: State::Proof(Box::new(proof)),
        };
        Ok((conversation, SaslReply { done: false, payload: first.into_bytes() }))
    }
}

/// The reply to a step of a login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaslReply {
    /// Whether the client is logged in now.
    pub done: bool,
    /// The server's message.
    pub payload: Vec<u8>,
}

impl SaslReply {
    /// Writes the fields of the reply, but `ok`.
    pub fn write(&self, reply: &mut DocumentWriter<'_>) {
        reply.i32(cstr!("conversationId"), CONVERSATION_ID);
        reply.bool(cstr!("done"), self.done);
        reply.binary(cstr!("payload"), &self.payload);
    }
}

/// A login that has begun. A connection has at most one; a new `saslStart` replaces it.
///
/// ```
/// use remora_mongo::scram::{Credentials, ITERATIONS, SaslStart, UnknownUsers};
///
/// let stored = Credentials::derive("pencil", &[7; 28], ITERATIONS)?;
/// let unknown = UnknownUsers::new([9; 32], ITERATIONS);
/// let start = bson::rawdoc! {
///     "saslStart": 1, "mechanism": "SCRAM-SHA-256", "db": "admin",
///     "payload": bson::Binary {
///         subtype: bson::spec::BinarySubtype::Generic,
///         bytes: b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO".to_vec(),
///     },
/// };
/// let start = SaslStart::of_speculative(&start)?;
/// let (mut conversation, reply) = start.begin(Some(&stored), &unknown, "%hvYDpWUa2RaTCAfuxFIlj")?;
/// assert!(reply.payload.starts_with(b"r=rOprNGfwEbeRWgbNEkqO%hvY"));
/// assert!(conversation.step(1, b"c=biws,r=wrong,p=wrong").is_err());
/// assert_eq!(conversation.logged_in(), None);
/// # Ok::<(), remora_mongo::scram::ScramError>(())
/// ```
#[derive(Clone)]
pub struct Conversation {
    user: String,
    database: String,
    state: State,
}

/// Without the keys.
impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation").field("user", &self.user).finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum State {
    /// The client's proof is next.
    Proof(Box<AwaitedProof>),
    /// The proof was right; an empty message is next.
    Empty,
    /// The client is logged in.
    Done,
    /// The login has failed.
    Failed,
}

#[derive(Clone)]
struct AwaitedProof {
    /// The messages so far, as the signatures take them.
    auth: String,
    /// The first field of the client's message.
    binding: String,
    nonce: String,
    credentials: Credentials,
    is_known: Choice,
    skip_empty: bool,
}

impl Conversation {
    /// The step of a command `saslContinue`.
    ///
    /// # Errors
    /// The login fails, and the conversation is over.
    pub fn resume(&mut self, command: &Command<'_>) -> Result<SaslReply, CommandError> {
        let id = command.i64("conversationId")?;
        let id = id.and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
        Ok(payload(command.body()).and_then(|payload| self.step(id, payload))?)
    }

    /// One step, with the client's message.
    ///
    /// # Errors
    /// As of [`Conversation::resume`].
    pub fn step(&mut self, conversation_id: i32, payload: &[u8]) -> Result<SaslReply, ScramError> {
        let state = mem::replace(&mut self.state, State::Failed);
        if conversation_id != CONVERSATION_ID {
            return Err(ScramError::NoConversation);
        }
        match state {
            State::Proof(proof) => {
                let payload = proof.verify(text(payload)?)?;
                let done = proof.skip_empty;
                self.state = if done { State::Done } else { State::Empty };
                Ok(SaslReply { done, payload })
            }
            State::Empty if payload.is_empty() => {
                self.state = State::Done;
                Ok(SaslReply { done: true, payload: Vec::new() })
            }
            State::Empty => Err(ScramError::Malformed("the last message is not empty")),
            State::Done | State::Failed => Err(ScramError::NoConversation),
        }
    }

    /// The user that it is about.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The user and its database, after the last step.
    pub fn logged_in(&self) -> Option<(&str, &str)> {
        matches!(self.state, State::Done).then_some((self.user.as_str(), self.database.as_str()))
    }
}

impl AwaitedProof {
    /// Checks the client's final message, and returns the server's.
    fn verify(&self, message: &str) -> Result<Vec<u8>, ScramError> {
        let wrong = ScramError::Malformed;
        let (rest, proof) = message.rsplit_once(",p=").ok_or(wrong("no proof"))?;
        let mut parts = rest.split(',');
        if parts.next() != Some(&self.binding) {
            return Err(wrong("another channel binding"));
        }
        // The nonce has been sent in clear text: it is no secret.
        if parts.next().and_then(|part| part.strip_prefix("r=")) != Some(&self.nonce) {
            return Err(wrong("another nonce"));
        }
        let proof = BASE64.decode(proof).ok().and_then(|proof| Key::try_from(proof).ok());
        let mut client_key = proof.ok_or(wrong("the proof is not 32 bytes in base64"))?;
        let auth = [self.auth.as_bytes(), rest.as_bytes()];
        let signature = hmac(&self.credentials.stored_key, &auth);
        client_key.iter_mut().zip(signature).for_each(|(byte, sign)| *byte ^= sign);
        let found: Key = Sha256::digest(client_key).into();
        if !bool::from(found.ct_eq(&self.credentials.stored_key) & self.is_known) {
            return Err(ScramError::Failed);
        }
        let signature = hmac(&self.credentials.server_key, &auth);
        Ok(format!("v={}", BASE64.encode(signature)).into_bytes())
    }
}

/// The client's message in a command: binary data, or of old drivers a string in base64, which is
/// not read.
fn payload(document: &RawDocument) -> Result<&[u8], ScramError> {
    match document.get("payload") {
        Ok(Some(RawBsonRef::Binary(payload))) => Ok(payload.bytes),
        _ => Err(ScramError::Malformed("no payload")),
    }
}

fn text(payload: &[u8]) -> Result<&str, ScramError> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(ScramError::Malformed("too long"));
    }
    std::str::from_utf8(payload).map_err(|_| ScramError::Malformed("not UTF-8"))
}

/// A name, in which `=2C` stands for a comma and `=3D` for an equals sign.
fn unescape(name: &str) -> Result<Cow<'_, str>, ScramError> {
    if !name.contains('=') {
        return Ok(name.into());
    }
    let mut parts = name.split('=');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (sign, rest) = if let Some(rest) = part.strip_prefix("2C") {
            (',', rest)
        } else if let Some(rest) = part.strip_prefix("3D") {
            ('=', rest)
        } else {
            return Err(ScramError::Malformed("a wrong escape in the user's name"));
        };
        out.push(sign);
        out.push_str(rest);
    }
    Ok(out.into())
}

/// Printable ASCII without commas.
fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// The server's part of a nonce, of these random bytes.
pub fn nonce(random: &[u8]) -> String {
    BASE64.encode(random)
}

/// A number that does not show which one comes next to those without the secret.
pub(crate) fn keyed_number(secret: &[u8; KEY_BYTES], of: u64) -> i64 {
    let mac = hmac(secret, &[b"cursor", &of.to_le_bytes()]);
    mac.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn hmac(key: &[u8; KEY_BYTES], parts: &[&[u8]]) -> Key {
    let mut mac = Hmac::<Sha256>::new(&padded(key));
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// HMAC pads a key to a block of the hash with zeros.
fn padded(key: &[u8; KEY_BYTES]) -> hmac::digest::Key<Hmac<Sha256>> {
    let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
    block[..KEY_BYTES].copy_from_slice(key);
    block
}
