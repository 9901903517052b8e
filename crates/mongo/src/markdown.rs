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

/// Rights that a command needs for some of what it does.
fn further(name: &str) -> Option<&'static str> {
    Some(match name {
        "aggregate" => {
            "`doc.find` on the collections of its stages; `$geoNear` without `key`: `doc.info` on the collection; `$merge`: `doc.insert`, `doc.update` and `doc.info` on the collection into which it goes; `$out`: all rights (`+@all ~*`)"
        }
        "bulkWrite" => "`doc.insert` or `doc.update` on the collections that it changes",
        "collMod" => "`doc.info` on the collection",
        "createIndexes" | "drop" | "dropIndexes" => "`doc.info` on the collection",
        "explain" => {
            "`doc.find` on the collection; `$geoNear` without `key`: `doc.info` on the collection"
        }
        "findAndModify" => "`doc.find` on the collection, as it gives a document",
        "getMore" => "`doc.find` on the collections of its query",
        "listCollections" => "with `nameOnly` and `authorizedCollections`: those with the right",
        "listDatabases" => {
            "databases without the right are left out, unless `authorizedDatabases` is false"
        }
        "renameCollection" => "only users with all rights (`+@all ~*`) have it here",
        _ => return None,
    })
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
        let further = further(names[0]).map(|of| format!("; {of}")).unwrap_or_default();
        let right = right(*of) + &further;
        let (names, fields) = (words(names), words(fields));
        let _ = writeln!(page, "| {names} | {summary} | {fields} | {right} |");
    }
    page
}
