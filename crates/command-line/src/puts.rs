//! Objects into a tree, many requests outstanding.

use anyhow::Context;
use remora_client_core::{Error, ObjectId, PutObject, Rect, Session, TreeSettings};
use remora_geometry::Wkb;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::tree::TreeCommand;

/// Requests outstanding at most; half of them are left when replies are taken,
/// so that the server has work meanwhile.
const OUTSTANDING: usize = 64;

/// A session that adds objects to one tree.
pub struct Puts {
    session: Session,
    name: Vec<u8>,
    counts: PutCounts,
}

/// Objects that the server has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PutCounts {
    /// That were new.
    pub added: u64,
    /// That replaced one with their id.
    pub replaced: u64,
}

impl Puts {
    /// Puts into the tree of this name.
    pub fn new(session: Session, name: &[u8]) -> Self {
        let counts = PutCounts::default();
        Self { session, name: name.to_vec(), counts }
    }

    /// Makes the tree; `false` if it is there.
    pub fn create_tree(&mut self, settings: &TreeSettings) -> anyhow::Result<bool> {
        Ok(self.session.create_tree(&self.name, settings)?)
    }

    /// Sends one object. An error may be that of one sent before.
    pub fn put(&mut self, id: u64, rect: Rect, data: Option<&[u8]>) -> anyhow::Result<()> {
        self.put_shape(id.into(), rect, None, data)
    }

    /// The same with a geometry in WKB, whose bounds `rect` is.
    pub fn put_shape(
        &mut self,
        id: ObjectId<'_>,
        rect: Rect,
        geometry: Option<&[u8]>,
        data: Option<&[u8]>,
    ) -> anyhow::Result<()> {
        let geometry = geometry.map(|wkb| Wkb::known(wkb, rect));
        let put = TreeCommand::Put(PutObject { data, geometry, ..PutObject::new(id, rect) });
        let request = put.checked().map(TreeCommand::request).map_err(Error::Refused)?;
        self.session.submit(&Command::Of { key: &self.name, request })?;
        if self.session.in_flight() >= OUTSTANDING {
            self.take_until(OUTSTANDING / 2)?;
        }
        Ok(())
    }

    /// Waits until all that was sent is answered.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        self.take_until(0)
    }

    /// The objects that the server has taken.
    pub fn counts(&self) -> PutCounts {
        self.counts
    }

    /// Takes replies. Reports a refusal once all awaited replies have arrived.
    fn take_until(&mut self, left: usize) -> anyhow::Result<()> {
        let mut refused = None;
        while self.session.in_flight() > left {
            let counts = &mut self.counts;
            self.session.next_reply(&mut |_, reply| match (reply.status, reply.number) {
                (Status::Ok, 1) => counts.added += 1,
                (Status::Ok, _) => counts.replaced += 1,
                (status, _) => refused = Some(status),
            })?;
        }
        match refused {
            Some(status) => Err(Error::Refused(status)).context("adding objects"),
            None => Ok(()),
        }
    }
}
