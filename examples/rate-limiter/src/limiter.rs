//! The limiter itself: of each caller, at most so many requests in any window of time. The key of a
//! caller is a sorted set of the permitted requests of the last window, whose scores are their times.
//! Read this as an example, of any Redis client and of Remora's own.
//!
//! A request is added first, and then all are counted: of requests that come at once by several
//! processes none sees a room that another one takes. One that finds more than the limit removes itself
//! again. So there are never too many; at most, requests that come at the same moment are all refused
//! where one had room. All processes need one clock: a request that reaches the server late, behind one
//! of a later time, no longer finds those that have left the window of that one.

use anyhow::bail;
use remora_client::{Client, Session};
use remora_command_line::Connection;
use remora_resp::Value;
use std::time::Duration;

/// A caller that makes no requests for so long and a window leaves nothing.
const KEPT: Duration = Duration::from_secs(60);

/// How many requests a caller may make in any window of this length.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub requests: u64,
    pub window: Duration,
}

impl Limit {
    pub fn window_ms(self) -> u64 {
        self.window.as_millis() as u64
    }

    /// Requests of this time and before have left the window of one that comes at `at_ms`; below zero in
    /// the first window of the clock, in which none has.
    fn over_at(self, at_ms: u64) -> i64 {
        at_ms as i64 - self.window.as_millis() as i64
    }
}

/// A request to be permitted.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub caller: &'a str,
    /// Its name, which no other request of the caller has.
    pub request: &'a str,
    /// When it came, by the clock that all processes share, ms.
    pub at_ms: u64,
}

impl Asked<'_> {
    fn key(&self) -> String {
        format!("requests:{}", self.caller)
    }
}

/// A way to the limiter.
pub enum Limiter {
    /// As any Redis client does.
    Resp(Box<Connection>),
    /// By Remora's client.
    Session(Box<Session>),
}

impl Limiter {
    /// A limiter by RESP.
    pub fn by_resp(address: &str) -> anyhow::Result<Self> {
        Ok(Self::Resp(Box::new(Connection::connect(address)?)))
    }

    /// A limiter by a session of the process's connection.
    pub fn by_session(client: &Client) -> anyhow::Result<Self> {
        Ok(Self::Session(Box::new(client.session()?)))
    }

    /// Whether a request is permitted.
    pub fn permit(&mut self, limit: Limit, asked: Asked<'_>) -> anyhow::Result<bool> {
        let made = match self {
            Self::Resp(connection) => add_by_resp(connection, limit, asked)?,
            Self::Session(session) => add_by_session(session, limit, asked)?,
        };
        if made <= limit.requests {
            return Ok(true);
        }
        // It does not count.
        match self {
            Self::Resp(connection) => {
                connection.push(&[b"ZREM", asked.key().as_bytes(), asked.request.as_bytes()]);
                connection.flush()?;
                integer(&connection.reply()?)?;
            }
            Self::Session(session) => {
                let key = asked.key();
                session.sorted_set(key.as_bytes())?.remove(&[asked.request.as_bytes()])?;
            }
        }
        Ok(false)
    }
}

/// Adds a request, and counts those of the window: four commands, one round trip.
fn add_by_resp(connection: &mut Connection, limit: Limit, asked: Asked<'_>) -> anyhow::Result<u64> {
    let (key, at) = (asked.key(), asked.at_ms.to_string());
    let over = limit.over_at(asked.at_ms).to_string();
    let (key, request) = (key.as_bytes(), asked.request.as_bytes());
    // Those that came before the window. A key whose requests have all gone is no more.
    connection.push(&[b"ZREMRANGEBYSCORE", key, b"-inf", over.as_bytes()]);
    connection.push(&[b"ZADD", key, at.as_bytes(), request]);
    connection.push(&[b"ZCARD", key]);
    let kept_s = (limit.window + KEPT).as_secs().to_string();
    connection.push(&[b"EXPIRE", key, kept_s.as_bytes()]);
    connection.flush()?;
    let mut numbers = [0; 4];
    for number in &mut numbers {
        *number = integer(&connection.reply()?)?;
    }
    Ok(numbers[2])
}

/// The same by Remora's client.
fn add_by_session(session: &mut Session, limit: Limit, asked: Asked<'_>) -> anyhow::Result<u64> {
    let key = asked.key();
    let mut requests = session.sorted_set(key.as_bytes())?;
    let over = limit.over_at(asked.at_ms);
    requests.remove_range_by_score(..=over as f64)?;
    requests.add(&[(asked.request.as_bytes(), asked.at_ms as f64)])?;
    let made = requests.member_count()?;
    session.expire(key.as_bytes(), limit.window + KEPT)?;
    Ok(made)
}

fn integer(reply: &Value<'_>) -> anyhow::Result<u64> {
    match reply {
        Value::Integer(number) => Ok(*number as u64),
        Value::Error(text) => bail!("the server says: {}", String::from_utf8_lossy(text)),
        other => bail!("unexpected reply: {other:?}"),
    }
}
