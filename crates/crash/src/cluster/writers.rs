//! Writers that find the primary by themselves: they try all servers, and follow what a server says
//! that does not lead.
//!
//! Each writer owns its keys, and a key has one change under way at most. A reply that does not come in
//! time leaves its change under way: the connection waits aside until the server answers or closes it,
//! and meanwhile the key rests. An old primary that acknowledges late is taken at its word.

use super::round::Round;
use crate::history::{Promise, Verdict};
use crate::load::By;
use crate::state::State;
use crate::types;
use rand::rngs::ChaCha8Rng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use remora_client::Path;
use remora_command_line::Connection;
use remora_resp::Value;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Commands of a RESP writer under way.
const MOST_IN_FLIGHT: usize = 16;
/// A reply that takes longer does not keep its writer.
const REPLY_LIMIT: Duration = Duration::from_millis(500);
/// A look at a connection that waits aside, and the time between two.
const LOOK: Duration = Duration::from_millis(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A server may carry out what it has received after its connection has ended, until then.
const SETTLES: Duration = Duration::from_millis(300);
/// All connections that wait aside have their answers by then, once nothing is wrong any more.
const LATE_LIMIT: Duration = Duration::from_secs(10);
/// Before another server is tried, or the same one again.
const AGAIN: Duration = Duration::from_millis(5);

/// What is known of the last change of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It happened, and nothing is under way.
    Known,
    /// It is under way.
    Sent,
    /// Its reply was lost, or says nothing; from this moment on the primary tells.
    Doubtful(Instant),
    /// The same, and only the end of the round tells.
    Late,
}

/// Changes of one command: a key of the writer's, and the number of its change.
type Change = (usize, u64);

/// A connection whose replies have not come in time.
struct Aside {
    resp: Connection,
    server: usize,
    sent: VecDeque<Change>,
    since: Instant,
}

/// See the module's text. It lives through all rounds.
pub struct Writer {
    by: By,
    /// Its keys, by their place among all.
    own: Vec<usize>,
    /// What each of them holds once all that was sent has happened.
    states: Vec<State>,
    fates: Vec<Fate>,
    rng: ChaCha8Rng,
    /// The server that it takes for the primary.
    at: usize,
    aside: Vec<Aside>,
    looked: Instant,
}

impl Writer {
    /// A writer of these keys.
    pub fn new(by: By, own: Vec<usize>, seed: u64) -> Self {
        let count = own.len();
        Self {
            by,
            own,
            states: vec![State::default(); count],
            fates: vec![Fate::Known; count],
            rng: ChaCha8Rng::seed_from_u64(seed),
            at: 0,
            aside: Vec::new(),
            looked: Instant::now(),
        }
    }

    /// Its keys, with what they hold once all that was sent has happened.
    pub fn states(&self) -> impl Iterator<Item = (usize, &State)> {
        self.own.iter().copied().zip(&self.states)
    }

    /// What a key was found to hold, after the round.
    pub fn settle(&mut self, key: usize, state: State) {
        if let Some(at) = self.own.iter().position(|own| *own == key) {
            (self.states[at], self.fates[at]) = (state, Fate::Known);
        }
    }

    /// Writes until the round is over.
    pub fn run(&mut self, round: &Round<'_>) {
        while !round.is_over() {
            let next = match self.by {
                By::Resp => self.write_by_resp(round),
                By::Client => self.write_by_client(round),
            };
            self.at = next.unwrap_or(self.at + 1) % round.servers.len();
            std::thread::sleep(AGAIN);
        }
        let began = Instant::now();
        while !self.aside.is_empty() && began.elapsed() < LATE_LIMIT {
            self.look_aside(round);
            std::thread::sleep(LOOK_AGAIN);
        }
        for aside in std::mem::take(&mut self.aside) {
            round.problem(format!(
                "server {} has not answered {} change(s) for {:?}, nor closed the connection",
                aside.server,
                aside.sent.len(),
                aside.since.elapsed()
            ));
        }
    }

    /// Writes to the server that it takes for the primary. Returns where to go on; `None`: at another.
    fn write_by_resp(&mut self, round: &Round<'_>) -> Option<usize> {
        self.look_aside(round);
        let mut resp = round.servers[self.at].resp().ok()?;
        resp.limit_waiting(REPLY_LIMIT).ok()?;
        // A server that answers no reads is not asked to change anything.
        let probe = &round.keys[self.own[0]];
        if let Err(error) = probe.of.head(&mut resp, &probe.name) {
            return named_primary(&error.to_string(), round);
        }
        while !round.is_over() {
            self.look_aside(round);
            self.look_at_doubtful(&mut resp, round).ok()?;
            let mut sent = self.send_batch(&mut resp, round);
            if sent.is_empty() {
                std::thread::sleep(AGAIN);
                continue;
            }
            let since = Instant::now();
            let flushed = resp.flush();
            if flushed.is_err() {
                // What is only sent in part is not carried out.
                let _ = resp.end_sending();
            }
            let taken = flushed
                .and_then(|()| self.take_replies(&mut resp, &mut sent, self.at, since, round));
            match taken {
                Ok(None) => {}
                Ok(Some(words)) => return named_primary(&words, round),
                Err(error) if is_late(&error) => {
                    self.aside.push(Aside { resp, server: self.at, sent, since });
                    return None;
                }
                Err(_) => {
                    self.lose(sent, round);
                    return None;
                }
            }
        }
        Some(self.at)
    }

    /// Takes the replies to what was sent. Returns the words of the server if it does not lead.
    fn take_replies(
        &mut self,
        resp: &mut Connection,
        sent: &mut VecDeque<Change>,
        server: usize,
        since: Instant,
        round: &Round<'_>,
    ) -> anyhow::Result<Option<String>> {
        let mut words = None;
        while let Some((at, number)) = sent.front().copied() {
            let reply = resp.reply()?;
            sent.pop_front();
            if let Value::Error(text) = reply {
                round.unknown.fetch_add(1, Ordering::Relaxed);
                self.fates[at] = Fate::Doubtful(Instant::now());
                words = Some(String::from_utf8_lossy(text).into_owned());
            } else if matches!(reply, Value::Null) {
                // A wait for elements whose time is over: nothing was taken.
                round.unknown.fetch_add(1, Ordering::Relaxed);
                self.fates[at] = Fate::Doubtful(Instant::now());
            } else {
                self.fates[at] = Fate::Known;
                round.acknowledge((self.own[at], number), server, since);
            }
        }
        Ok(words)
    }

    /// Gathers commands about different keys.
    fn send_batch(&mut self, resp: &mut Connection, round: &Round<'_>) -> VecDeque<Change> {
        let known = (0..self.own.len()).filter(|at| self.fates[*at] == Fate::Known);
        let count = self.rng.random_range(1..=MOST_IN_FLIGHT);
        let ats = known.sample(&mut self.rng, count);
        ats.into_iter().map(|at| self.send(at, resp, round)).collect()
    }

    fn send(&mut self, at: usize, resp: &mut Connection, round: &Round<'_>) -> Change {
        let key = &round.keys[self.own[at]];
        let change = key.of.draw(&self.states[at], &mut self.rng);
        let command = types::command(key.of, &key.name, &change);
        resp.push_header(command.len());
        command.iter().for_each(|part| resp.push_part(part));
        self.states[at].apply(&change);
        self.fates[at] = Fate::Sent;
        (at, key.history().sent(&self.states[at]))
    }

    /// The connection is gone, and these replies with it.
    fn lose(&mut self, sent: VecDeque<Change>, round: &Round<'_>) {
        round.unknown.fetch_add(sent.len() as u64, Ordering::Relaxed);
        for (at, _) in sent {
            self.fates[at] = Fate::Doubtful(Instant::now() + SETTLES);
        }
    }

    /// Takes late replies.
    fn look_aside(&mut self, round: &Round<'_>) {
        if self.looked.elapsed() < LOOK_AGAIN {
            return;
        }
        self.looked = Instant::now();
        for mut aside in std::mem::take(&mut self.aside) {
            let Aside { resp, sent, server, since } = &mut aside;
            let taken = resp
                .limit_waiting(LOOK)
                .and_then(|()| self.take_replies(resp, sent, *server, *since, round));
            match taken {
                Ok(_) => {}
                Err(error) if is_late(&error) => self.aside.push(aside),
                Err(_) => self.lose(aside.sent, round),
            }
        }
    }

    /// Finds out what keys hold whose last change may or may not have happened. An error is the
    /// server's end, or it does not lead.
    fn look_at_doubtful(&mut self, resp: &mut Connection, round: &Round<'_>) -> anyhow::Result<()> {
        let now = Instant::now();
        for at in 0..self.own.len() {
            if !matches!(self.fates[at], Fate::Doubtful(from) if from <= now) {
                continue;
            }
            let key = &round.keys[self.own[at]];
            let found = types::read(key.of, resp, &key.name)?;
            let mut history = key.history();
            let verdict = history.judge(&found, Promise::All);
            history.settle(&found, Instant::now());
            drop(history);
            if verdict != Verdict::Fine {
                let lost = if let Verdict::Lost(changes) = verdict { changes } else { 1 };
                round.lost.fetch_add(lost, Ordering::Relaxed);
                round.problem(format!(
                    "key {} holds at server {} after a reply was lost: {found}; last sent: {}; {verdict:?}",
                    key.name.escape_ascii(),
                    self.at,
                    self.states[at]
                ));
            }
            (self.states[at], self.fates[at]) = (found, Fate::Known);
        }
        Ok(())
    }

    /// The same by the client. A change whose reply is lost may happen while its server still has the
    /// session's rings: only the end of the round tells.
    fn write_by_client(&mut self, round: &Round<'_>) -> Option<usize> {
        let mut session = round.servers[self.at].session(Path::Ask).ok()?;
        let probe = &round.keys[self.own[0]];
        probe.of.head_by_client(&mut session, &probe.name).ok()?;
        while !round.is_over() {
            let known = (0..self.own.len()).filter(|at| self.fates[*at] == Fate::Known);
            let Some(at) = known.choose(&mut self.rng) else {
                std::thread::sleep(AGAIN);
                continue;
            };
            let key = &round.keys[self.own[at]];
            let change = key.of.draw(&self.states[at], &mut self.rng);
            self.states[at].apply(&change);
            let number = key.history().sent(&self.states[at]);
            let since = Instant::now();
            if types::change(key.of, &mut session, &key.name, &change).is_err() {
                round.unknown.fetch_add(1, Ordering::Relaxed);
                self.fates[at] = Fate::Late;
                return None;
            }
            round.acknowledge((self.own[at], number), self.at, since);
        }
        Some(self.at)
    }
}

/// Whether a reply has not come in time.
fn is_late(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// The server that `MOVED SLOT HOST:PORT` names. Other words name none.
fn named_primary(words: &str, round: &Round<'_>) -> Option<usize> {
    let (_, rest) = words.split_once("MOVED ")?;
    let address = rest.split(' ').nth(1)?.parse().ok()?;
    round.servers.iter().position(|of| of.resp == address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::ServerAddress;

    #[test]
    fn a_server_that_does_not_lead_may_name_the_one_that_does() {
        let place = |resp: &str| ServerAddress {
            resp: resp.parse().unwrap(),
            socket: "/none".into(),
            fabric: None,
        };
        let servers = [place("127.0.0.1:1"), place("127.0.0.1:2")];
        let round = Round::new(&[], &servers);
        let named = |words| named_primary(words, &round);
        assert_eq!(named("the server says: MOVED 7 127.0.0.1:2"), Some(1));
        assert_eq!(named("MOVED 7 127.0.0.1:3"), None);
        assert_eq!(named("READONLY You can't write against a read only replica."), None);
    }

    #[test]
    fn a_late_reply_is_told_from_a_lost_one() {
        let error = |kind: ErrorKind| anyhow::Error::new(std::io::Error::from(kind)).context("x");
        assert!(is_late(&error(ErrorKind::WouldBlock)) && is_late(&error(ErrorKind::TimedOut)));
        assert!(!is_late(&error(ErrorKind::ConnectionReset)));
        assert!(!is_late(&anyhow::anyhow!("the server closed the connection")));
    }
}
