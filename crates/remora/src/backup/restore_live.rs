//! A backup's keys, given to a server that runs, by ordinary requests: from any host, of any number
//! of shards, logged and acknowledged as any client's.
//!
//! Invariants: the backup is read, checked and loaded to its end before the first key of the server
//! is changed. A key that was refused because the server's log was full for a moment is removed and
//! made again as a whole: no object is made of some of its requests.

use super::{CheckArgs, compare};
use crate::recovery_bar::RecoveryBar;
use anyhow::{Context, bail, ensure};
use clap::Args;
use remora_client_core::{Database, Options, Session};
use remora_command_line::{Address, Connection, Transport, connect, note, unavailable, usage};
use remora_engine::Now;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_resp::Value;
use remora_server::{Loaded, LoadedData, Progress};
use remora_storage::Manifest;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Requests under way.
const IN_FLIGHT: usize = 128;
/// The server's disk gets this much time to take something again.
const DISK_LIMIT: Duration = Duration::from_secs(30);
/// A pause before refused keys are made again.
const PAUSE: Duration = Duration::from_millis(50);
/// The digests are compared so often: keys may expire meanwhile, here and there at other moments.
const COMPARISONS: usize = 20;

/// The server to restore into.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// A server that runs, on any host: HOST:PORT of its RESP port. It gets the backup's keys, and
    /// goes on serving meanwhile.
    #[arg(long, value_name = "ADDR", conflicts_with = "data_dir")]
    pub server: Option<Address>,
    /// Removes all keys that the server has; without it a server with keys is refused.
    #[arg(long, requires = "server")]
    replace: bool,
    /// How the keys go to the server.
    #[arg(long, value_enum, default_value_t = Transport::Auto, requires = "server")]
    transport: Transport,
}

/// A server that gets a backup's keys.
pub struct Target {
    server: Address,
    name: String,
    replaces: bool,
    transport: Transport,
    resp: Connection,
}

impl Target {
    /// Connects, and looks whether the server may get keys.
    pub fn at(args: &TargetArgs) -> anyhow::Result<Self> {
        let Some(server @ Address::Resp(address)) = &args.server else {
            return Err(usage("--server: name HOST:PORT of the RESP port, no socket"));
        };
        let resp = Connection::connect(address)
            .map_err(|error| unavailable(format!("RESP over tcp: {error:#}")))?;
        let (name, transport) = (address.clone(), args.transport);
        let mut target =
            Self { server: server.clone(), name, replaces: args.replace, transport, resp };
        target.check_keys()?;
        Ok(target)
    }

    /// The server has no keys, or they may go.
    fn check_keys(&mut self) -> anyhow::Result<()> {
        let keys = self.keys()?;
        if keys > 0 && !self.replaces {
            return Err(usage(format!(
                "the server at {} has {keys} keys: --replace removes them first",
                self.name
            )));
        }
        Ok(())
    }

    /// Keys of all databases.
    fn keys(&mut self) -> anyhow::Result<u64> {
        let mut keys = 0;
        for database in Database::all() {
            let number = database.number().to_string();
            self.resp.push(&[b"SELECT", number.as_bytes()]);
            self.resp.push(&[b"DBSIZE"]);
            self.resp.flush()?;
            self.resp.reply()?;
            match self.resp.reply()? {
                Value::Integer(of_database) => keys += u64::try_from(of_database)?,
                other => bail!("the server at {} does not tell its keys: {other:?}", self.name),
            }
        }
        Ok(keys)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.resp.push(&[b"FLUSHALL"]);
        self.resp.flush()?;
        match self.resp.reply()? {
            Value::Error(text) => bail!("FLUSHALL: {}", String::from_utf8_lossy(text)),
            _ => Ok(()),
        }
    }

    fn session(&self, database: Database) -> anyhow::Result<Sender> {
        let transport = self.transport.wanted();
        // A reply may wait for a disk that fails for a while.
        let options = Options { transport, database, timeout: DISK_LIMIT, ..Options::default() };
        let client = connect(self.server.of_sessions(self.transport)?, &options)?;
        Ok(Sender::new(client.session()?, database))
    }

    /// Gives the server the backup's keys. Returns its name, and what it holds then.
    pub fn restore(
        mut self,
        backup: &Path,
        manifest: &Manifest,
        check: &CheckArgs,
    ) -> anyhow::Result<(String, Option<Loaded>)> {
        let mut data = check.load(backup)?;
        if !check.no_digest {
            compare(&data.content(), backup, manifest)?;
        }
        data.expire(now()?);
        let all = data.content().keys;
        // Somebody may have made some meanwhile.
        self.check_keys()?;
        if self.replaces {
            self.flush()?;
        }
        self.send(&mut data, all).with_context(|| {
            format!(
                "the server at {} has only a part of the backup: --replace begins again",
                self.name
            )
        })?;
        let same = if check.no_digest { None } else { Some(self.compare(&mut data)?) };
        Ok((self.name, same))
    }

    fn send(&self, data: &mut LoadedData, all: u64) -> anyhow::Result<()> {
        let bar = RecoveryBar::new("restoring");
        let (started, mut done) = (Instant::now(), 0);
        let show = |done: u64, is_over: bool| {
            bar.show(&Progress { done, of: all, taken: started.elapsed(), is_over });
        };
        for database in Database::all() {
            if data.keys_in(database) == 0 {
                continue;
            }
            let mut sender = self.session(database)?;
            let (mut failed, now) = (None, now()?);
            data.each_key(database, now, &mut |shard, key, hash| {
                let made = sender.make(key, &mut |each| shard.rebuild((key, hash), now, each));
                failed = made.err();
                done += 1;
                if done % 1024 == 0 {
                    show(done, false);
                }
                failed.is_none()
            });
            failed.map_or(Ok(()), Err)?;
            sender.take_replies(0)?;
            sender.make_again(data, now)?;
            sender.keep()?;
        }
        show(done, true);
        Ok(())
    }

    /// The server has what the backup has, but for what has expired.
    fn compare(&mut self, data: &mut LoadedData) -> anyhow::Result<Loaded> {
        let mut digest = String::new();
        for _ in 0..COMPARISONS {
            data.expire(now()?);
            let content = data.content();
            digest = self.digest()?;
            if digest == content.digest {
                return Ok(content);
            }
            std::thread::sleep(PAUSE);
        }
        let expected = data.content().digest;
        bail!(
            "the server at {} has the digest {digest}, and the backup {expected}: other clients change it, or its clock is another one",
            self.name
        )
    }

    fn digest(&mut self) -> anyhow::Result<String> {
        self.resp.push(&[b"DEBUG", b"DIGEST"]);
        self.resp.flush()?;
        match self.resp.reply()? {
            Value::Simple(text) | Value::Bulk(text) => Ok(String::from_utf8_lossy(text).into()),
            other => bail!("the server at {} gives no digest: {other:?}", self.name),
        }
    }
}

/// This machine's clock, as shards take it.
fn now() -> anyhow::Result<Now> {
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    Ok(Now { unix_ms, ..Now::default() })
}

/// Sends the keys of one database.
struct Sender {
    session: Session,
    database: Database,
    /// The keys of the requests under way, in order.
    keys: VecDeque<Rc<[u8]>>,
    /// Keys of which a request was refused.
    refused: Vec<Rc<[u8]>>,
}

/// Hands over the commands of a key.
type Rebuild<'a> = dyn FnMut(&mut dyn FnMut(&Command<'_>)) -> Result<(), Status> + 'a;

impl Sender {
    fn new(session: Session, database: Database) -> Self {
        Self { session, database, keys: VecDeque::new(), refused: Vec::new() }
    }

    /// Sends the commands of a key, and does not wait for their replies.
    fn make(&mut self, key: &[u8], rebuild: &mut Rebuild<'_>) -> anyhow::Result<()> {
        let (key, mut failed) = (Rc::<[u8]>::from(key), None);
        let rebuilt = rebuild(&mut |command| {
            if failed.is_none() {
                failed = self.submit(&key, command).err();
            }
        });
        failed.map_or(Ok(()), Err)?;
        match rebuilt {
            // It has expired.
            Ok(()) | Err(Status::NotFound) => Ok(()),
            Err(_) => {
                bail!("{}: keys of its type cannot be restored into a server that runs", name(&key))
            }
        }
    }

    fn submit(&mut self, key: &Rc<[u8]>, command: &Command<'_>) -> anyhow::Result<()> {
        self.take_replies(IN_FLIGHT - 1)?;
        self.session.submit(command).with_context(|| name(key))?;
        self.keys.push_back(Rc::clone(key));
        Ok(())
    }

    /// Takes replies until at most so many requests are under way.
    fn take_replies(&mut self, most: usize) -> anyhow::Result<()> {
        while self.keys.len() > most {
            let mut status = Status::Ok;
            self.session.next_reply(&mut |_, reply| status = reply.status)?;
            let key = self.keys.pop_front().context("a reply to nothing")?;
            match status {
                Status::Ok => {}
                Status::NotKept => {
                    if self.refused.last() != Some(&key) {
                        self.refused.push(key);
                    }
                }
                status => {
                    return Err(remora_client_core::Error::Refused(status)).context(name(&key));
                }
            }
        }
        Ok(())
    }

    /// Makes the refused keys again, once the server's log takes them.
    fn make_again(&mut self, data: &mut LoadedData, now: Now) -> anyhow::Result<()> {
        let (mut since, mut told) = (Instant::now(), false);
        while !self.refused.is_empty() {
            let refused = std::mem::take(&mut self.refused);
            let before = refused.len();
            std::thread::sleep(PAUSE);
            for key in refused {
                self.submit(&key, &Command::Del { key: &key })?;
                self.take_replies(0)?;
                if self.refused.last() == Some(&key) {
                    continue;
                }
                let database = self.database;
                self.make(&key, &mut |each| data.rebuild((database, &key), now, each))?;
                self.take_replies(0)?;
            }
            if self.refused.len() < before {
                since = Instant::now();
            }
            if !std::mem::replace(&mut told, true) && !self.refused.is_empty() {
                note("the server's disk is slow, or takes nothing: waiting for it");
            }
            ensure!(
                since.elapsed() < DISK_LIMIT,
                "the server's disk takes nothing: its INFO persistence says why"
            );
        }
        Ok(())
    }

    /// Waits until what was sent is on the server's disk, if it has one.
    fn keep(&mut self) -> anyhow::Result<()> {
        match self.session.wait_synced(DISK_LIMIT) {
            Err(remora_client_core::Error::Refused(Status::NothingKept)) => Ok(()),
            waited => Ok(waited?),
        }
    }
}

fn name(key: &[u8]) -> String {
    format!("key {}", key.escape_ascii())
}
