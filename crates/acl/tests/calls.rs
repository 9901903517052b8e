//! Calls of commands with their keys and channels.

use crate::table::Table;
use remora_acl::{Access, Call, Channel, CommandId, Commands, Denied, Key, User};

/// The meaning of an argument.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Role {
    /// Neither a key nor a channel.
    Plain,
    /// A key.
    Key(Access),
    /// A channel.
    Channel,
    /// A pattern of channels.
    Pattern,
}

/// A call: the command, then its words with their roles.
#[derive(Clone, Debug)]
pub struct Words {
    pub command: CommandId,
    pub words: Vec<(String, Role)>,
}

impl Words {
    /// From a template: `K0` is a key of the first key specification, `KR`, `KW` and `KX` keys with
    /// the access to read, to write and to do both, `C` a channel, `P` a pattern of channels.
    /// `name` gives the words for them.
    pub fn from_template(table: &Table, template: &str, mut name: impl FnMut() -> String) -> Self {
        let parts = template.split(' ').collect::<Vec<_>>();
        let part = parts.get(1).map(|part| part.as_bytes());
        let command = part.and_then(|part| table.find(parts[0].as_bytes(), Some(part)));
        let command = command.or_else(|| table.find(parts[0].as_bytes(), None)).unwrap();
        let words = parts.iter().map(|&part| {
            let role = match part {
                "K0" => Role::Key(table.access(command, 0)),
                "K1" => Role::Key(table.access(command, 1)),
                "KR" => Role::Key(Access::READ),
                "KW" => Role::Key(Access::WRITE),
                "KX" => Role::Key(Access::READ_WRITE),
                "C" => Role::Channel,
                "P" => Role::Pattern,
                _ => return (part.to_string(), Role::Plain),
            };
            (name(), role)
        });
        let words = words.collect();
        Self { command, words }
    }

    /// A call with these very words.
    pub fn new(table: &Table, words: &[(&str, Role)]) -> Self {
        let template = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" ");
        let mut made = Self::from_template(table, &template, String::new);
        made.words = words.iter().map(|(word, role)| (word.to_string(), *role)).collect();
        made
    }

    /// Whether a user may make this call.
    pub fn check(&self, table: &Table, user: &User) -> Result<(), Denied> {
        let words = || self.words.iter().enumerate();
        let keys = words().filter_map(|(at, (word, role))| match role {
            Role::Key(access) => Some(Key { at, bytes: word.as_bytes(), access: *access }),
            _ => None,
        });
        let channels = words().filter_map(|(at, (word, role))| match role {
            Role::Channel => Some(Channel { at, bytes: word.as_bytes(), is_pattern: false }),
            Role::Pattern => Some(Channel { at, bytes: word.as_bytes(), is_pattern: true }),
            _ => None,
        });
        let first_argument = self.words.get(1).map(|(word, _)| word.as_bytes());
        user.check(table, &Call { command: self.command, first_argument, keys, channels })
    }

    /// The reply of ACL DRYRUN.
    pub fn dry_run(&self, table: &Table, user: &User) -> String {
        match self.check(table, user) {
            Ok(()) => "OK".into(),
            Err(denied) => {
                let argument = |at: usize| self.words[at].0.as_bytes();
                let text = denied.dry_run_text(table.name(self.command), argument);
                String::from_utf8(text).unwrap()
            }
        }
    }
}
