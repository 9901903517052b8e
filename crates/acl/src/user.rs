//! One user: whether it may log in, its passwords and its selectors.

use crate::bounded_count::BoundedCount;
use crate::call::{Call, Channel, Denied, Key};
use crate::commands::Commands;
use crate::error::RuleError;
use crate::password::PasswordHash;
use crate::pattern::is_one_word;
use crate::rights::Rights;
use crate::scram_keys::ScramKeys;
use crate::user_counts::UserCounts;
use remora_layout::limits::{MAX_ACL_PASSWORD_BYTES, MAX_ACL_PASSWORDS, MAX_ACL_SELECTORS};
use std::sync::Arc;
use subtle::Choice;

/// A user. It does not change: ACL SETUSER makes another of the same name, so that threads may
/// share it.
#[derive(Clone, Debug)]
pub struct User {
    /// Which of all users of this name, one after the other, it is.
    number: u64,
    name: Arc<[u8]>,
    is_on: bool,
    needs_no_password: bool,
    /// Whether RESTORE checks what this user sends, if a rule said so.
    sanitizes: Option<bool>,
    passwords: Vec<PasswordHash>,
    /// What is kept for logins by SCRAM, of passwords that are among those, the newest last.
    scram: Vec<ScramKeys>,
    root: Rights,
    selectors: Vec<Rights>,
    is_unrestricted: bool,
    reads_all: bool,
    /// How many are logged in as it, and what their buffers hold.
    pub(crate) counts: UserCounts,
}

impl User {
    /// A user that may do nothing.
    pub(crate) fn new(name: &[u8]) -> Self {
        Self {
            number: 0,
            name: name.into(),
            is_on: false,
            needs_no_password: false,
            sanitizes: None,
            passwords: Vec::new(),
            scram: Vec::new(),
            root: Rights::default(),
            selectors: Vec::new(),
            is_unrestricted: false,
            reads_all: false,
            counts: UserCounts::default(),
        }
    }

    /// The user `default` of a new server: it needs no password and may do all.
    pub(crate) fn new_default(commands: &impl Commands) -> Self {
        let mut user = Self::new(b"default");
        for rule in ["+@all", "~*", "&*", "on", "nopass"] {
            user.apply(commands, rule.as_bytes()).expect("a rule");
        }
        user.refresh(commands);
        user
    }

    /// Bytes that the buffers of its connections hold.
    pub fn memory(&self) -> Arc<BoundedCount> {
        Arc::clone(&self.counts.memory)
    }

    /// Applies one rule. [`refresh`](Self::refresh) must follow the last.
    pub(crate) fn apply(&mut self, commands: &impl Commands, rule: &[u8]) -> Result<(), RuleError> {
        let is = |name: &str| rule.eq_ignore_ascii_case(name.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("skip-sanitize-payload") => self.sanitizes = Some(false),
            _ if is("sanitize-payload") => self.sanitizes = Some(true),
            _ if is("nopass") => self.set_passwords(true),
            _ if is("resetpass") => self.set_passwords(false),
            [b'>', password @ ..] if password.len() > MAX_ACL_PASSWORD_BYTES => {
                return Err(RuleError::Limit("MAX_ACL_PASSWORD_BYTES"));
            }
            [b'>', password @ ..] => {
                let hash = PasswordHash::of(password);
                self.add_password(hash.clone())?;
                if let Some(keys) = commands.scram_keys(password) {
                    self.add_scram(ScramKeys::new(hash, &keys)?);
                }
            }
            [b'#', hash @ ..] => self.add_password(PasswordHash::from_hex(hash)?)?,
            [b'<', password @ ..] => self.remove_password(&PasswordHash::of(password))?,
            [b'!', hash @ ..] => self.remove_password(&PasswordHash::from_hex(hash)?)?,
            _ if rule.starts_with(ScramKeys::RULE) => self.add_scram(ScramKeys::parse(rule)?),
            [b'(', rules @ .., b')'] => self.add_selector(commands, rules)?,
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => {
                let (number, counts) = (self.number, self.counts.clone());
                *self = Self { sanitizes: Some(true), number, counts, ..Self::new(&self.name) };
            }
            _ => self.root.apply(commands, rule)?,
        }
        Ok(())
    }

    fn add_selector(&mut self, commands: &impl Commands, rules: &[u8]) -> Result<(), RuleError> {
        if self.selectors.len() == MAX_ACL_SELECTORS {
            return Err(RuleError::Limit("MAX_ACL_SELECTORS"));
        }
        let mut rights = Rights::default();
        for rule in rules.split(|byte| !is_one_word(&[*byte])).filter(|rule| !rule.is_empty()) {
            // Such a word would end the selector when its line is read again.
            if rule.ends_with(b")") {
                return Err(RuleError::Syntax);
            }
            rights.apply(commands, rule)?;
        }
        self.selectors.push(rights);
        Ok(())
    }

    /// Which of all users of this name, one after the other, it is.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// See [`Self::number`].
    pub(crate) fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    /// Whether another user has the same passwords.
    pub(crate) fn has_passwords_of(&self, other: &Self) -> bool {
        self.needs_no_password == other.needs_no_password
            && self.passwords.len() == other.passwords.len()
            && other.passwords.iter().all(|hash| bool::from(self.has_password(hash)))
    }

    /// Removes all passwords; then every one is right, or none.
    fn set_passwords(&mut self, needs_none: bool) {
        self.passwords.clear();
        self.scram.clear();
        self.needs_no_password = needs_none;
    }

    fn add_password(&mut self, hash: PasswordHash) -> Result<(), RuleError> {
        if !bool::from(self.has_password(&hash)) {
            if self.passwords.len() == MAX_ACL_PASSWORDS {
                return Err(RuleError::Limit("MAX_ACL_PASSWORDS"));
            }
            self.passwords.push(hash);
        }
        self.needs_no_password = false;
        Ok(())
    }

    /// Keeps what is for a password of the user; of others nothing is kept.
    fn add_scram(&mut self, keys: ScramKeys) {
        self.scram.retain(|known| !bool::from(known.password().ct_eq(keys.password())));
        if bool::from(self.has_password(keys.password())) {
            self.scram.push(keys);
        }
    }

    /// What is kept of the newest password for logins by SCRAM: words of the server's own.
    pub fn scram_keys(&self) -> Option<&[u8]> {
        self.scram.last().map(ScramKeys::keys)
    }

    fn remove_password(&mut self, hash: &PasswordHash) -> Result<(), RuleError> {
        let count = self.passwords.len();
        self.passwords.retain(|known| !bool::from(known.ct_eq(hash)));
        self.scram.retain(|known| !bool::from(known.password().ct_eq(hash)));
        if self.passwords.len() == count { Err(RuleError::NoSuchPassword) } else { Ok(()) }
    }

    /// Whether a hash is one of the passwords: all are compared, whatever the first ones are.
    pub(crate) fn has_password(&self, hash: &PasswordHash) -> Choice {
        self.passwords.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(hash))
    }

    /// Finds out what [`check`](Self::check) answers at once.
    pub(crate) fn refresh(&mut self, commands: &impl Commands) {
        let is_unrestricted = self.rights().any(|rights| rights.is_unrestricted(commands));
        let reads_all = self.rights().any(|rights| rights.reads_all(commands));
        (self.is_unrestricted, self.reads_all) = (is_unrestricted, reads_all);
    }

    /// The root's rights, then those of the selectors.
    fn rights(&self) -> impl Iterator<Item = &Rights> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether the user may make a call. It allocates nothing.
    ///
    /// # Errors
    /// What the call is refused for.
    #[inline]
    pub fn check<'a>(
        &self,
        commands: &impl Commands,
        call: &Call<
            'a,
            impl Iterator<Item = Key<'a>> + Clone,
            impl Iterator<Item = Channel<'a>> + Clone,
        >,
    ) -> Result<(), Denied> {
        if self.is_unrestricted {
            return Ok(());
        }
        let mut denied = Denied::Command;
        for rights in self.rights() {
            match rights.check(commands, call) {
                Ok(()) => return Ok(()),
                Err(other) => denied = denied.max(other),
            }
        }
        Err(denied)
    }

    /// Whether the user may make a call by rights that read every key: the call names keys otherwise
    /// than by arguments.
    pub fn may_reading_all<'a>(
        &self,
        commands: &impl Commands,
        call: &Call<
            'a,
            impl Iterator<Item = Key<'a>> + Clone,
            impl Iterator<Item = Channel<'a>> + Clone,
        >,
    ) -> bool {
        let may = |rights: &Rights| rights.reads_all_keys() && rights.check(commands, call).is_ok();
        self.is_unrestricted || self.rights().any(may)
    }

    /// Whether the user may read all that keys hold, in every database, by whatever command: one selector
    /// allows every key to be read, SELECT, and every command of `@read` that is not in `@dangerous`.
    pub fn reads_all(&self) -> bool {
        self.reads_all
    }

    /// Whether the user may do anything with a key.
    pub fn may_touch(&self, key: &[u8]) -> bool {
        self.rights().any(|rights| rights.may_touch(key))
    }

    /// Whether the user may do all.
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether the user may log in. Connections that are logged in go on.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether every password is right. If it is `default`, a new connection is logged in.
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Whether RESTORE must check what this user sends.
    pub fn sanitizes_payload(&self) -> bool {
        self.sanitizes != Some(false)
    }

    /// The flags of ACL GETUSER.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            Some(if self.is_on { "on" } else { "off" }),
            self.needs_no_password.then_some("nopass"),
            self.sanitizes.map(|on| if on { "sanitize-payload" } else { "skip-sanitize-payload" }),
        ];
        flags.into_iter().flatten()
    }

    /// The hashes of the passwords, for ACL GETUSER and the users' file. They are secrets.
    pub fn password_hashes(&self) -> impl Iterator<Item = String> {
        self.passwords.iter().map(PasswordHash::to_hex)
    }

    /// The rights outside of selectors.
    pub fn root(&self) -> &Rights {
        &self.root
    }

    /// The rights of the selectors.
    pub fn selectors(&self) -> &[Rights] {
        &self.selectors
    }

    /// The line of ACL LIST and of the users' file. It has the hashes of passwords.
    pub fn describe(&self) -> Vec<u8> {
        let mut line = [b"user ", &*self.name, b" "].concat();
        for flag in self.flags() {
            line.extend_from_slice(flag.as_bytes());
            line.push(b' ');
        }
        for hash in self.password_hashes() {
            line.push(b'#');
            line.extend_from_slice(hash.as_bytes());
            line.push(b' ');
        }
        for keys in &self.scram {
            line.extend_from_slice(&keys.rule());
            line.push(b' ');
        }
        line.extend_from_slice(&self.root.describe());
        for selector in &self.selectors {
            line.extend_from_slice(&[b" (", &selector.describe()[..], b")"].concat());
        }
        line
    }

    /// About the heap bytes of the user.
    pub(crate) fn heap_bytes(&self) -> usize {
        let rights = self.rights().map(Rights::heap_bytes).sum::<usize>();
        let scram = self.scram.iter().map(ScramKeys::heap_bytes).sum::<usize>();
        256 + scram
            + self.name.len()
            + 32 * self.passwords.len()
            + 256 * self.selectors.len()
            + rights
    }
}
