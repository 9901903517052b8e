//! A session of the client library: by message, by READ, or as it chooses.

use super::target::{Request, Target};
use crate::costs::{Costs, costs_of};
use anyhow::{Context, bail, ensure};
use remora_client_core::{Client, Path, Session, SetOptions, Ticket};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};
use std::collections::VecDeque;

/// A session and the path that its lookups take.
#[derive(Debug)]
pub struct SessionTarget {
    session: Session,
    path: Path,
    /// Requests that were sent, to prove that replies come in order.
    tickets: VecDeque<Ticket>,
}

impl SessionTarget {
    /// A session of this process's connection.
    pub fn open(client: &Client, path: Path) -> anyhow::Result<Self> {
        Ok(Self { session: client.session()?, path, tickets: VecDeque::new() })
    }
}

impl Target for SessionTarget {
    const IS_SHORT: bool = true;

    #[inline]
    fn get(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        let got = self.session.get(key, self.path)?;
        see(got.value);
        Ok(())
    }

    #[inline]
    fn set(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let is_done = self.session.set(key, value, SetOptions::default())?;
        ensure!(is_done, "an unconditional SET was not done");
        Ok(())
    }

    #[inline]
    fn get_batch(
        &mut self,
        keys: &[&[u8]],
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> anyhow::Result<()> {
        self.session.get_batch(keys, self.path, &mut |index, value, _| see(index, value))?;
        Ok(())
    }

    #[inline]
    fn send(&mut self, request: Request<'_>) -> anyhow::Result<()> {
        let command = match request {
            Request::Get(key) => Command::Get { key },
            Request::Set(key, value) => Command::Set {
                key,
                value,
                condition: Condition::Always,
                expiry: Expiry::Never,
                get: false,
            },
        };
        let ticket = self.session.submit(&command)?;
        self.tickets.push_back(ticket);
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    #[inline]
    fn receive(&mut self, is_get: bool, see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        let expected = self.tickets.pop_front();
        let mut see = Some(see);
        let mut answer = None;
        self.session.next_reply(&mut |ticket, reply| {
            answer = Some((ticket, reply.status));
            match (reply.status, see.take()) {
                (Status::Ok, Some(see)) if is_get => see(reply.value),
                (Status::NotFound, Some(see)) if is_get => see(None),
                _ => {}
            }
        })?;
        let (ticket, status) = answer.context("a request is left without a reply")?;
        ensure!(Some(ticket) == expected, "replies came out of order");
        match status {
            Status::Ok => Ok(()),
            Status::NotFound if is_get => Ok(()),
            other => bail!("the server says: {other:?}"),
        }
    }

    /// Half of them: the server has work while replies are taken.
    fn kept_outstanding(depth: usize) -> usize {
        depth / 2
    }

    fn costs(&self) -> Costs {
        costs_of(&self.session)
    }
}
