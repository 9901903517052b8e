//! What is kept of passwords for logins by SCRAM: it comes and goes with the password, and survives the users'
//! file.

use crate::rules::set;
use crate::table::Table;
use remora_acl::{User, Users};

fn keys(user: &User) -> Option<String> {
    user.scram_keys().map(|keys| String::from_utf8(keys.to_vec()).unwrap())
}

/// The keys after these changes, each of several rules, and after the users' file was read again.
fn after(changes: &[&str]) -> Option<String> {
    let table = Table::with_scram_keys();
    let mut users = Users::new(&table);
    for rules in changes {
        set(&mut users, &table, rules).expect("good rules");
    }
    let found = keys(users.get(b"a").expect("it was set"));
    let text = users.to_file();
    let again = Users::parse_file(&table, "/f", &text).expect("our own file");
    assert_eq!(again.to_file(), text);
    assert_eq!(keys(again.get(b"a").unwrap()), found);
    // Also at a server that has no such logins: its file keeps what it does not use.
    let others = Users::parse_file(&Table::small(), "/f", &text).expect("our own file");
    assert_eq!(others.to_file(), text);
    found
}

fn of(password: &str) -> Option<String> {
    Some(format!("15000:of:{password}"))
}

#[test]
fn the_newest_password_has_keys() {
    assert_eq!(after(&["on"]), None);
    assert_eq!(after(&["on >one"]), of("one"));
    assert_eq!(after(&["on >one >two"]), of("two"));
    assert_eq!(after(&["on >one", ">two", ">one"]), of("one"));
}

#[test]
fn keys_go_with_their_password() {
    assert_eq!(after(&[">one", "<one"]), None);
    assert_eq!(after(&[">one >two", "<two"]), of("one"));
    assert_eq!(after(&[">one >two", "<one"]), of("two"));
    for rule in ["resetpass", "nopass", "reset"] {
        assert_eq!(after(&[">one >two", rule]), None, "{rule}");
    }
    let hash = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    assert_eq!(after(&[">one", &format!("!{hash}")]), None, "the hash of one");
}

#[test]
fn a_hash_has_no_keys() {
    let hash = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    assert_eq!(after(&[&format!("#{hash}")]), None);
    let rule = format!("scram-sha-256:{hash}:15000:of:one");
    assert_eq!(after(&[&format!("#{hash}"), &rule]), of("one"));
    assert_eq!(after(&[&rule]), None, "without the password they are for nothing");
    assert_eq!(after(&[">one", ">two", &rule]), of("one"));
}

#[test]
fn a_server_without_such_logins_keeps_nothing() {
    let table = Table::small();
    let user = set(&mut Users::new(&table), &table, "on >one").expect("good rules");
    assert_eq!(keys(&user), None);
}
