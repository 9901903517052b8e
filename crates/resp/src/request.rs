//! Requests that a session can get.
//!
//! A session answers some of them itself. The others, which are about data, are
//! commands for shards, or become some. Points in time are absolute from here
//! on.

use crate::error::CommandError;
use crate::form::{PlanForm, ReplyForm};
use crate::keys::{Keys, Pairs};
use crate::sorting::SortOptions;
use crate::steps::{AfterWait, Steps};
use crate::wire::{RespVersion, Words};
use remora_acl::Genpass;
use remora_frontend::PartRequest;
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_plan::Plan;
use remora_protocol::glob::Glob;
use remora_protocol::message::Status;
use remora_protocol::{self as protocol, Command, Items};
use std::borrow::Cow;

/// One request of a RESP connection. Everything borrows from its bytes, or from the buffers made
/// from them.
#[derive(Debug)]
pub enum Request<'a> {
    /// PING, with the text to send back.
    Ping(Option<&'a [u8]>),
    /// AUTH: the user, if there is one, and the password.
    Auth {
        /// The user; `default` if none is named.
        user: Option<&'a [u8]>,
        /// The password.
        password: &'a [u8],
        /// The command's name as it was sent.
        command: &'a [u8],
    },
    /// ACL, but for HELP.
    Acl(AclRequest<'a>),
    /// ECHO.
    Echo(&'a [u8]),
    /// HELLO.
    Hello(Hello<'a>),
    /// CLIENT SETNAME; empty takes the name away.
    ClientSetName(&'a [u8]),
    /// CLIENT GETNAME.
    ClientGetName,
    /// CLIENT SETINFO; empty takes the value away.
    ClientSetInfo {
        /// The attribute.
        attribute: ClientAttribute,
        /// Its value.
        value: &'a [u8],
    },
    /// CLIENT ID.
    ClientId,
    /// CLIENT INFO.
    ClientInfo,
    /// CLIENT UNBLOCK.
    Unblock {
        /// The number of the connection.
        serial: u64,
        /// What its request is answered.
        status: Status,
    },
    /// HELP of the command with this name, which has subcommands.
    Help(&'a [u8]),
    /// INFO.
    Info(Sections<'a>),
    /// BGSAVE.
    BgSave,
    /// LASTSAVE.
    LastSave,
    /// REPLICAOF, SLAVEOF and RESYNC.
    ChangeRole(RoleRequest<'a>),
    /// ROLE.
    Role,
    /// MEMBER.DELIVER: a message of another server of the cluster.
    Deliver(&'a [u8]),
    /// WAITAOF.
    WaitAof {
        /// Whether the server's own disk counts.
        wants_disk: bool,
        /// Replicas whose disks count.
        replicas: usize,
        /// Until when it waits, Unix ms; 0: without end.
        until_ms: u64,
    },
    /// WAIT.
    Wait {
        /// Replicas that are to have stored the changes.
        replicas: usize,
        /// Until when it waits, Unix ms; 0: without end.
        until_ms: u64,
    },
    /// CONFIG GET.
    ConfigGet(Patterns),
    /// COMMAND; [`crate::table::answer`] writes the reply.
    Command(CommandQuery<'a>),
    /// SELECT.
    Select(Database),
    /// QUIT: `+OK`, then the connection closes.
    Quit,
    /// One command for the shard that owns its one key.
    Key(Command<'a>, ReplyForm),
    /// DEL and UNLINK; at least one key.
    Del(Keys<'a>),
    /// EXISTS; at least one key. A key that is named twice counts twice.
    Exists(Keys<'a>),
    /// TOUCH.
    Touch(Keys<'a>),
    /// MGET; at least one key.
    MGet(Keys<'a>),
    /// MSET; at least one pair. If a key is named twice the last pair counts.
    MSet(Pairs<'a>),
    /// One operation on the object of one key, for the shard that owns it.
    Object {
        /// The key.
        key: &'a [u8],
        /// The question.
        request: protocol::Request<'a>,
        /// How the reply is made.
        form: ReplyForm,
    },
    /// The result of an operation on one key's object is stored at another key.
    Store {
        /// The key.
        key: &'a [u8],
        /// The question.
        request: protocol::Request<'a>,
        /// How the reply is made.
        form: ReplyForm,
        /// The other key.
        to: &'a [u8],
    },
    /// The same operation on each of several parts of one key's object; at least one.
    EachPart {
        /// The key.
        key: &'a [u8],
        /// The parts' names, which are checked.
        parts: Keys<'a>,
        /// The question about the part with this name.
        request: PartRequest,
        /// How the reply is made.
        form: ReplyForm,
    },
    /// An operation on the first of several keys that holds something for it; if none does, it waits
    /// for one that does.
    Block(Box<Blocking<'a>>),
    /// An operation on several keys' objects: one question to a shard after the other.
    Steps {
        /// The keys.
        keys: Keys<'a>,
        /// The questions.
        steps: Box<dyn Steps>,
        /// How the reply is made.
        form: ReplyForm,
    },
    /// SORT and SORT_RO.
    Sort(Box<Sort<'a>>),
    /// PLAN.RUN, LINK.CHASE.
    Plan(Box<Plan>, PlanForm),
    /// DBSIZE.
    DbSize,
    /// DEBUG DIGEST.
    Digest,
    /// DEBUG DIGEST-VALUE.
    DigestValues(Keys<'a>),
    /// FLUSHALL.
    FlushAll,
    /// FLUSHDB.
    FlushDb,
    /// SCAN.
    Scan {
        /// Where to continue; 0 at the beginning.
        cursor: u64,
        /// About how many keys are wanted.
        count: u32,
        /// The keys to return.
        filter: KeyFilter,
    },
    /// KEYS.
    KeysOf(KeyFilter),
    /// RANDOMKEY.
    RandomKey,
    /// RENAME, RENAMENX, COPY and MOVE.
    Transfer(Transfer<'a>),
    /// CLUSTER KEYSLOT.
    KeySlot(&'a [u8]),
    /// CLUSTER, but for KEYSLOT and HELP.
    Cluster(ClusterQuestion),
    /// READONLY (true) and READWRITE.
    ReplicaReads(bool),
    /// SENTINEL, but for HELP.
    Sentinel(SentinelQuestion<'a>),
    /// SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE and PUNSUBSCRIBE.
    Subscribe(SubscriptionChange<'a>),
}

/// A request that sorts elements.
#[derive(Debug)]
pub struct Sort<'a> {
    /// The key whose object's elements they are.
    pub key: &'a [u8],
    /// What is done with them.
    pub options: SortOptions,
    /// The key that gets the result, and its object.
    pub store: Option<(&'a [u8], Stored)>,
    /// The request about a field of an object with this name.
    pub field: PartRequest,
    /// How the reply is made.
    pub form: ReplyForm,
    /// The error in a cluster, whose servers have only some of the keys that a pattern means.
    pub refused_in_cluster: Option<CommandError>,
    /// The error of an argument behind the one that a cluster refuses.
    pub error: Option<CommandError>,
}

/// How a result becomes a key's object.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// The object's type.
    pub kind: Kind,
    /// The request that makes it at once, of a bounded number of items; without any the key is removed.
    pub at_once: fn(Items<'_>) -> protocol::Request<'_>,
    /// What stands before the items of a piece of its dump, of which so many came before.
    pub begin_piece: fn(u64, &mut Vec<u8>),
}

/// A request that may wait for keys.
#[derive(Debug)]
pub struct Blocking<'a> {
    /// The keys, in the order in which they are looked at; at least one.
    pub keys: Keys<'a>,
    /// The operation.
    pub request: protocol::Request<'a>,
    /// Until when it waits, Unix ms; 0: without end.
    pub until_ms: u64,
    /// How the reply is made of one answer: its value is two items, the key and the value of the
    /// operation's reply; `NotFound` once the time is over.
    pub form: ReplyForm,
    /// What the operation takes goes to another key.
    pub hand_over: Option<HandOver<'a>>,
}

/// Gives what is at a key to another key; for keys of two shards the operation that waits is one that
/// only reads.
#[derive(Debug)]
pub struct HandOver<'a> {
    /// The other key.
    pub to: &'a [u8],
    /// The operation that takes and gives in one, for keys of one shard, and the form of its reply.
    pub at_once: (protocol::Request<'a>, ReplyForm),
    /// What follows for keys of two shards: the operation's key is the first one, the other key the second
    /// one.
    pub after_wait: Box<dyn AfterWait>,
}

/// What CLUSTER asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterQuestion {
    /// INFO.
    Info,
    /// MYID.
    MyId,
    /// NODES.
    Nodes,
    /// SHARDS.
    Shards,
    /// SLOTS.
    Slots,
}

/// What SENTINEL asks; the bytes are the name of a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SentinelQuestion<'a> {
    /// CKQUORUM.
    CheckQuorum(&'a [u8]),
    /// GET-MASTER-ADDR-BY-NAME.
    MasterAddress(&'a [u8]),
    /// MASTER.
    Master(&'a [u8]),
    /// MASTERS.
    Masters,
    /// MYID.
    MyId,
    /// REPLICAS and SLAVES.
    Replicas(&'a [u8]),
    /// SENTINELS.
    Sentinels(&'a [u8]),
}

/// A change of what a connection is subscribed to.
#[derive(Clone, Debug)]
pub struct SubscriptionChange<'a> {
    /// Whether it begins; otherwise it ends.
    pub begins: bool,
    /// Whether the names are patterns of channels.
    pub is_pattern: bool,
    /// The names; none ends all subscriptions of the kind.
    pub names: Keys<'a>,
}

/// What a server is to become.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoleRequest<'a> {
    /// REPLICAOF NO ONE: a primary.
    Lead,
    /// A replica of the server at this address.
    Follow(Cow<'a, str>),
    /// It stays a replica, and copies its primary anew.
    Resync,
}

/// What ACL is to do.
#[derive(Clone, Debug)]
pub enum AclRequest<'a> {
    /// CAT, of a category.
    Cat(Option<&'a [u8]>),
    /// DELUSER.
    DelUser(Keys<'a>),
    /// DRYRUN.
    DryRun {
        /// The user.
        user: &'a [u8],
        /// The words that call a command, at least one, behind those of DRYRUN.
        words: Words<'a>,
    },
    /// GENPASS.
    GenPass(Genpass),
    /// GETUSER.
    GetUser(&'a [u8]),
    /// LIST.
    List,
    /// LOAD.
    Load,
    /// LOG: so many entries.
    Log(usize),
    /// LOG RESET.
    ResetLog,
    /// SAVE.
    Save,
    /// SETUSER.
    SetUser {
        /// The user.
        name: &'a [u8],
        /// The rules, each unchecked.
        rules: Keys<'a>,
    },
    /// USERS.
    Users,
    /// WHOAMI.
    WhoAmI,
}

/// The keys that SCAN and KEYS return.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyFilter {
    /// MATCH: a glob pattern.
    pub pattern: Option<Glob>,
    /// TYPE: the name of a type.
    pub of_type: Option<Box<[u8]>>,
}

impl KeyFilter {
    /// Whether a key of this kind is one of them.
    pub fn admits(&self, kind: Kind, key: &[u8]) -> bool {
        let name = kind.name().as_bytes();
        let is_type = |wanted: &[u8]| wanted.eq_ignore_ascii_case(name);
        self.of_type.as_deref().is_none_or(is_type)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(key))
    }
}

/// RENAME, RENAMENX, COPY and MOVE.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transfer<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The other one.
    pub to: &'a [u8],
    /// The other key's database; `None` for the same.
    pub database: Option<Database>,
    /// Another key of that name is replaced.
    pub replaces: bool,
    /// The key stays.
    pub keeps: bool,
    /// Source and target must not be the same key of the same database.
    pub must_differ: bool,
    /// How the reply is made.
    pub form: ReplyForm,
}

/// The arguments of HELLO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// The version to speak from the reply on; as before without one.
    pub version: Option<RespVersion>,
    /// User and password.
    pub auth: Option<(&'a [u8], &'a [u8])>,
    /// The connection's new name.
    pub name: Option<&'a [u8]>,
    /// The command's name as it was sent.
    pub command: &'a [u8],
}

/// The attribute that CLIENT SETINFO sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAttribute {
    /// LIB-NAME: the client library's name.
    LibraryName,
    /// LIB-VER: its version.
    LibraryVersion,
}

/// The sections that INFO asks for.
#[derive(Clone, Debug)]
pub struct Sections<'a> {
    /// Their names, as they were written.
    pub(crate) words: Keys<'a>,
    /// This one alone, whatever the words say.
    pub(crate) only: Option<&'static str>,
}

impl Sections<'_> {
    /// Whether to show a section. Without arguments, and with `default`, `all` and `everything`,
    /// INFO shows each.
    pub fn wants(&self, section: &str) -> bool {
        if let Some(only) = self.only {
            return only == section;
        }
        let every = ["default", "all", "everything", section];
        self.words.len() == 0
            || self
                .words
                .clone()
                .any(|word| every.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes())))
    }
}

/// The patterns of CONFIG GET.
#[derive(Clone, Debug)]
pub struct Patterns(pub(crate) Vec<Glob>);

impl Patterns {
    /// Whether any pattern matches a parameter's name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name.as_bytes()))
    }
}

/// The arguments of COMMAND.
#[derive(Clone, Debug)]
pub enum CommandQuery<'a> {
    /// COMMAND alone, and COMMAND INFO without names.
    All,
    /// COUNT.
    Count,
    /// INFO with names.
    Info(Keys<'a>),
    /// DOCS; no names ask for all.
    Docs(Keys<'a>),
    /// LIST.
    List(ListFilter<'a>),
    /// GETKEYS of these words, which call a command.
    GetKeys(Keys<'a>),
}

/// The commands that COMMAND LIST names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListFilter<'a> {
    /// All.
    None,
    /// Those of a module: there are no modules.
    Module,
    /// Those of an ACL category.
    Category(&'a [u8]),
    /// Those that match a glob pattern.
    Pattern(Glob),
}
