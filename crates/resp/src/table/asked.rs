//! Requests of Remora's own clients as users' rights see them: each does what a command of the table does.

use super::rights::{CommandTable, access_to};
use crate::spec::Place;
use remora_acl::{Access, Call, Channel, CommandId, Commands, Denied, Key, User};
use remora_layout::database::Database;
use remora_protocol::Command;

/// A request, as far as rights are about it.
pub struct Asked<'a> {
    name: &'static str,
    id: CommandId,
    keys: Vec<Key<'a>>,
    /// The database, if it is another one than a connection begins with.
    database: Option<Database>,
}

/// What a request asks for; `None` if no user's command does that.
pub fn asked<'a>(database: Database, command: &Command<'a>) -> Option<Asked<'a>> {
    let name = command.command_name()?;
    let (outer, inner) = match name.split_once('|') {
        None => (name, None),
        Some((outer, inner)) => (outer, Some(inner.as_bytes())),
    };
    let id = CommandTable.find(outer.as_bytes(), inner)?;
    let (first, further) = (access_to(id, Place::First), access_to(id, Place::Further));
    // The key may be another one than the first of the command of that name, such as SORT's destination.
    let first = Access { write: first.write || command.is_write(), ..first };
    let key = |bytes, access| Key { at: 0, bytes, access };
    let mut keys: Vec<_> = match *command {
        // As SET without GET, it reads nothing.
        Command::Set { key: bytes, get: false, .. } => {
            vec![key(bytes, Access { read: false, ..first })]
        }
        Command::MultiSet { pairs } => pairs.iter().map(|(bytes, _)| key(bytes, first)).collect(),
        Command::Of { key: bytes, request } => {
            let others = request.other_keys().into_iter().map(|bytes| key(bytes, further));
            std::iter::once(key(bytes, first)).chain(others).collect()
        }
        _ => command.key().map(|bytes| key(bytes, first)).into_iter().collect(),
    };
    keys.iter_mut().zip(1..).for_each(|(key, at)| key.at = at);
    let database = (database != Database::ZERO).then_some(database);
    Some(Asked { name, id, keys, database })
}

impl<'a> Asked<'a> {
    /// Whether a user may ask so.
    ///
    /// # Errors
    /// What it is refused for.
    pub fn check(&self, user: &User) -> Result<(), Denied> {
        let channels = std::iter::empty::<Channel<'a>>;
        if let Some(database) = self.database {
            let number = database.number().to_string();
            let command = CommandTable.find(b"select", None).ok_or(Denied::Command)?;
            let keys = std::iter::empty::<Key<'_>>();
            let first_argument = Some(number.as_bytes());
            let select = Call { command, first_argument, keys, channels: channels() };
            user.check(&CommandTable, &select)?;
        }
        let keys = self.keys.iter().copied();
        let call = Call { command: self.id, first_argument: None, keys, channels: channels() };
        user.check(&CommandTable, &call)?;
        // The keys that a plan or a link leads to are not in the request.
        match self.name {
            "plan.run" | "link.chase" if !user.may_reading_all(&CommandTable, &call) => {
                Err(Denied::Key { at: 1 })
            }
            _ => Ok(()),
        }
    }

    /// What was refused: the command's name, or the key.
    pub fn object(&self, denied: Denied) -> &[u8] {
        let key = match denied {
            Denied::Key { at } => self.keys.get(at - 1),
            _ => None,
        };
        key.map_or(self.name.as_bytes(), |key| key.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Flag;
    use crate::table::all;
    use remora_acl::Users;
    use remora_layout::kind::Kind;
    use remora_protocol::message::{RequestHeader, form};
    use remora_protocol::{Items, Request};
    use std::collections::BTreeSet;
    use zerocopy::IntoBytes;

    fn spec_of(name: &str) -> &'static crate::spec::CommandSpec {
        all().find(|spec| spec.name == name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Frames of an operation with many values, of which some make sense.
    fn frames(of: u8, op: u8) -> impl Iterator<Item = Vec<u8>> {
        let list = |items: &[&[u8]]| {
            let mut list = Vec::new();
            items.iter().for_each(|item| Items::push(&mut list, item));
            list
        };
        let mut values = vec![list(&[b"a"]), list(&[b"a", b"b"]), list(&[b"a", b"b", b"c"])];
        values.push(list(&[b"a", &1f64.to_le_bytes()]));
        values.push(list(&[&1f64.to_le_bytes(), b"a"]));
        values.push(list(&[&7u64.to_le_bytes()]));
        values.push([&[1, 0, 0, 0, b'a'][..], &list(&[b"x"])].concat());
        // An empty document, and a list of one.
        values.push(vec![5, 0, 0, 0, 0]);
        values.push(list(&[&[5, 0, 0, 0, 0]]));
        values.extend((0..=96).map(|bytes| vec![0; bytes]));
        values.extend((1..=12).map(|words| 1f64.to_le_bytes().repeat(words)));
        values.into_iter().flat_map(move |value| {
            (0..64).flat_map(move |flags| {
                let value = value.clone();
                [0i64, 1, 5].into_iter().map(move |argument| {
                    let header = RequestHeader {
                        op,
                        flags,
                        form: form::within(Database::ZERO),
                        of,
                        key_bytes: 1.into(),
                        value_bytes: (value.len() as u32).into(),
                        id: 0.into(),
                        argument: argument.into(),
                    };
                    [header.as_bytes(), b"k", &value].concat()
                })
            })
        })
    }

    /// Whatever decodes has the name of a command, which changes something if the operation does.
    #[test]
    fn every_operation_does_what_a_command_does() {
        let types = Request::TYPES.iter().map(|(kind, count)| (kind.0, *count));
        let mut without = BTreeSet::new();
        for (of, count) in types {
            for op in 0..count {
                let mut is_found = false;
                for frame in frames(of, op) {
                    let Ok((_, command, _)) = Command::decode_within(&frame) else { continue };
                    is_found = true;
                    let Some(name) = command.command_name() else { continue };
                    if name == "restore" {
                        // No command of users does that: it takes what it is given without checks.
                        assert!(asked(Database::ZERO, &command).is_none());
                        continue;
                    }
                    let spec = spec_of(name);
                    let writes = spec.flags.contains(&Flag::Write);
                    // Mending a hint changes no content; SORT may store.
                    let is_other = matches!(name, "link.chase" | "sort");
                    assert!(command.is_write() == writes || is_other, "{name}: {command:?}");
                    let asked = asked(Database::ZERO, &command).unwrap();
                    let needs_write = asked.keys.iter().any(|key| key.access.write);
                    assert_eq!(needs_write, command.is_write(), "{name}: {command:?}");
                }
                if !is_found {
                    without.insert((of, op));
                }
            }
        }
        // The settings of BTREE.CREATE are other numbers than those.
        assert_eq!(without, BTreeSet::from([(Kind::ORDERED.0, 0)]));
    }

    fn may(rules: &str, command: &Command<'_>) -> Result<(), Denied> {
        let mut users = Users::new(&CommandTable);
        let rules = rules.split_ascii_whitespace().map(str::as_bytes);
        users.set_user(&CommandTable, b"u", rules).unwrap();
        asked(Database::ZERO, command).unwrap().check(users.get(b"u").unwrap())
    }

    #[test]
    fn rights_are_about_commands_keys_and_what_is_done_with_them() {
        let (condition, expiry) = Default::default();
        let set = |get| Command::Set { key: b"a:k", value: b"v", condition, expiry, get };
        let get = Command::Get { key: b"a:k" };
        assert_eq!(may("+get ~a:*", &get), Ok(()));
        assert_eq!(may("+get ~b:*", &get), Err(Denied::Key { at: 1 }));
        assert_eq!(may("+@all -get ~*", &get), Err(Denied::Command));
        assert_eq!(may("+@all %W~a:*", &get), Err(Denied::Key { at: 1 }));
        assert_eq!(may("+@all %W~a:*", &set(false)), Ok(()));
        assert_eq!(may("+@all %W~a:*", &set(true)), Err(Denied::Key { at: 1 }));
        assert_eq!(may("+@all %R~a:* (%W~a:* +set)", &set(false)), Ok(()));
        // Whether a request may be worth memory before it is whole.
        for (rules, key, may) in
            [("~a:* +get", "a:k", true), ("~a:* +get", "b:k", false), ("~* -@all", "a:k", false)]
        {
            let mut users = Users::new(&CommandTable);
            let rules = rules.split_ascii_whitespace().map(str::as_bytes);
            users.set_user(&CommandTable, b"u", rules).unwrap();
            assert_eq!(users.get(b"u").unwrap().may_touch(key.as_bytes()), may);
        }
        let plan = Command::Plan { plan: b"" };
        assert_eq!(may("+@all ~a:*", &plan), Err(Denied::Key { at: 1 }));
        assert_eq!(may("+@all %R~*", &plan), Ok(()));
        let of = Database::new(3).unwrap();
        let asked = asked(of, &get).unwrap();
        for (rules, is_allowed) in
            [("+get ~*", false), ("+get +select ~*", true), ("+get +select|3 ~*", true)]
        {
            let mut users = Users::new(&CommandTable);
            let rules = rules.split_ascii_whitespace().map(str::as_bytes);
            users.set_user(&CommandTable, b"u", rules).unwrap();
            assert_eq!(asked.check(users.get(b"u").unwrap()).is_ok(), is_allowed);
        }
    }
}
