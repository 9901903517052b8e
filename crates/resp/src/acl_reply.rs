//! The replies to ACL.

use crate::error::CommandError;
use crate::table::{CommandTable, called};
use crate::wire::{Args, Made, RespVersion, Words, encode, parse};
use remora_acl::{Commands, DryRunError, Entry, Rights, User, Users};

/// The reply to ACL CAT.
pub fn write_categories(out: &mut Vec<u8>, category: Option<&[u8]>) {
    let table = CommandTable;
    let Some(name) = category else {
        encode::array(out, table.categories().len());
        table.categories().iter().for_each(|name| encode::bulk(out, name.as_bytes()));
        return;
    };
    let Some(category) = table.category(name) else {
        let name = String::from_utf8_lossy(name);
        return encode::error(out, &format!("ERR Unknown category '{name}'"));
    };
    encode::array(out, table.members(category).count());
    table.members(category).for_each(|id| encode::bulk(out, table.name(id).as_bytes()));
}

/// The reply to ACL LIST.
pub fn write_list(out: &mut Vec<u8>, users: &Users) {
    encode::array(out, users.iter().count());
    users.iter().for_each(|user| encode::bulk(out, &user.describe()));
}

/// The reply to ACL USERS.
pub fn write_users(out: &mut Vec<u8>, users: &Users) {
    encode::array(out, users.iter().count());
    users.iter().for_each(|user| encode::bulk(out, user.name()));
}

/// The reply to ACL GETUSER.
pub fn write_user(out: &mut Vec<u8>, version: RespVersion, user: Option<&User>) {
    let Some(user) = user else { return encode::null(out, version) };
    encode::map(out, version, 6);
    encode::bulk(out, b"flags");
    encode::set(out, version, user.flags().count());
    user.flags().for_each(|flag| encode::bulk(out, flag.as_bytes()));
    encode::bulk(out, b"passwords");
    encode::array(out, user.password_hashes().count());
    user.password_hashes().for_each(|hash| encode::bulk(out, hash.as_bytes()));
    write_rights(out, user.root());
    encode::bulk(out, b"selectors");
    encode::array(out, user.selectors().len());
    for selector in user.selectors() {
        encode::map(out, version, 3);
        write_rights(out, selector);
    }
}

fn write_rights(out: &mut Vec<u8>, rights: &Rights) {
    let parts = [
        ("commands", rights.command_rules()),
        ("keys", rights.key_patterns()),
        ("channels", rights.channel_patterns()),
    ];
    for (name, rules) in parts {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, &rules);
    }
}

/// The reply to ACL LOG.
pub fn write_log<'e>(
    out: &mut Vec<u8>,
    version: RespVersion,
    entries: impl ExactSizeIterator<Item = &'e Entry>,
    now_ms: u64,
) {
    encode::array(out, entries.len());
    for entry in entries {
        encode::map(out, version, 7);
        encode::bulk(out, b"count");
        encode::integer(out, entry.count as i64);
        let texts = [
            ("reason", entry.reason.name().as_bytes()),
            ("context", entry.context.name().as_bytes()),
            ("object", &entry.object),
            ("username", &entry.user),
        ];
        for (name, text) in texts {
            encode::bulk(out, name.as_bytes());
            encode::bulk(out, text);
        }
        encode::bulk(out, b"age-seconds");
        encode::double(out, version, entry.age_s(now_ms));
        encode::bulk(out, b"client-info");
        encode::bulk(out, &entry.client);
    }
}

/// The reply to ACL DRYRUN: `words` are those of DRYRUN, behind which the command's begin.
pub fn write_dry_run(out: &mut Vec<u8>, users: &Users, name: &[u8], words: Words<'_>) {
    match dry_run(users, name, words) {
        Ok(None) => encode::ok(out),
        Ok(Some(denied)) => encode::bulk(out, &denied),
        Err(error) => encode::error(out, &format!("ERR {error}")),
    }
}

/// Why the user may not call it; `None` if it may.
fn dry_run(users: &Users, name: &[u8], words: Words<'_>) -> Result<Option<Vec<u8>>, DryRunError> {
    let user = users.get(name).ok_or_else(|| DryRunError::NoUser(name.to_vec()))?;
    let call: Vec<&[u8]> = (3..words.len()).map(|at| words.get(at)).collect();
    let (mut bytes, mut args, made) = (Vec::new(), Args::new(), Made::default());
    encode::request(&mut bytes, &call);
    parse(&bytes, &mut args).expect("it was a request's");
    let words = Words::new(&args, &bytes, &made);
    let call = match called(words) {
        Ok(call) => call,
        Err(CommandError::WrongArity(name)) => {
            return Err(DryRunError::ArgumentCount(name.to_owned()));
        }
        Err(_) => return Err(DryRunError::NoCommand(words.get(0).to_vec())),
    };
    let denied = call.check(user, words).err();
    Ok(denied.map(|denied| denied.dry_run_text(call.spec().name, |at| words.get(at))))
}
