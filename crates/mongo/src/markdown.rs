//! The page of the commands, from their table.

use crate::commands::COMMANDS;
use crate::spec::{Right, Spec};
use std::fmt::Write as _;

const HEAD: &str = "# Commands of MongoDB

This page is made from the table of commands, in `crates/mongo/src/commands`: what is not here is an error, and so is a field that is not named.
Every command takes `$db`, `lsid`, `comment`, `maxTimeMS`, `readConcern`, `writeConcern`, `$readPreference`, `$clusterTime`, `apiVersion` 1, `apiStrict` and `apiDeprecationErrors` too.
How they are meant is in [Documents](documents.md). The handshake (`hello`, `isMaster`) and logins (`saslStart`, `saslContinue`, `logout`) come beside them.

| Command | What it does | Fields | Right |
| --- | --- | --- | --- |
";

fn right(of: Right) -> String {
    match of {
        Right::None => "none".to_owned(),
        Right::Login => "a login".to_owned(),
        Right::Collection(command) => format!("`{command}` on the collection"),
        Right::Database(command) => format!("`{command}` on the database"),
    }
}

fn words(of: &[&str]) -> String {
    of.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The page.
pub fn page() -> String {
    let mut all: Vec<&Spec> = COMMANDS.iter().copied().flatten().collect();
    all.sort_unstable_by_key(|spec| spec.names[0].to_ascii_lowercase());
    let mut page = HEAD.to_owned();
    for Spec { names, summary, fields, right: of, .. } in all {
        let (names, fields, right) = (words(names), words(fields), right(*of));
        let _ = writeln!(page, "| {names} | {summary} | {fields} | {right} |");
    }
    page
}
