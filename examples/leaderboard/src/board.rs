//! The leaderboard itself: one sorted set, whose members are players and whose scores are points. Read
//! this as an example, of any Redis client and of Remora's own.

use anyhow::{Context, bail};
use remora_client::{Client, Page, Session};
use remora_command_line::Connection;
use remora_resp::Value;

/// The key of the leaderboard.
const BOARD: &str = "leaderboard";
/// Players that a look at the top shows.
pub const TOP: usize = 10;

/// What a look at the board shows of a player.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    pub player: String,
    pub points: f64,
}

/// A way to the board.
pub enum Board {
    /// As any Redis client does.
    Resp(Box<Connection>),
    /// By Remora's client.
    Session(Box<Session>),
}

impl Board {
    /// A board by RESP.
    pub fn by_resp(address: &str) -> anyhow::Result<Self> {
        Ok(Self::Resp(Box::new(Connection::connect(address)?)))
    }

    /// A board by a session of the process's connection.
    pub fn by_session(client: &Client) -> anyhow::Result<Self> {
        Ok(Self::Session(Box::new(client.session()?)))
    }

    /// A player wins points, or loses some. Returns the new points.
    pub fn add_points(&mut self, player: &str, points: f64) -> anyhow::Result<f64> {
        match self {
            Self::Resp(connection) => {
                let reply = ask(connection, &["ZINCRBY", BOARD, &points.to_string(), player])?;
                number(&reply)
            }
            Self::Session(session) => {
                let mut board = session.sorted_set(BOARD.as_bytes())?;
                Ok(board.increment(player.as_bytes(), points)?)
            }
        }
    }

    /// The best players, the best one first.
    pub fn top(&mut self) -> anyhow::Result<Vec<Line>> {
        match self {
            Self::Resp(connection) => {
                let last = (TOP - 1).to_string();
                let reply = ask(connection, &["ZRANGE", BOARD, "0", &last, "REV", "WITHSCORES"])?;
                lines(&reply)
            }
            Self::Session(session) => {
                let mut board = session.sorted_set(BOARD.as_bytes())?;
                // Read from the server's memory, if that is cheaper than asking.
                let best = board.range_by_score(.., Page::last(TOP as u64))?.members;
                Ok(best.iter().map(|player| line(&player.member, player.score)).collect())
            }
        }
    }

    /// How many players are before this one; `None` if he has not played.
    pub fn rank(&mut self, player: &str) -> anyhow::Result<Option<u64>> {
        match self {
            Self::Resp(connection) => match ask(connection, &["ZREVRANK", BOARD, player])? {
                Value::Integer(rank) => Ok(Some(rank as u64)),
                Value::Null => Ok(None),
                other => bail!("unexpected rank: {other:?}"),
            },
            Self::Session(session) => {
                let mut board = session.sorted_set(BOARD.as_bytes())?;
                Ok(board.reverse_rank(player.as_bytes())?.map(|(rank, _)| rank))
            }
        }
    }

    /// How many players have at least so many points.
    pub fn count_from(&mut self, points: f64) -> anyhow::Result<u64> {
        match self {
            Self::Resp(connection) => {
                match ask(connection, &["ZCOUNT", BOARD, &points.to_string(), "+inf"])? {
                    Value::Integer(count) => Ok(count as u64),
                    other => bail!("unexpected count: {other:?}"),
                }
            }
            Self::Session(session) => {
                let mut board = session.sorted_set(BOARD.as_bytes())?;
                Ok(board.count_by_score(points..)?)
            }
        }
    }

    /// Round trips so far.
    pub fn round_trips(&mut self) -> u64 {
        match self {
            Self::Resp(connection) => connection.flushes(),
            Self::Session(session) => session.counts().round_trips,
        }
    }
}

/// Sends a command, and takes its reply.
fn ask<'c>(connection: &'c mut Connection, words: &[&str]) -> anyhow::Result<Value<'c>> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    connection.push(&words);
    connection.flush()?;
    match connection.reply()? {
        Value::Error(text) => bail!("the server says: {}", String::from_utf8_lossy(text)),
        reply => Ok(reply),
    }
}

fn number(reply: &Value<'_>) -> anyhow::Result<f64> {
    let Value::Bulk(text) = reply else { bail!("unexpected points: {reply:?}") };
    std::str::from_utf8(text)?.parse().context("points")
}

fn line(player: &[u8], points: f64) -> Line {
    Line { player: String::from_utf8_lossy(player).into_owned(), points }
}

/// The players and points of a reply, which come in turns.
fn lines(reply: &Value<'_>) -> anyhow::Result<Vec<Line>> {
    let Value::Array(items) = reply else { bail!("unexpected players: {reply:?}") };
    let pairs = items.chunks(2).map(|pair| match pair {
        [Value::Bulk(player), points] => Ok(line(player, number(points)?)),
        other => bail!("unexpected player: {other:?}"),
    });
    pairs.collect()
}
