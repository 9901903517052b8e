//! PostgreSQL: tables and queries, read by COPY in one snapshot.
//!
//! COPY sends the rows as text, whatever their types, and no faster than they are taken. All tables of
//! a load are read in one transaction, so they fit together.

use super::pgpass::{self, Login};
use crate::mapping::{Mapping, TableMapping};
use crate::row::{Cell, MAX_RECORD_BYTES, Position, Rows};
use anyhow::{Context, bail};
use futures_util::StreamExt;
use remora_command_line::usage;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::config::{Config, Host, SslMode};
use tokio_postgres::{Client, NoTls};

/// A database that does not answer a connection for so long is away.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The wait for the next row is interrupted so often.
const IDLE_EVERY: Duration = Duration::from_secs(1);
/// A database from which nothing comes for so long is away.
const MOST_IDLE: u32 = 300;
/// Longest row, as text, in bytes.
const MAX_ROW_BYTES: usize = MAX_RECORD_BYTES as usize;
/// The port where a URL names none.
const PORT: u16 = 5432;
/// Where Debian's servers have their sockets.
const SOCKETS: &str = "/var/run/postgresql";

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A database, in a transaction.
pub struct Database {
    runtime: Runtime,
    client: Client,
    queries: BTreeMap<String, String>,
}

impl Database {
    /// Connects, begins a transaction, and looks whether all tables and columns are there.
    ///
    /// # Errors
    /// Usage: the URL has a password or wants TLS. Others: the database is away, or lacks something.
    pub fn connect(url: &str, mapping: &Mapping) -> anyhow::Result<Self> {
        if mapping.csv.separator.is_some() || mapping.csv.columns.is_some() {
            return Err(usage("[csv] is for files"));
        }
        let config = config(url)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime
            .block_on(async {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(connection);
                client.batch_execute(BEGIN).await?;
                Ok::<_, tokio_postgres::Error>(client)
            })
            .map_err(told)
            .with_context(|| format!("PostgreSQL at {}", shown(&config)))?;
        let database = Self { runtime, client, queries: mapping.queries.clone() };
        for table in &mapping.tables {
            let select = database.select(table)?;
            let prepared = database.runtime.block_on(database.client.prepare(&select));
            prepared.map_err(told).with_context(|| format!("PostgreSQL: {select}"))?;
        }
        Ok(database)
    }

    /// The query for a table's wanted columns.
    fn select(&self, table: &TableMapping) -> anyhow::Result<String> {
        let Some(name) = &table.name else {
            return Err(usage("the source is PostgreSQL: each section names its table by from"));
        };
        let columns: Vec<String> = table.columns.iter().map(|column| quoted(column)).collect();
        let from = match self.queries.get(name) {
            Some(query) => format!("({}) AS rows", query.trim().trim_end_matches(';')),
            None => name.split('.').map(quoted).collect::<Vec<_>>().join("."),
        };
        Ok(format!("SELECT {} FROM {from}", columns.join(", ")))
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The database is away, or what `rows` returns.
    pub fn read(&self, table: &TableMapping, rows: &mut impl Rows) -> anyhow::Result<()> {
        let copy = format!("COPY ({}) TO STDOUT", self.select(table)?);
        self.runtime.block_on(async {
            let stream = self.client.copy_out(copy.as_str()).await.map_err(told)?;
            let mut stream = pin!(stream);
            let mut lines = Lines { waiting: Vec::new(), number: 0 };
            let mut idle = 0;
            loop {
                match tokio::time::timeout(IDLE_EVERY, stream.next()).await {
                    Ok(Some(bytes)) => lines.take(&bytes.map_err(told)?, table, rows)?,
                    Ok(None) => break,
                    Err(_) if idle == MOST_IDLE => bail!("PostgreSQL is silent"),
                    Err(_) => {
                        idle += 1;
                        rows.idle()?;
                        continue;
                    }
                }
                idle = 0;
            }
            Ok(())
        })
    }
}

/// The library's error with its reason: by itself it says where it came up.
fn told(error: tokio_postgres::Error) -> anyhow::Error {
    match error.as_db_error() {
        Some(reason) => anyhow::anyhow!("{reason}"),
        None => error.into(),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What a URL says, and the environment where it says nothing.
fn config(url: &str) -> anyhow::Result<Config> {
    let mut config: Config = url.parse().map_err(|error| usage(format!("the URL: {error}")))?;
    if config.get_password().is_some() {
        return Err(usage(
            "a password on the command line is seen by all: PGPASSWORD or a .pgpass file has it",
        ));
    }
    let set = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    if config.get_hosts().is_empty() {
        config.host(set("PGHOST").unwrap_or_else(|| SOCKETS.to_owned()));
    }
    if config.get_user().is_none() {
        let user = set("PGUSER").or_else(|| set("USER"));
        config.user(user.ok_or_else(|| usage("name the user: postgres://USER@HOST/DATABASE"))?);
    }
    let user = config.get_user().unwrap_or_default().to_owned();
    if config.get_dbname().is_none() {
        config.dbname(set("PGDATABASE").unwrap_or_else(|| user.clone()));
    }
    check_tls(url, &config)?;
    config.connect_timeout(CONNECT_LIMIT).application_name("remora load");
    if let Some(password) =
        set("PGPASSWORD").map_or_else(|| of_file(&config, &user), |p| Ok(Some(p)))?
    {
        config.password(password);
    }
    Ok(config)
}

fn of_file(config: &Config, user: &str) -> anyhow::Result<Option<String>> {
    let Some(file) = pgpass::file() else { return Ok(None) };
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.as_str(),
        _ => "localhost",
    };
    let port = config.get_ports().first().copied().unwrap_or(PORT);
    let database = config.get_dbname().unwrap_or_default();
    pgpass::password(&file, Login { host, port, database, user }).map_err(usage)
}

/// There is no TLS: a host that is not this machine needs a word that this is known.
fn check_tls(url: &str, config: &Config) -> anyhow::Result<()> {
    if matches!(config.get_ssl_mode(), SslMode::Prefer | SslMode::Disable) {
        let is_here = |host: &Host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                name == "localhost"
                    || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            }
        };
        let is_known = config.get_ssl_mode() == SslMode::Disable;
        let are_here = config.get_hosts().iter().all(is_here)
            && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback);
        if is_known || are_here {
            return Ok(());
        }
    }
    Err(usage(format!(
        "{url}: this loader has no TLS. Go by a tunnel, or say ?sslmode=disable where the network is trusted"
    )))
}

fn shown(config: &Config) -> String {
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    let hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
    hosts.join(", ")
}

/// Rows of COPY's text form: a line each, tabs between, `\` before what would be one of these.
struct Lines {
    /// The beginning of a line that has not ended.
    waiting: Vec<u8>,
    /// Rows so far.
    number: u64,
}

impl Lines {
    fn take(
        &mut self,
        bytes: &[u8],
        table: &TableMapping,
        rows: &mut impl Rows,
    ) -> anyhow::Result<()> {
        self.waiting.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(length) = self.waiting[start..].iter().position(|byte| *byte == b'\n') {
            self.number += 1;
            let line = &self.waiting[start..start + length];
            let cells: Vec<Cell<'_>> = line.split(|byte| *byte == b'\t').map(cell).collect();
            if cells.len() == table.columns.len() {
                rows.row(self.number, &cells)?;
            } else {
                let why = format!("it has {} columns, not {}", cells.len(), table.columns.len());
                rows.bad(self.number, Position::Row, why)?;
            }
            start += length + 1;
        }
        self.waiting.drain(..start);
        anyhow::ensure!(
            self.waiting.len() <= MAX_ROW_BYTES,
            "row {}: it is longer than {MAX_ROW_BYTES} bytes",
            self.number + 1
        );
        Ok(())
    }
}

fn cell(text: &[u8]) -> Cell<'_> {
    if text == b"\\N" {
        return Cell::Missing;
    }
    if !text.contains(&b'\\') {
        return Cell::Text(text.into());
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'b') => 8,
                Some(b'f') => 12,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'v') => 11,
                Some(other) => *other,
                None => b'\\',
            },
            other => *other,
        });
    }
    Cell::Text(plain.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::Taken;
    use crate::source::place::tests::table;

    #[test]
    fn rows_come_whole_however_they_are_cut() {
        let text = b"1\ta\\tb\\\\c\\nd\n2\t\\N\n\\\\N\t\n";
        for cut in 0..=text.len() {
            let (mut lines, mut taken) =
                (Lines { waiting: Vec::new(), number: 0 }, Taken::default());
            for part in [&text[..cut], &text[cut..]] {
                lines.take(part, &table(&["id", "name"]), &mut taken).unwrap();
            }
            assert_eq!(taken.rows, ["1: 1|a\tb\\c\nd", "2: 2|-", "3: \\N|"], "cut at {cut}");
        }
    }

    #[test]
    fn secrets_do_not_stand_in_urls_and_other_hosts_need_a_word() {
        for (url, why) in [
            ("postgres://u:secret@localhost/d", "PGPASSWORD"),
            ("postgres://u@db.example/d", "no TLS"),
            ("postgres://u@localhost/d?hostaddr=192.0.2.1", "no TLS"),
            ("postgres://u@localhost/d?sslmode=require", "no TLS"),
        ] {
            let told = config(url).unwrap_err().to_string();
            assert!(told.contains(why) && !told.contains("secret"), "{told}");
        }
        for url in [
            "postgres://u@localhost/d",
            "postgres://u@127.0.0.1:1/d",
            "postgres://u@db.example/d?sslmode=disable",
            "postgres://u@/d?host=/run/postgresql",
        ] {
            config(url).unwrap();
        }
    }
}
