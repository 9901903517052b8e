//! What this crate knows of a server's commands.

/// A command or a subcommand: its place in the server's table, below [`Commands::count`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(pub u16);

/// A server's table of commands. It stays as it is while users exist.
pub trait Commands {
    /// How many commands and subcommands there are.
    fn count(&self) -> usize;

    /// The command with this name in whatever case, or its subcommand if there is a second name.
    fn find(&self, name: &[u8], subcommand: Option<&[u8]>) -> Option<CommandId>;

    /// The full name in lower case: `get`, `client|id`.
    fn name(&self, id: CommandId) -> &str;

    /// The subcommands of a command.
    fn subcommands(&self, id: CommandId) -> impl Iterator<Item = CommandId>;

    /// The names of the categories in lower case, in the order of ACL CAT.
    fn categories(&self) -> &[&str];

    /// Whether a command has a category, which has its name as [`categories`](Self::categories)
    /// gives it.
    fn is_in(&self, id: CommandId, category: &str) -> bool;

    /// Whether the command needs no authentication. Every user may call it, as in Redis.
    fn needs_no_auth(&self, id: CommandId) -> bool;

    /// What a server that has logins by SCRAM keeps of a password for them, beside its hash, in words of
    /// printable ASCII; `None` at one that has none. It may take some milliseconds.
    fn scram_keys(&self, _password: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// The category with this name in whatever case.
    fn category(&self, name: &[u8]) -> Option<&str> {
        self.categories().iter().copied().find(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    }

    /// All commands and subcommands.
    fn all(&self) -> impl Iterator<Item = CommandId> {
        (0..self.count()).map(|at| CommandId(u16::try_from(at).expect("a table of that size")))
    }

    /// The commands and subcommands of a category: the elements of ACL CAT's reply.
    fn members(&self, category: &str) -> impl Iterator<Item = CommandId> {
        self.all().filter(move |&id| self.is_in(id, category))
    }
}
