//! Checks of calls.

use crate::calls::{Role, Words};
use crate::rules::set;
use crate::table::Table;
use remora_acl::{Access, Denied, Users};

const READ: Role = Role::Key(Access::READ);
const WRITE: Role = Role::Key(Access::WRITE);

/// Whether a user with these rules may make a call.
fn check(rules: &str, words: &[(&str, Role)]) -> Result<(), Denied> {
    let table = Table::small();
    let user = set(&mut Users::new(&table), &table, rules).expect("good rules");
    Words::new(&table, words).check(&table, &user)
}

#[test]
fn commands_subcommands_and_categories() {
    let plain = |words: &str, rules: &str| {
        let words = words.split(' ').map(|word| (word, Role::Plain)).collect::<Vec<_>>();
        check(rules, &words).is_ok()
    };
    assert!(plain("ping", "+ping") && !plain("ping", "") && !plain("ping", "+get"));
    assert!(plain("auth x", ""), "AUTH needs no right");
    assert!(plain("client id", "+client") && !plain("client id", "+client -client|id"));
    assert!(plain("client id", "+client|id") && !plain("client list", "+client|id"));
    assert!(plain("ping", "+@fast") && !plain("ping", "+@all -@connection"));
    assert!(plain("client id", "+@slow -@admin") && !plain("client kill", "+@slow -@admin"));
    assert!(plain("select 0", "+select|0") && !plain("select 1", "+select|0"));
    assert!(!plain("select 0", "+select|0 -select") && !plain("select 0", "+select|0 -@fast"));
    assert!(plain("ping", "(+ping)") && plain("ping", "(+get) (+ping)"));
}

#[test]
fn keys_need_a_pattern_with_their_access() {
    let get = [("get", Role::Plain), ("a1", READ)];
    let set = [("set", Role::Plain), ("a1", WRITE), ("v", Role::Plain)];
    for (rules, reads, writes) in [
        ("~a*", true, true),
        ("~b*", false, false),
        ("%R~a*", true, false),
        ("%W~a*", false, true),
        ("%R~* %W~b*", true, false),
        ("allkeys", true, true),
        ("~* resetkeys", false, false),
    ] {
        let rules = format!("+get +set {rules}");
        assert_eq!(check(&rules, &get).is_ok(), reads, "{rules}");
        assert_eq!(check(&rules, &set).is_ok(), writes, "{rules}");
    }
    let both = [("set", Role::Plain), ("a", Role::Key(Access::READ_WRITE)), ("v", Role::Plain)];
    assert_eq!(check("+set %R~* %W~a", &both), Err(Denied::Key { at: 1 }), "no one has both");
    let neither = [("exists", Role::Plain), ("a", Role::Key(Access::NONE))];
    assert!(check("+exists %W~a", &neither).is_ok() && check("+exists ~b", &neither).is_err());
}

#[test]
fn one_selector_must_allow_all() {
    let mget = [("mget", Role::Plain), ("a", READ), ("b", READ)];
    assert!(check("+mget (~a) ~b", &mget).is_err());
    assert!(check("+mget ~b (+mget ~a ~b)", &mget).is_ok());
    assert_eq!(check("+mget ~a (+mget ~b)", &mget), Err(Denied::Key { at: 2 }), "the later one");
    assert_eq!(check("~* (+get)", &mget), Err(Denied::Command));
}

#[test]
fn channels_and_patterns_of_channels() {
    let publish = [("publish", Role::Plain), ("news.1", Role::Channel), ("m", Role::Plain)];
    assert!(check("+publish &news.*", &publish).is_ok());
    assert_eq!(check("+publish", &publish), Err(Denied::Channel { at: 1 }));
    let pattern = |name| [("psubscribe", Role::Plain), (name, Role::Pattern)];
    assert!(check("+psubscribe &news.*", &pattern("news.*")).is_ok());
    assert!(check("+psubscribe &news.*", &pattern("news.1")).is_err(), "it could be any pattern");
    assert!(check("+psubscribe allchannels", &pattern("news.1")).is_ok());
}

#[test]
fn texts_of_refusals() {
    let words = [&b"mget"[..], b"a", b"b"];
    let argument = |at: usize| words[at];
    let text = |denied: Denied| String::from_utf8(denied.dry_run_text("mget", argument)).unwrap();
    assert_eq!(text(Denied::Command), "This user has no permissions to run the 'mget' command");
    let key = Denied::Key { at: 2 };
    assert_eq!(text(key), "This user has no permissions to access the 'b' key");
    let channel = Denied::Channel { at: 1 };
    assert_eq!(text(channel), "This user has no permissions to access the 'a' channel");
}
