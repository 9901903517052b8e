//! What one selector allows.

use crate::call::{Call, Channel, Denied, Key};
use crate::command_rules::CommandRules;
use crate::commands::{CommandId, Commands};
use crate::error::RuleError;
use crate::pattern::{Access, Patterns};

/// The rights of one selector: commands, keys and channels. A command runs if one selector of the
/// user allows all of it.
#[derive(Clone, Default, Debug)]
pub struct Rights {
    commands: CommandRules,
    keys: Patterns,
    channels: Patterns,
}

impl Rights {
    /// Applies one rule.
    ///
    /// # Errors
    /// The rule is none, or one of Remora's limits is reached. Then nothing has changed.
    pub fn apply(&mut self, commands: &impl Commands, rule: &[u8]) -> Result<(), RuleError> {
        let is = |name: &str| rule.eq_ignore_ascii_case(name.as_bytes());
        match rule {
            b"~*" => self.keys.allow_all(),
            _ if is("allkeys") => self.keys.allow_all(),
            _ if is("resetkeys") => self.keys.reset(),
            b"&*" => self.channels.allow_all(),
            _ if is("allchannels") => self.channels.allow_all(),
            _ if is("resetchannels") => self.channels.reset(),
            _ if is("allcommands") || is("+@all") => self.commands.allow_all(commands),
            _ if is("nocommands") || is("-@all") => self.commands.deny_all(),
            [b'~' | b'%', ..] => self.keys.add_key(rule)?,
            [b'&', pattern @ ..] => self.channels.add_channel(pattern)?,
            [b'+', name @ ..] => self.commands.change(commands, true, name)?,
            [b'-', name @ ..] => self.commands.change(commands, false, name)?,
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    /// Whether the selector allows a call.
    pub(crate) fn check<'a>(
        &self,
        commands: &impl Commands,
        call: &Call<
            'a,
            impl Iterator<Item = Key<'a>> + Clone,
            impl Iterator<Item = Channel<'a>> + Clone,
        >,
    ) -> Result<(), Denied> {
        if !self.commands.allow(call.command, call.first_argument)
            && !commands.needs_no_auth(call.command)
        {
            return Err(Denied::Command);
        }
        if !self.keys.has_all() {
            let denied = call.keys.clone().find(|key| !self.keys.allow(key.bytes, key.access));
            if let Some(key) = denied {
                return Err(Denied::Key { at: key.at });
            }
        }
        if !self.channels.has_all() {
            let denied = call.channels.clone().find(|channel| !self.allows_channel(channel));
            if let Some(channel) = denied {
                return Err(Denied::Channel { at: channel.at });
            }
        }
        Ok(())
    }

    fn allows_channel(&self, channel: &Channel<'_>) -> bool {
        match channel.is_pattern {
            true => self.channels.allow_pattern(channel.bytes),
            false => self.channels.allow(channel.bytes, Access::NONE),
        }
    }

    /// Whether every call is allowed.
    pub(crate) fn is_unrestricted(&self, commands: &impl Commands) -> bool {
        self.keys.has_all() && self.channels.has_all() && self.commands.has_all(commands)
    }

    /// Whether every key may be read.
    pub(crate) fn reads_all_keys(&self) -> bool {
        self.keys.reads_all()
    }

    /// Whether some command may do something with a key.
    pub(crate) fn may_touch(&self, key: &[u8]) -> bool {
        self.commands.allow_some() && self.keys.allow(key, Access::NONE)
    }

    /// Whether every key of every database may be read, by every command of `@read` that is not in
    /// `@dangerous`.
    pub(crate) fn reads_all(&self, commands: &impl Commands) -> bool {
        let reads =
            |&id: &CommandId| commands.is_in(id, "read") && !commands.is_in(id, "dangerous");
        let select = commands.find(b"select", None);
        self.reads_all_keys()
            && select.is_none_or(|id| self.commands.allow(id, None))
            && commands.all().filter(reads).all(|id| self.commands.allow(id, None))
    }

    /// The rules of commands, as ACL GETUSER shows them: `-@all +get`.
    pub fn command_rules(&self) -> Vec<u8> {
        self.commands.describe()
    }

    /// The patterns of keys, as ACL GETUSER shows them: `~a* %R~b*`.
    pub fn key_patterns(&self) -> Vec<u8> {
        self.keys.describe_keys()
    }

    /// The patterns of channels, as ACL GETUSER shows them: `&news.*`.
    pub fn channel_patterns(&self) -> Vec<u8> {
        self.channels.describe_channels()
    }

    /// The rules that make these rights from none, as ACL LIST shows them.
    pub fn describe(&self) -> Vec<u8> {
        let mut text = self.key_patterns();
        if !text.is_empty() {
            text.push(b' ');
        }
        if !self.channels.has_all() {
            text.extend_from_slice(b"resetchannels ");
        }
        let channels = self.channel_patterns();
        text.extend_from_slice(&channels);
        if !channels.is_empty() {
            text.push(b' ');
        }
        text.extend_from_slice(&self.command_rules());
        text
    }

    /// About the heap bytes of the rights.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.keys.heap_bytes() + self.channels.heap_bytes() + self.commands.heap_bytes()
    }
}
