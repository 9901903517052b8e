//! The same places in a server that keeps them: killed, started again, compared.
//!
//! A server of its own, so that the log does not take part in what the table measures: with it the same
//! mix was slower by a quarter over RESP, by half by message, and by two thirds by reading (2 busy cores).

use super::places::Places;
use super::search::{TREE, add_tree};
use super::table::Restart;
use anyhow::{Context, bail, ensure};
use remora_bench::{Records, SessionTarget, load};
use remora_client_core::{Options, Path};
use remora_command_line::{Connection, ServerPlan, ServerProcess, connect};
use remora_resp::Value;

/// What the server promises: a reply says that the bytes are with the kernel, which outlives it.
const DURABILITY: &str = "everysec";

/// What a server holds.
#[derive(PartialEq, Eq, Debug)]
struct Held {
    records: u64,
    tree_records: u64,
    digest: String,
}

/// Loads the places, kills the server, and starts it again.
pub fn restart(places: &Places) -> anyhow::Result<Restart> {
    let (key_bytes, value_bytes) = places.longest();
    let plan = ServerPlan::with_room(places.count(), key_bytes, value_bytes);
    let plan = ServerPlan { durability: Some(DURABILITY), ..plan };
    let mut server = ServerProcess::start(&plan)?;
    let shown = killed_and_back(places, &mut server).inspect_err(|_| server.note_log())?;
    server.stop()?;
    Ok(shown)
}

fn killed_and_back(places: &Places, server: &mut ServerProcess) -> anyhow::Result<Restart> {
    let client = connect(server.socket_path(), &Options::default())?;
    load(&mut SessionTarget::open(&client, Path::Ask)?, places, |_| {})?;
    add_tree(places, &client)?;
    drop(client);
    let before = held(server)?;
    let old_pid = server.pid();
    let ready = server.kill_and_restart()?;
    let after = held(server)?;
    ensure!(before == after, "the server had {before:?} when it was killed, and now has {after:?}");
    let recovery_ms = Connection::connect(&server.resp_address().to_string())?
        .info_of("persistence", "recovery_ms")?
        .context("the server tells no time of its recovery")?
        .parse()?;
    let Held { records, tree_records, digest } = after;
    // The tree is a key, too.
    let records = records - 1;
    ensure!(
        (records, tree_records) == (places.count() as u64, places.count() as u64),
        "{records} places and {tree_records} of the tree came back"
    );
    let ready_ms = ready.as_millis() as u64;
    let pids = [old_pid, server.pid()];
    Ok(Restart {
        durability: DURABILITY,
        pids,
        records,
        tree_records,
        ready_ms,
        recovery_ms,
        digest,
    })
}

fn held(server: &ServerProcess) -> anyhow::Result<Held> {
    let mut connection = Connection::connect(&server.resp_address().to_string())?;
    connection.push(&[b"DBSIZE"]);
    connection.push(&[b"RTREE.COUNT", TREE, b"-180", b"-90", b"180", b"90"]);
    connection.push(&[b"DEBUG", b"DIGEST"]);
    connection.flush()?;
    let mut count = || match connection.reply()? {
        Value::Integer(count) => Ok(count as u64),
        other => bail!("unexpected reply to a count: {other:?}"),
    };
    let (records, tree_records) = (count()?, count()?);
    let digest = match connection.reply()? {
        Value::Simple(text) | Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        other => bail!("unexpected reply to DEBUG DIGEST: {other:?}"),
    };
    Ok(Held { records, tree_records, digest })
}
