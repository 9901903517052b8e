//! The users' file.

use crate::rules::set;
use crate::table::Table;
use remora_acl::Users;
use remora_layout::limits::MAX_ACL_FILE_ERRORS;

const END: &str =
    "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";

fn errors(text: &str) -> String {
    Users::parse_file(&Table::small(), "/f", text.as_bytes()).expect_err("errors")
}

#[test]
fn a_saved_file_reads_back() {
    let table = Table::small();
    let mut users = Users::new(&table);
    set(&mut users, &table, "on >one >two ~a* %R~b %RW~* ~c &d +@all -@admin +select|0").unwrap();
    users.set_user(&table, b"b", [&b"(~a"[..], b"+get)", b"(&x", b"+@read)", b"nopass"]).unwrap();
    users.set_user(&table, b"default", [&b"off"[..]]).unwrap();
    let text = users.to_file();
    let again = Users::parse_file(&table, "/f", &text).expect("what was saved");
    assert_eq!(again.to_file(), text);
    assert!(again.authenticate(b"a", b"two").is_some());
    assert!(!again.default_user().is_on());
}

#[test]
fn a_file_without_default_has_the_first_one() {
    let users = Users::parse_file(&Table::small(), "/f", b"\r\n  user  on \n user a\n\n").unwrap();
    let names = users.iter().map(|user| user.name().to_vec()).collect::<Vec<_>>();
    assert_eq!(names, [&b""[..], b"a", b"default"]);
    assert!(users.default_user().is_unrestricted());
}

#[test]
fn errors_are_those_of_redis() {
    let start = "should start with user keyword followed by the username. ";
    let unknown = "Unknown command or category name in ACL. ";
    for (text, expected) in [
        ("user a\nusr b", format!("/f:2 {start}")),
        ("\n# a", format!("/f:2 {start}")),
        ("user", format!("/f:1 {start}")),
        (
            "user a +x ~b\tc +y nope",
            format!(
                "/f:1: Error in applying operation '+x': {unknown}/f:1: Syntax error. /f:1: Error \
                 in applying operation '+y': {unknown}"
            ),
        ),
        ("user a\nuser a", "WARNING: Duplicate user 'a' found on line 2. ".into()),
        ("user a\ton", "'/f:1: username 'a\ton' contains invalid characters. ".into()),
        ("user a (+get", "/f:1: Unmatched parenthesis in selector definition.".into()),
    ] {
        assert_eq!(errors(text), expected + END, "{text}");
    }
}

#[test]
fn a_wrong_password_is_not_in_the_error() {
    assert!(!errors("user a <secret").contains("secret"));
    assert!(!errors("user a #secret").contains("secret"));
}

#[test]
fn errors_of_a_long_file_are_bounded() {
    let text = errors(&"user\n".repeat(100_000));
    assert_eq!(text.matches("keyword").count(), MAX_ACL_FILE_ERRORS);
}
