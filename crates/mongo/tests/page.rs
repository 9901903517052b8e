//! The page of the commands in the documentation is what their table says.

use std::path::Path;

#[test]
fn the_page_is_the_table() {
    let page = remora_mongo::markdown::page();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mongodb-commands.md");
    if std::env::var_os("REMORA_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/mongodb-commands.md is not what the table says: run this test with REMORA_UPDATE_DOCS=1"
    );
}
