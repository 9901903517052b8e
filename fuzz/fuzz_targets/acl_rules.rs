//! Any bytes as rules of a user, and as a users' file. Rules that are taken are written to a file that says the
//! same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_acl::Users;
use remora_resp::table::CommandTable;

fuzz_target!(|data: &[u8]| {
    let mut users = Users::new(&CommandTable);
    let rules = data.split(|byte| *byte == b' ');
    if users.set_user(&CommandTable, b"u", rules).is_ok() {
        let file = users.to_file();
        let again = Users::parse_file(&CommandTable, "users", &file).expect("its own file");
        assert_eq!(again.to_file(), file);
    }
    if let Ok(users) = Users::parse_file(&CommandTable, "users", data) {
        let file = users.to_file();
        let again = Users::parse_file(&CommandTable, "users", &file).expect("its own file");
        assert_eq!(again.to_file(), file);
    }
});
