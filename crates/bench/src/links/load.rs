//! Storing items: many requests outstanding.

use super::item::{Form, NewItem};
use anyhow::{bail, ensure};
use remora_client_core::{Client, Session};
use remora_command_line::note;
use remora_layout::packed;
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry, Items};
use std::time::{Duration, Instant};

/// Requests that are outstanding.
const OUTSTANDING: usize = 64;
/// Time between two reports.
const REPORTS: Duration = Duration::from_secs(2);

/// A session that stores items of one form.
pub struct Loader {
    session: Session,
    form: Form,
    pairs: Vec<u8>,
    stored: u64,
    began: Instant,
    reported: Instant,
}

impl Loader {
    /// A session of this process's connection.
    pub fn open(client: &Client, form: Form) -> anyhow::Result<Self> {
        let (session, now) = (client.session()?, Instant::now());
        Ok(Self { session, form, pairs: Vec::new(), stored: 0, began: now, reported: now })
    }

    /// Stores an item. The owner of its key sets the hints of its links to targets that are there.
    pub fn put(&mut self, item: &NewItem) -> anyhow::Result<()> {
        while self.session.in_flight() >= OUTSTANDING {
            self.take_reply()?;
        }
        let key = item.key();
        let command = match self.form {
            Form::Keys => Command::Set {
                key,
                value: item.packed(),
                condition: Condition::Always,
                expiry: Expiry::Never,
                get: false,
            },
            Form::Links => {
                self.pairs.clear();
                for (name, field) in packed::fields(item.packed()) {
                    Items::push(&mut self.pairs, name);
                    Items::push_field(&mut self.pairs, field);
                }
                let pairs = Items::parse(&self.pairs).expect("it was just made");
                Command::Of { key, request: HashCommand::Set { pairs }.request() }
            }
        };
        self.session.submit(&command)?;
        self.stored += 1;
        if self.stored.is_multiple_of(1024) && self.reported.elapsed() > REPORTS {
            self.reported = Instant::now();
            note(&format!("loading: {} items", self.stored));
        }
        Ok(())
    }

    fn take_reply(&mut self) -> anyhow::Result<()> {
        let mut status = None;
        self.session.next_reply(&mut |_, reply| status = Some(reply.status))?;
        match status {
            Some(Status::Ok) => Ok(()),
            other => bail!("the server does not store an item: {other:?}"),
        }
    }

    /// Waits until all are stored.
    pub fn finish(mut self) -> anyhow::Result<()> {
        while self.session.in_flight() > 0 {
            self.take_reply()?;
        }
        ensure!(self.stored > 0, "there is nothing to store");
        let (stored, seconds) = (self.stored, self.began.elapsed().as_secs_f64());
        note(&format!("loaded {stored} items in {seconds:.2} s"));
        Ok(())
    }
}
