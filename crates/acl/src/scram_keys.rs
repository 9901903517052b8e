//! What a server keeps of a password for logins by SCRAM. This crate does not look into it: it keeps it with
//! the password, and gives it to the users' file and back.

use crate::error::RuleError;
use crate::password::PasswordHash;
use remora_layout::limits::MAX_ACL_WORD_BYTES;
use std::fmt;

/// Keys of one password.
#[derive(Clone)]
pub(crate) struct ScramKeys {
    password: PasswordHash,
    keys: Box<[u8]>,
}

/// Without the keys: they are secrets.
impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramKeys(..)")
    }
}

impl ScramKeys {
    /// How the rule begins: the password's hash and the keys follow, with a colon between them.
    pub(crate) const RULE: &'static [u8] = b"scram-sha-256:";

    /// These keys of a password.
    ///
    /// # Errors
    /// They are no word of printable ASCII, or too long.
    pub(crate) fn new(password: PasswordHash, keys: &[u8]) -> Result<Self, RuleError> {
        let is_word = !keys.is_empty() && keys.iter().all(u8::is_ascii_graphic);
        if !is_word || keys.ends_with(b")") {
            return Err(RuleError::Syntax);
        }
        if keys.len() > MAX_ACL_WORD_BYTES {
            return Err(RuleError::Limit("MAX_ACL_WORD_BYTES"));
        }
        Ok(Self { password, keys: keys.into() })
    }

    /// Those of a rule.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn parse(rule: &[u8]) -> Result<Self, RuleError> {
        let rest = rule.strip_prefix(Self::RULE).ok_or(RuleError::Syntax)?;
        let colon = rest.iter().position(|&byte| byte == b':').ok_or(RuleError::Syntax)?;
        Self::new(PasswordHash::from_hex(&rest[..colon])?, &rest[colon + 1..])
    }

    /// The rule.
    pub(crate) fn rule(&self) -> Vec<u8> {
        [Self::RULE, self.password.to_hex().as_bytes(), b":", &self.keys].concat()
    }

    /// The password's hash.
    pub(crate) fn password(&self) -> &PasswordHash {
        &self.password
    }

    /// The keys.
    pub(crate) fn keys(&self) -> &[u8] {
        &self.keys
    }

    /// About the heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_comes_back_and_nothing_else_is_one() {
        let keys = ScramKeys::new(PasswordHash::of(b"secret"), b"15000:c2FsdA==:a:b").unwrap();
        let rule = keys.rule();
        assert_eq!(ScramKeys::parse(&rule).unwrap().rule(), rule);
        assert_eq!(format!("{keys:?}"), "ScramKeys(..)");
        let hex = PasswordHash::of(b"secret").to_hex();
        for keys in ["", "a b", "a\n", "a)"] {
            assert!(ScramKeys::parse(format!("scram-sha-256:{hex}:{keys}").as_bytes()).is_err());
        }
        for rule in ["scram-sha-256:", "scram-sha-256:aa:b", "scram:"] {
            assert!(ScramKeys::parse(rule.as_bytes()).is_err(), "{rule}");
        }
    }
}
