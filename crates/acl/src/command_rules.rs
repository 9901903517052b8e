//! The commands that a selector allows, and the rules that said so.

use crate::command_set::CommandSet;
use crate::commands::{CommandId, Commands};
use crate::error::RuleError;
use crate::pattern::is_one_word;
use remora_layout::limits::{MAX_ACL_RULES, MAX_ACL_WORD_BYTES};

/// One rule: `+get`, `-client|id`, `+@read`, `+select|0`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    allows: bool,
    /// A first argument keeps its case, all else is in lower case.
    name: Box<[u8]>,
}

/// A first argument that is allowed of a command which is not.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FirstArgument {
    command: CommandId,
    argument: Box<[u8]>,
}

/// The commands of a selector.
///
/// The rules behind the last `+@all` or `-@all` are kept in order, without those that a later one
/// overrides, as Redis 7.2 keeps them. Redis 7.0 keeps only the set, and looks for categories that
/// fit it each time: its text depends on the order of a hash table, and a new version with other
/// categories reads it differently.
#[derive(Clone, Default, Debug)]
pub(crate) struct CommandRules {
    allowed: CommandSet,
    /// The rules begin with `+@all`, not with `-@all`.
    from_all: bool,
    rules: Vec<Rule>,
    first_arguments: Vec<FirstArgument>,
}

impl CommandRules {
    pub(crate) fn allow_all(&mut self, commands: &impl Commands) {
        self.deny_all();
        self.from_all = true;
        self.allowed.fill(commands);
    }

    pub(crate) fn deny_all(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn has_all(&self, commands: &impl Commands) -> bool {
        self.allowed.has_all(commands)
    }

    /// Whether some command may run.
    pub(crate) fn allow_some(&self) -> bool {
        self.allowed.has_some() || !self.first_arguments.is_empty()
    }

    /// Whether a command may run with a first argument.
    #[inline]
    pub(crate) fn allow(&self, command: CommandId, first_argument: Option<&[u8]>) -> bool {
        self.allowed.contains(command) || self.allow_first(command, first_argument)
    }

    fn allow_first(&self, command: CommandId, argument: Option<&[u8]>) -> bool {
        let Some(argument) = argument else { return false };
        self.first_arguments
            .iter()
            .any(|one| one.command == command && one.argument.eq_ignore_ascii_case(argument))
    }

    /// Applies a rule: the name behind its sign.
    pub(crate) fn change(
        &mut self,
        commands: &impl Commands,
        allows: bool,
        name: &[u8],
    ) -> Result<(), RuleError> {
        if let [b'@', category @ ..] = name {
            return self.change_category(commands, allows, category);
        }
        let mut parts = name.splitn(2, |&byte| byte == b'|');
        let command = parts.next().and_then(|command| commands.find(command, None));
        let sub = parts.next();
        let (Some(command), None) = (command, sub) else {
            let sub = sub.ok_or(RuleError::Unknown)?;
            return self.change_part(commands, allows, name, (command, sub));
        };
        self.keep(allows, commands.name(command).as_bytes())?;
        self.set(commands, command, allows);
        Ok(())
    }

    /// Applies `cmd|sub`.
    fn change_part(
        &mut self,
        commands: &impl Commands,
        allows: bool,
        name: &[u8],
        (command, sub): (Option<CommandId>, &[u8]),
    ) -> Result<(), RuleError> {
        let command = command.ok_or(RuleError::Unknown)?;
        let outer = &name[..name.len() - sub.len() - 1];
        if let Some(subcommand) = commands.find(outer, Some(sub)) {
            self.keep(allows, commands.name(subcommand).as_bytes())?;
            self.set(commands, subcommand, allows);
            return Ok(());
        }
        // Only the last part may be a first argument, and only of a command.
        let has_subcommands = commands.subcommands(command).next().is_some();
        match sub.iter().rposition(|&byte| byte == b'|') {
            _ if !allows => Err(RuleError::Unknown),
            Some(end) if commands.find(outer, Some(&sub[..end])).is_some() => {
                Err(RuleError::FirstArgumentOfSubcommand)
            }
            Some(_) => Err(RuleError::Unknown),
            None if sub.is_empty() => Err(RuleError::Syntax),
            None if has_subcommands => Err(RuleError::Unknown),
            // Redis takes any byte here, and writes lines that it cannot read.
            None if !is_one_word(sub) => Err(RuleError::Syntax),
            None => self.allow_argument(commands, command, sub),
        }
    }

    fn allow_argument(
        &mut self,
        commands: &impl Commands,
        command: CommandId,
        argument: &[u8],
    ) -> Result<(), RuleError> {
        if argument.len() > MAX_ACL_WORD_BYTES {
            return Err(RuleError::Limit("MAX_ACL_WORD_BYTES"));
        }
        self.keep(true, &[commands.name(command).as_bytes(), b"|", argument].concat())?;
        if !self.allow_first(command, Some(argument)) {
            self.first_arguments.push(FirstArgument { command, argument: argument.into() });
        }
        Ok(())
    }

    fn change_category(
        &mut self,
        commands: &impl Commands,
        allows: bool,
        category: &[u8],
    ) -> Result<(), RuleError> {
        let category = commands.category(category).ok_or(RuleError::Unknown)?;
        self.keep(allows, format!("@{category}").as_bytes())?;
        for command in commands.members(category) {
            self.set(commands, command, allows);
        }
        Ok(())
    }

    /// Sets a command with its subcommands, and forgets its first arguments.
    fn set(&mut self, commands: &impl Commands, command: CommandId, allows: bool) {
        self.allowed.set(command, allows);
        self.first_arguments.retain(|one| one.command != command);
        for subcommand in commands.subcommands(command) {
            self.allowed.set(subcommand, allows);
        }
    }

    /// Appends a rule, and drops those that it overrides.
    fn keep(&mut self, allows: bool, name: &[u8]) -> Result<(), RuleError> {
        let is_overridden = |rule: &Rule| match rule.name.split_at_checked(name.len()) {
            Some((start, rest)) => {
                start.eq_ignore_ascii_case(name) && matches!(rest, [] | [b'|', ..])
            }
            None => false,
        };
        let kept = self.rules.iter().filter(|rule| !is_overridden(rule)).count();
        if kept >= MAX_ACL_RULES {
            return Err(RuleError::Limit("MAX_ACL_RULES"));
        }
        self.rules.retain(|rule| !is_overridden(rule));
        self.rules.push(Rule { allows, name: name.into() });
        Ok(())
    }

    /// The rules that make this from nothing: `-@all +get`.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let mut text = if self.from_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.rules {
            text.extend_from_slice(if rule.allows { b" +" } else { b" -" });
            text.extend_from_slice(&rule.name);
        }
        text
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let rules = self.rules.iter().map(|rule| 32 + rule.name.len());
        let arguments = self.first_arguments.iter().map(|one| 32 + one.argument.len());
        64 + rules.chain(arguments).sum::<usize>()
    }
}
