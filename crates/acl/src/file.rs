//! The users' file: a line `user NAME rules ...` for each user.

use crate::commands::Commands;
use crate::error::RuleError;
use crate::pattern::is_one_word;
use crate::user::User;
use crate::users::{DEFAULT_USER, Users};
use crate::words::join_selectors;
use remora_layout::limits::{MAX_ACL_FILE_ERRORS, MAX_ACL_WORD_BYTES};

/// Ends the text of ACL LOAD's errors.
const NO_CHANGE: &str = "WARNING: ACL errors detected, no change to the previously active ACL \
                         rules was performed";

impl Users {
    /// ACL LOAD: the users of a file's text. `path` is for the errors only. A file without
    /// `default` gets that of a new server.
    ///
    /// # Errors
    /// The text of the error reply, with all lines that are wrong, as Redis writes it.
    pub fn parse_file(commands: &impl Commands, path: &str, text: &[u8]) -> Result<Self, String> {
        let mut users = Self::empty();
        let mut errors = String::new();
        let mut wrong = 0;
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let found = read_line(commands, &mut users, path, (at + 1, line.trim_ascii()));
            wrong += usize::from(!found.is_empty());
            if wrong <= MAX_ACL_FILE_ERRORS {
                errors.push_str(&found);
            }
        }
        if !errors.is_empty() {
            return Err(errors + NO_CHANGE);
        }
        users.names_default = users.get(DEFAULT_USER).is_some();
        if !users.names_default {
            let put = users.put(User::new_default(commands));
            put.map_err(|limit| format!("{path}: {}. {NO_CHANGE}", RuleError::Limit(limit)))?;
        }
        Ok(users)
    }

    /// ACL SAVE: the file's text. It has the hashes of passwords.
    pub fn to_file(&self) -> Vec<u8> {
        let lines = self.iter().map(|user| [&user.describe()[..], b"\n"].concat());
        lines.collect::<Vec<_>>().concat()
    }
}

/// Adds the user of a line. Returns the text of its errors.
fn read_line(
    commands: &impl Commands,
    users: &mut Users,
    path: &str,
    (number, line): (usize, &[u8]),
) -> String {
    if line.is_empty() {
        return String::new();
    }
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(b"user"), Some(name)) = (words.next(), words.next()) else {
        return format!(
            "{path}:{number} should start with user keyword followed by the username. "
        );
    };
    let shown = String::from_utf8_lossy(name);
    if !is_one_word(name) {
        return format!("'{path}:{number}: username '{shown}' contains invalid characters. ");
    }
    if name.len() > MAX_ACL_WORD_BYTES {
        return format!("{path}:{number}: {}. ", RuleError::Limit("MAX_ACL_WORD_BYTES"));
    }
    if users.get(name).is_some() {
        return format!("WARNING: Duplicate user '{shown}' found on line {number}. ");
    }
    let Ok(mut rules) = join_selectors(words) else {
        return format!("{path}:{number}: Unmatched parenthesis in selector definition.");
    };
    rules.iter_mut().for_each(|rule| *rule = trim_tabs(rule).to_vec());
    let mut text = String::new();
    let mut is_first = true;
    for (rule, error) in users.add_from_rules(commands, name, &rules) {
        if error == RuleError::Unknown {
            let rule = String::from_utf8_lossy(&rule);
            text += &format!("{path}:{number}: Error in applying operation '{rule}': {error}. ");
        } else if std::mem::take(&mut is_first) {
            // The rule may be a password, and further errors may follow from the first.
            text += &format!("{path}:{number}: {error}. ");
        }
    }
    text
}

/// Without tabs and carriage returns at the ends.
fn trim_tabs(rule: &[u8]) -> &[u8] {
    let is_kept = |byte: &u8| !matches!(byte, b'\t' | b'\r');
    let start = rule.iter().position(is_kept).unwrap_or(rule.len());
    let end = rule.iter().rposition(is_kept).map_or(start, |at| at + 1);
    &rule[start..end]
}
