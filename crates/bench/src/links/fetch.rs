//! Fetching items: by their keys, or along links.

use super::item::{Form, Item};
use crate::costs::{Costs, costs_of};
use anyhow::{Context, anyhow};
use remora_client_core::{Client, Link, Path, Session, Target};

/// What is done with the item of each hop, in any order of the hops.
pub type Each<'e> = dyn FnMut(usize, Item<'_>) -> anyhow::Result<()> + 'e;

/// A session that fetches items of one form by one path.
#[derive(Debug)]
pub struct Fetcher {
    session: Session,
    form: Form,
    path: Path,
    counts: Hopped,
    /// Links without a good hint that were met and not mended.
    unmended: u64,
}

/// Hops of a fetcher.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hopped {
    /// Items that were looked up by keys.
    pub lookups: u64,
    /// Items that were reached along links.
    pub chases: u64,
}

impl std::ops::Sub for Hopped {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self { lookups: self.lookups - before.lookups, chases: self.chases - before.chases }
    }
}

impl std::ops::AddAssign for Hopped {
    fn add_assign(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.chases += other.chases;
    }
}

impl Fetcher {
    /// A session of this process's connection.
    pub fn open(client: &Client, form: Form, path: Path) -> anyhow::Result<Self> {
        let (session, counts) = (client.session()?, Hopped::default());
        Ok(Self { session, form, path, counts, unmended: 0 })
    }

    /// Fetches the items of keys that no link led to.
    pub fn look_up(&mut self, known: &[Link], each: &mut Each<'_>) -> anyhow::Result<()> {
        self.counts.lookups += known.len() as u64;
        self.fetch(known, each)
    }

    /// Fetches the items that links lead to. In the form with keys each is a lookup.
    pub fn follow(&mut self, links: &[Link], each: &mut Each<'_>) -> anyhow::Result<()> {
        match self.form {
            Form::Links => self.counts.chases += links.len() as u64,
            Form::Keys => self.counts.lookups += links.len() as u64,
        }
        self.fetch(links, each)
    }

    fn fetch(&mut self, links: &[Link], each: &mut Each<'_>) -> anyhow::Result<()> {
        match (self.form, self.path) {
            (Form::Keys, _) => self.get(links, each),
            (Form::Links, _) => self.chase(links, each),
        }
    }

    /// By the keys, each a string.
    fn get(&mut self, links: &[Link], each: &mut Each<'_>) -> anyhow::Result<()> {
        let keys: Vec<&[u8]> = links.iter().map(|link| &link.key[..]).collect();
        let mut outcome = Ok(());
        self.session.get_batch(&keys, self.path, &mut |at, value, _| {
            if outcome.is_ok() {
                outcome = value
                    .with_context(|| missing(&links[at]))
                    .and_then(|value| each(at, Item::Packed(value)));
            }
        })?;
        outcome
    }

    /// Along links, each to a hash.
    fn chase(&mut self, links: &[Link], each: &mut Each<'_>) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        self.session.chase_batch(links, self.path, &mut |at, chased| {
            if outcome.is_ok() {
                outcome = match chased.target {
                    Target::Hash(hash) => each(at, Item::Hash(hash)),
                    Target::Gone => Err(anyhow!(missing(&links[at]))),
                    other => Err(anyhow!("a link leads to {other:?}")),
                };
            }
        })?;
        outcome?;
        self.mend()
    }

    /// Reports the links whose hints led nowhere to their owners, which mend so many of them in a
    /// second.
    fn mend(&mut self) -> anyhow::Result<()> {
        // Bounded: a session remembers some of them only.
        while let links @ 1.. = self.session.stale_links() {
            let mended = self.session.mend_links(links)?;
            self.unmended += (links as u64).saturating_sub(mended);
        }
        Ok(())
    }

    /// Links that were met since the last call, and still have no good hint.
    pub fn take_unmended(&mut self) -> u64 {
        std::mem::take(&mut self.unmended)
    }

    /// Its hops so far.
    pub fn hopped(&self) -> Hopped {
        self.counts
    }

    /// Its costs so far.
    pub fn costs(&self) -> Costs {
        costs_of(&self.session)
    }
}

fn missing(link: &Link) -> String {
    format!("there is no item of the key {}", String::from_utf8_lossy(&link.key))
}
