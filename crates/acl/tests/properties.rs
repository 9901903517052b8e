//! Rules of any bytes: nothing panics, and what is accepted can be saved and read back.

use crate::table::Table;
use proptest::prelude::*;
use remora_acl::Users;

/// Words that look like rules, so that some are accepted.
fn rule() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        "[~%&+-]?[RW]?[~@(]?(get|config|select|read|client|a|\\*|\\|id|\\|get|\\|0|\\)| ){0,4}"
            .prop_map(String::into_bytes),
        "(on|off|reset|nopass|>[a-z ]|allkeys|~\\*|%RW~\\*|&\\*|\\+@all|\\(~a \\+get\\))"
            .prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn any_accepted_rules_read_back(
        changes in prop::collection::vec(prop::collection::vec(rule(), 0..6), 1..6)
    ) {
        let table = Table::small();
        let mut users = Users::new(&table);
        for rules in &changes {
            let _ = users.set_user(&table, b"a", rules.iter().map(Vec::as_slice));
        }
        let text = users.to_file();
        let again = Users::parse_file(&table, "/f", &text);
        prop_assert!(again.is_ok(), "{:?}: {}", again, text.escape_ascii());
        prop_assert_eq!(again.unwrap().to_file(), text);
    }

    #[test]
    fn no_file_panics(text in prop::collection::vec(rule(), 0..20)) {
        let text = text.join(&b"\nuser a "[..]);
        let _ = Users::parse_file(&Table::small(), "/f", &text);
    }
}
