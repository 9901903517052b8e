//! Generations of a data set, and the root that names the present one.
//!
//! ```text
//! social              the root, a hash: generation, links to where plans start, last_error
//!   current --------> social@7             what is known of generation 7
//!   first ----------> social@7:user:1      an item of generation 7; its links lead to such only
//! {social}@8          a root in waiting: RENAME makes it the root, by one change
//! {social}@last       the greatest number of a generation so far
//! {social}@lock       which loader is at work; it expires
//! ```
//! A hash tag keeps the keys in braces in the slot of the root. Items have none, so they lie in all shards.
//!
//! The lock spares two loaders the work of one. That no root moves to a generation that is not whole
//! does not rest on it, nor on any time: a loader that begins removes all roots in waiting before it
//! removes their items, and RENAME fails without its source.

use crate::server::{Reply, Server};
use anyhow::{Context, bail};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A loader that has not said for so long that it is at work is taken for dead.
const LOCK_MS: u64 = 10_000;
/// A loader says so often that it is at work.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// The wait between two looks at the lock of another loader.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The keys of a data set.
#[derive(Clone, Debug)]
pub struct Keys {
    name: String,
}

impl Keys {
    /// The keys of the data set of this name, which has no braces.
    pub fn of(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// The root.
    pub fn root(&self) -> &str {
        &self.name
    }

    /// What is known of a generation; followed by `:` the beginning of its items' keys.
    pub fn generation(&self, number: u64) -> String {
        format!("{}@{number}", self.name)
    }

    fn waiting_root(&self, number: u64) -> String {
        format!("{{{}}}@{number}", self.name)
    }

    fn last(&self) -> String {
        format!("{{{}}}@last", self.name)
    }

    fn lock(&self) -> String {
        format!("{{{}}}@lock", self.name)
    }

    /// The pattern of all generations' keys.
    fn pattern(&self) -> String {
        format!("{}@*", self.name)
    }

    /// The generation to which a key belongs.
    fn number_of(&self, key: &[u8]) -> Option<u64> {
        let behind = key.strip_prefix(self.name.as_bytes())?.strip_prefix(b"@")?;
        let digits = behind.split(|byte| *byte == b':').next()?;
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
    }
}

/// Milliseconds since 1970.
fn now_ms() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis().to_string()
}

/// The generation that the root names, 0 if there is no root.
///
/// # Errors
/// The key is something else than a root.
pub fn current(server: &mut Server, keys: &Keys) -> anyhow::Result<u64> {
    let root = keys.root().as_bytes();
    match server.ask_text(&[b"TYPE", root])?.as_deref() {
        Some("none") => return Ok(0),
        Some("hash") => {}
        other => bail!("the key {} is no root: a {}", keys.root(), other.unwrap_or_default()),
    }
    let number = server.ask_text(&[b"HGET", root, b"generation"])?;
    match number.and_then(|number| number.parse().ok()) {
        Some(number) => Ok(number),
        None => bail!("the key {} is no root: it has no field generation", keys.root()),
    }
}

/// Sets the root's fields `last_error` and `failed_at`, if there is a root.
///
/// # Errors
/// The server is away, or refuses.
pub fn tell_error(server: &mut Server, keys: &Keys, error: &str) -> anyhow::Result<()> {
    if current(server, keys)? > 0 {
        let (root, now) = (keys.root().as_bytes(), now_ms());
        let fields: [&[u8]; 6] =
            [b"HSET", root, b"last_error", error.as_bytes(), b"failed_at", now.as_bytes()];
        server.ask(&fields)?;
    }
    Ok(())
}

/// The lock of a data set, held.
pub struct Lock {
    key: String,
    token: String,
    renewed: Instant,
}

impl Lock {
    /// Takes the lock; waits for that of a loader that is dead.
    ///
    /// # Errors
    /// Another loader is at work, or the server is away.
    pub fn take(server: &mut Server, keys: &Keys) -> anyhow::Result<Self> {
        let key = keys.lock();
        let token = format!("{}-{}", std::process::id(), now_ms());
        let expiry = LOCK_MS.to_string();
        let set: [&[u8]; 6] =
            [b"SET", key.as_bytes(), token.as_bytes(), b"NX", b"PX", expiry.as_bytes()];
        let began = Instant::now();
        let holder = server.ask_text(&[b"GET", key.as_bytes()])?;
        while server.ask(&set)? == Reply::Null {
            // One that renews it is alive, however long we wait; one that is dead lets it expire.
            if began.elapsed() > Duration::from_millis(LOCK_MS) + RENEW_EVERY {
                let holder = holder.unwrap_or_default();
                bail!("another loader is at work: {key} is {holder}");
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Self { key, token, renewed: Instant::now() })
    }

    /// Says now and then that the loader is at work.
    ///
    /// # Errors
    /// Another loader took the lock, or the server is away.
    pub fn renew(&mut self, server: &mut Server) -> anyhow::Result<()> {
        if self.renewed.elapsed() < RENEW_EVERY {
            return Ok(());
        }
        self.renewed = Instant::now();
        let (key, expiry) = (self.key.as_bytes(), LOCK_MS.to_string());
        if self.is_held(server)? {
            server.ask(&[b"PEXPIRE", key, expiry.as_bytes()])?;
            return Ok(());
        }
        // It expired while this loader stood still. If another was at work meanwhile, it has removed the
        // root in waiting of this one.
        let set: [&[u8]; 6] = [b"SET", key, self.token.as_bytes(), b"NX", b"PX", expiry.as_bytes()];
        if server.ask(&set)? == Reply::Null {
            bail!("another loader took over while this one stood still");
        }
        Ok(())
    }

    fn is_held(&self, server: &mut Server) -> anyhow::Result<bool> {
        let holder = server.ask_text(&[b"GET", self.key.as_bytes()])?;
        Ok(holder.as_ref() == Some(&self.token))
    }

    /// Waits, and renews meanwhile.
    ///
    /// # Errors
    /// As [`Self::renew`].
    pub fn wait(&mut self, server: &mut Server, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        loop {
            self.renew(server)?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(RENEW_EVERY));
        }
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// The server is away.
    pub fn release(self, server: &mut Server) -> anyhow::Result<()> {
        if self.is_held(server)? {
            server.ask(&[b"DEL", self.key.as_bytes()])?;
        }
        Ok(())
    }
}

/// A generation that is being loaded.
pub struct Generation<'k> {
    keys: &'k Keys,
    number: u64,
    /// The one that the root named when this one began.
    before: u64,
}

impl<'k> Generation<'k> {
    /// Begins a generation: removes those that were never finished, and puts a root in waiting.
    /// `links`: fields of the root, and the keys to which they lead.
    ///
    /// # Errors
    /// The root's key is something else, or the server is away or refuses.
    pub fn begin(
        server: &mut Server,
        lock: &mut Lock,
        keys: &'k Keys,
        links: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let last = keys.last();
        let at_least = current(server, keys)?;
        let mut number = server.ask_number(&[b"INCR", last.as_bytes()])?.unsigned_abs();
        if number <= at_least {
            // The number was lost, the root was not.
            let missing = (at_least + 1 - number).to_string();
            let words: [&[u8]; 3] = [b"INCRBY", last.as_bytes(), missing.as_bytes()];
            number = server.ask_number(&words)?.unsigned_abs();
        }
        // First the roots in waiting: from here on no other loader can move the root.
        for unfinished in at_least + 1..number {
            server.ask(&[b"UNLINK", keys.waiting_root(unfinished).as_bytes()])?;
        }
        let before = current(server, keys)?;
        let generation = Self { keys, number, before };
        if before + 1 < number {
            generation.remove(server, lock, |other| before < other && other < number)?;
        }
        generation.wait_as_root(server, links)?;
        // A loader that takes the lock later finds this root in waiting; one that took it before may
        // have looked too early.
        if !lock.is_held(server)? {
            generation.abandon(server, lock)?;
            bail!("another loader took over while this one stood still");
        }
        Ok(generation)
    }

    fn wait_as_root(&self, server: &mut Server, links: &[(String, String)]) -> anyhow::Result<()> {
        let root = self.keys.waiting_root(self.number);
        let (number, now) = (self.number.to_string(), now_ms());
        let root = root.as_bytes();
        let fields: [&[u8]; 6] =
            [b"HSET", root, b"generation", number.as_bytes(), b"started_at", now.as_bytes()];
        server.ask(&fields)?;
        let prefix = self.prefix();
        let targets: Vec<String> = links.iter().map(|(_, key)| format!("{prefix}{key}")).collect();
        let generation = self.keys.generation(self.number);
        let mut words: Vec<&[u8]> = vec![b"LINK.SET", root, b"current", generation.as_bytes()];
        for ((field, _), target) in links.iter().zip(&targets) {
            words.extend([field.as_bytes(), target.as_bytes()]);
        }
        server.ask(&words)?;
        Ok(())
    }

    /// The beginning of its items' keys.
    pub fn prefix(&self) -> String {
        self.keys.generation(self.number) + ":"
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The one that the root named when this one began; 0 for none.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// The number of rows of the one before, if that is still known.
    ///
    /// # Errors
    /// The server is away.
    pub fn rows_before(&self, server: &mut Server) -> anyhow::Result<Option<u64>> {
        let before = self.keys.generation(self.before);
        let rows = server.ask_text(&[b"HGET", before.as_bytes(), b"rows"])?;
        Ok(rows.and_then(|rows| rows.parse().ok()))
    }

    /// Writes what is known of it, and moves the root to it by one change. All of it must be acknowledged.
    ///
    /// # Errors
    /// Another loader has begun, or the server is away or refuses: the root stays.
    pub fn finish(&self, server: &mut Server, known: &[(&str, String)]) -> anyhow::Result<()> {
        let generation = self.keys.generation(self.number);
        let now = now_ms();
        let mut words = vec![&b"HSET"[..], generation.as_bytes(), b"loaded_at", now.as_bytes()];
        for (field, value) in known {
            words.extend([field.as_bytes(), value.as_bytes()]);
        }
        server.ask(&words)?;
        let waiting = self.keys.waiting_root(self.number);
        let moved = server.ask(&[b"RENAME", waiting.as_bytes(), self.keys.root().as_bytes()]);
        moved.context("the root cannot be moved; without its source another loader took over")?;
        Ok(())
    }

    /// Removes all older generations, once no reader is in them; returns how many keys.
    ///
    /// # Errors
    /// The server is away, or another loader took over.
    pub fn remove_older(&self, server: &mut Server, lock: &mut Lock) -> anyhow::Result<u64> {
        self.remove(server, lock, |other| other < self.number)
    }

    /// Removes it: it will not be finished.
    ///
    /// # Errors
    /// The server is away, or another loader took over.
    pub fn abandon(&self, server: &mut Server, lock: &mut Lock) -> anyhow::Result<()> {
        server.ask(&[b"UNLINK", self.keys.waiting_root(self.number).as_bytes()])?;
        // The reply to the change of the root may have been lost.
        if current(server, self.keys)? != self.number {
            self.remove(server, lock, |other| other == self.number)?;
        }
        Ok(())
    }

    fn remove(
        &self,
        server: &mut Server,
        lock: &mut Lock,
        wanted: impl Fn(u64) -> bool,
    ) -> anyhow::Result<u64> {
        let is_wanted = |key: &[u8]| self.keys.number_of(key).is_some_and(&wanted);
        server.remove(&self.keys.pattern(), is_wanted, |server| lock.renew(server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_generation_and_others_tell_none() {
        let keys = Keys::of("so.cial");
        for (key, number) in [
            ("so.cial@7", Some(7)),
            ("so.cial@7:user:1", Some(7)),
            ("so.cial@70:user@1", Some(70)),
            ("so.cial", None),
            ("so.cial@", None),
            ("so.cial@+7:a", None),
            ("so.cial@7a:b", None),
            ("so.cial@99999999999999999999:a", None),
            ("so-cial@7:a", None),
            ("so.cial2@7:a", None),
        ] {
            assert_eq!(keys.number_of(key.as_bytes()), number, "{key}");
        }
        assert_eq!(keys.waiting_root(8), "{so.cial}@8");
    }
}
