//! Rules: what they say, how they are described, their errors and their limits.

use crate::table::Table;
use remora_acl::{RuleError, SetUserError, User, Users};
use remora_layout::limits::{
    MAX_ACL_HEAP_BYTES, MAX_ACL_PASSWORDS, MAX_ACL_PATTERNS, MAX_ACL_RULES,
};
use remora_layout::limits::{
    MAX_ACL_SELECTORS, MAX_ACL_USERS, MAX_ACL_WORD_BYTES, MAX_PATTERN_BYTES,
};
use std::sync::Arc;

/// Applies rules, with spaces between them, to the user `a`.
pub fn set(users: &mut Users, table: &Table, rules: &str) -> Result<Arc<User>, SetUserError> {
    users.set_user(table, b"a", rules.split(' ').map(str::as_bytes))
}

/// The line of a new user with these rules, without its name.
fn line(rules: &str) -> String {
    let table = Table::small();
    let user = set(&mut Users::new(&table), &table, rules).expect("good rules");
    String::from_utf8(user.describe()).unwrap().split_off("user a ".len())
}

fn error(rules: &str) -> String {
    let table = Table::small();
    let mut users = Users::new(&table);
    let text = set(&mut users, &table, rules).expect_err("a bad rule").to_string();
    assert!(users.get(b"a").is_none(), "{rules}");
    text
}

#[test]
fn lines_are_those_of_redis() {
    let table = Table::small();
    let default = Users::new(&table).default_user().describe();
    assert_eq!(default, b"user default on nopass ~* &* +@all");
    let lines = [
        ("", "off resetchannels -@all"),
        ("on +get ~a %R~b &c &d", "on ~a %R~b resetchannels &c &d -@all +get"),
        ("ALLKEYS AllChannels allcommands", "off ~* &* +@all"),
        ("%w~a %r~a", "off ~a resetchannels -@all"),
        ("%WR~a %R", "off ~a %R~ resetchannels -@all"),
        ("~* resetkeys ~a &* resetchannels &b", "off ~a resetchannels &b -@all"),
        ("+@all -config +config|get", "off resetchannels +@all -config +config|get"),
        ("nopass skip-sanitize-payload", "off nopass skip-sanitize-payload resetchannels -@all"),
        ("on +@all ~* &* nopass (~a) reset", "off sanitize-payload resetchannels -@all"),
        (
            "(~a +get) (&c)",
            "off resetchannels -@all (~a resetchannels -@all +get) (resetchannels &c -@all)",
        ),
        ("(~a) clearselectors ()", "off resetchannels -@all (resetchannels -@all)"),
    ];
    for (rules, expected) in lines {
        assert_eq!(line(rules), expected, "{rules}");
    }
}

#[test]
fn later_rules_drop_those_that_they_override() {
    let lines = [
        ("+get -get", "-@all -get"),
        ("-get +set +get", "-@all +set +get"),
        ("+client|id -client|list +client", "-@all +client"),
        ("+client -client|kill", "-@all +client -client|kill"),
        ("+Select|0 +select|X +SELECT|x +select|1", "-@all +select|0 +select|x +select|1"),
        ("+select|0 -select", "-@all -select"),
        ("-select +select|0", "-@all -select +select|0"),
        ("+@read -get +@READ", "-@all -get +@read"),
        ("+@read -@all +ping", "-@all +ping"),
        ("+get nocommands allcommands -@dangerous", "+@all -@dangerous"),
    ];
    for (rules, expected) in lines {
        assert_eq!(line(rules), format!("off resetchannels {expected}"), "{rules}");
    }
}

#[test]
fn errors_are_those_of_redis() {
    let unknown = "Unknown command or category name in ACL";
    let rules = [
        ("+nope", unknown),
        ("+", unknown),
        ("+@", unknown),
        ("+@nope", unknown),
        ("+|", unknown),
        ("-select|0", unknown),
        ("+config|nope", unknown),
        ("+select|a|b", unknown),
        ("+client|id|x", "Allowing first-arg of a subcommand is not supported"),
        ("+config|", "Syntax error"),
        ("+get|", "Syntax error"),
        ("%~a", "Syntax error"),
        ("%", "Syntax error"),
        ("%RR~a", "Syntax error"),
        ("nope", "Syntax error"),
        (")", "Syntax error"),
        ("(on)", "Syntax error"),
        ("(~a))", "Syntax error"),
        ("~a\tb", "Syntax error"),
        ("<a", "The password you are trying to remove from the user does not exist"),
        ("(+nope)", unknown),
    ];
    for (rule, expected) in rules {
        let expected = format!("Error in ACL SETUSER modifier '{rule}': {expected}");
        assert_eq!(error(&format!("on {rule} +get")), expected);
    }
    assert!(error("~* ~a").ends_with("Try 'resetkeys' to start with an empty list of patterns"));
    assert!(
        error("&* &a").ends_with("Try 'resetchannels' to start with an empty list of channels")
    );
    assert_eq!(error("on (~a +get"), "Unmatched parenthesis in acl selector starting at '(~a'.");
    let table = Table::small();
    let refused = Users::new(&table).set_user(&table, b"a b", []).expect_err("a bad name");
    assert_eq!(refused.to_string(), "Usernames can't contain spaces or null characters");
}

#[test]
fn a_refused_rule_changes_nothing() {
    let table = Table::small();
    let mut users = Users::new(&table);
    set(&mut users, &table, "on >one ~a +get (+set ~b)").unwrap();
    let before = users.to_file();
    for rules in ["off nopass ~c -get clearselectors +nope", "reset (~a", "~d !00"] {
        set(&mut users, &table, rules).expect_err("a bad rule");
        assert_eq!(users.to_file(), before, "{rules}");
    }
}

#[test]
fn no_secret_is_in_debug_output() {
    let table = Table::small();
    let mut users = Users::new(&table);
    let hash = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    set(&mut users, &table, "on >foo").unwrap();
    assert!(String::from_utf8(users.to_file()).unwrap().contains(hash));
    let debug = format!("{users:?}");
    assert!(!debug.contains(hash) && !debug.contains("44, 38, 180"), "{debug}");
    for rules in ["<secret", "(secret", "#secret"] {
        let error = set(&mut users, &table, rules).expect_err("a bad rule");
        assert!(error.to_string().contains("secret") && !format!("{error:?}").contains("secret"));
    }
}

#[test]
fn passwords_authenticate() {
    let table = Table::small();
    let mut users = Users::new(&table);
    let right =
        |users: &Users, password: &str| users.authenticate(b"a", password.as_bytes()).is_some();
    assert!(!right(&users, "one"));
    set(&mut users, &table, ">one >two").unwrap();
    assert!(!right(&users, "one"), "the user is off");
    set(&mut users, &table, "on").unwrap();
    assert!(right(&users, "one") && right(&users, "two") && !right(&users, "three"));
    set(&mut users, &table, "<one").unwrap();
    assert!(!right(&users, "one") && right(&users, "two") && !right(&users, ""));
    set(&mut users, &table, "nopass").unwrap();
    assert!(right(&users, "whatever"));
    set(&mut users, &table, "resetpass").unwrap();
    assert!(!right(&users, "two") && !right(&users, "whatever"));
    users.require_password(&table, b"pass");
    let default =
        |users: &Users, password: &[u8]| users.authenticate(b"default", password).is_some();
    assert!(default(&users, b"pass") && !default(&users, b"pas"));
    assert!(!users.default_user().needs_no_password());
    users.require_password(&table, b"");
    assert!(users.default_user().needs_no_password());
}

#[test]
fn default_cannot_be_removed() {
    let table = Table::small();
    let mut users = Users::new(&table);
    set(&mut users, &table, "on").unwrap();
    let error = users.del_users([&b"a"[..], b"default"]).expect_err("default stays");
    assert_eq!(error.to_string(), "The 'default' user cannot be removed");
    assert!(users.get(b"a").is_some());
    let removed = users.del_users([&b"a"[..], b"b", b"a"]).unwrap();
    assert_eq!(removed.len(), 1);
    assert_eq!(users.iter().map(|user| user.name()).collect::<Vec<_>>(), [b"default"]);
}

/// Applies rules of numbers to one user until one is refused: how many were not, and the error.
fn until_refused(prefix: &str, rule: impl Fn(usize) -> String) -> (usize, RuleError) {
    let table = Table::small();
    let mut users = Users::new(&table);
    set(&mut users, &table, prefix).unwrap();
    let mut at = 0;
    loop {
        match set(&mut users, &table, &rule(at)) {
            Ok(_) => at += 1,
            Err(SetUserError::Rule { error, .. }) => return (at, error),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn whatever_grows_has_a_limit() {
    let limit = RuleError::Limit;
    let patterns = until_refused("", |at| format!("~{at}"));
    assert_eq!(patterns, (MAX_ACL_PATTERNS, limit("MAX_ACL_PATTERNS")));
    let channels = until_refused("", |at| format!("&{at}"));
    assert_eq!(channels, (MAX_ACL_PATTERNS, limit("MAX_ACL_PATTERNS")));
    let selectors = until_refused("", |at| format!("(~{at})"));
    assert_eq!(selectors, (MAX_ACL_SELECTORS, limit("MAX_ACL_SELECTORS")));
    let passwords = until_refused("", |at| format!(">{at}"));
    assert_eq!(passwords, (MAX_ACL_PASSWORDS, limit("MAX_ACL_PASSWORDS")));
    let rules = until_refused("+get", |at| format!("+select|{at}"));
    assert_eq!(rules, (MAX_ACL_RULES - 1, limit("MAX_ACL_RULES")));
    let pattern = until_refused("", |at| format!("~{}", "a".repeat(MAX_PATTERN_BYTES + at)));
    assert_eq!(pattern, (1, limit("MAX_PATTERN_BYTES")));
    let heap = until_refused("", |at| format!("~{at:0MAX_PATTERN_BYTES$}"));
    assert_eq!(heap, (15, limit("MAX_ACL_PATTERN_HEAP_BYTES")));
    let word = until_refused("", |at| format!("+select|{}", "a".repeat(MAX_ACL_WORD_BYTES + at)));
    assert_eq!(word, (1, limit("MAX_ACL_WORD_BYTES")));
}

#[test]
fn users_have_limits_together() {
    let table = Table::small();
    let mut users = Users::new(&table);
    for at in 1..MAX_ACL_USERS {
        users.set_user(&table, format!("u{at}").as_bytes(), []).unwrap();
    }
    let error = users.set_user(&table, b"more", []).expect_err("too many users");
    assert_eq!(error, SetUserError::Limit("MAX_ACL_USERS"));
    let patterns = (0..MAX_ACL_PATTERNS).map(|at| format!("~{at}")).collect::<Vec<_>>();
    let patterns = || patterns.iter().map(|pattern| pattern.as_bytes());
    let full = (1..MAX_ACL_USERS)
        .find(|at| users.set_user(&table, format!("u{at}").as_bytes(), patterns()).is_err())
        .expect("the heap is full before all users are");
    assert!(full * MAX_ACL_PATTERNS * 2048 < MAX_ACL_HEAP_BYTES);
    assert!((full + 10) * MAX_ACL_PATTERNS * 2300 > MAX_ACL_HEAP_BYTES);
    users.set_user(&table, b"u1", [&b"reset"[..]]).expect("less is always possible");
    users
        .set_user(&table, format!("u{full}").as_bytes(), patterns())
        .expect("there is space again");
}
