//! What the commands ask servers of the cluster directly. A server that stands still delays them for a bounded
//! time.

use anyhow::bail;
use remora_command_line::Connection;
use remora_resp::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A server that has not answered by then counts as silent.
const LIMIT: Duration = Duration::from_secs(2);

fn connect(address: &str) -> anyhow::Result<Connection> {
    let link = Connection::connect(address)?;
    link.limit_waiting(LIMIT)?;
    Ok(link)
}

/// The lines of INFO cluster of a server, by name.
///
/// # Errors
/// The server does not answer.
pub fn cluster_info(address: &str) -> anyhow::Result<BTreeMap<String, String>> {
    connect(address)?.info_section("cluster")
}

/// Hands a message to a server.
///
/// # Errors
/// The server does not answer, or does not take it.
pub fn deliver(address: &str, envelope: &[u8]) -> anyhow::Result<()> {
    let mut link = connect(address)?;
    link.push(&[b"MEMBER.DELIVER", envelope]);
    link.flush()?;
    match link.reply()? {
        Value::Error(why) => bail!("{}", String::from_utf8_lossy(why)),
        _ => Ok(()),
    }
}
