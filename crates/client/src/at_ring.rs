//! One session at the receiving end of one ring: it takes frames out, keeps its
//! own replies and delivers the others'.

use crate::ask::DOES_NOT_FIT;
use crate::connection::Connection;
use crate::error::Error;
use crate::in_flight::{RequestAt, RequestId};
use crate::inbox::Inbox;
use crate::ring_set::{Lane, Receiving, RingSet};
use remora_fabric::{AnyLink, Link, RemoteAddress, Work};
use remora_layout::immediate;
use remora_protocol::message::{MORE, ReplyHeader};
use remora_ring::{Poll, WRITE_ID};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use zerocopy::FromBytes;

/// A frame that was taken out of a ring.
pub(crate) enum Taken {
    /// The session's own reply, to this request.
    Own(RequestId),
    /// Another session's; it has it.
    Delivered,
}

/// One session at the receiving end of one ring.
pub(crate) struct AtRing<'s> {
    pub connection: &'s Connection,
    pub set: &'s RingSet,
    pub lane: &'s Lane,
    pub shard: usize,
    pub number: u16,
    pub inbox: &'s Inbox,
    pub link: &'s mut AnyLink,
    pub reply: &'s mut Vec<u8>,
}

impl AtRing<'_> {
    /// Takes this session's oldest reply that another thread has delivered.
    #[inline(always)]
    pub fn take_delivered(&mut self) -> bool {
        match self.inbox.take(self.shard) {
            Some(reply) => {
                *self.reply = reply;
                true
            }
            None => false,
        }
    }

    /// Takes one frame out of the ring into `self.reply`; another session's is
    /// delivered to it. `None` if there is none.
    #[inline]
    pub fn take_frame(&mut self, receiving: &mut Receiving) -> Result<Option<Taken>, Error> {
        self.reply.clear();
        match receiving.receiver.poll(self.reply) {
            Poll::Frame(_) => {}
            Poll::Violated(violation) => return Err(self.connection.end(violation.into())),
            Poll::Empty | Poll::Torn => return Ok(None),
        }
        if let Some(consumed) = receiving.receiver.credit_due() {
            self.give_credit(&mut receiving.credit_link, consumed)?;
        }
        let Ok((header, _)) = ReplyHeader::ref_from_prefix(self.reply) else {
            return Err(self.connection.end(Error::Protocol("a reply without a header")));
        };
        let id = RequestId::from_number(header.id.get());
        let is_own = id.session == self.number;
        let is_last = !is_followed(self.reply);
        if !is_last {
            self.admit_part(id)?;
        }
        if !is_own {
            self.deliver(id)?;
        }
        // Not before its session has it: who sleeps for all looks at this ring for as long
        // as a reply is due in it, and into its inbox afterwards.
        if is_last {
            self.lane.outstanding.fetch_sub(1, Ordering::Release);
        }
        Ok(Some(if is_own { Taken::Own(id) } else { Taken::Delivered }))
    }

    /// Ends the connection unless the request that the reply in `self.reply` answers may
    /// have it, and another one.
    #[cold]
    fn admit_part(&self, id: RequestId) -> Result<(), Error> {
        let inbox = self.set.inbox(id.session);
        let to = RequestAt { shard: self.shard, sequence: id.sequence };
        let most = self.connection.search_bytes;
        match inbox.is_some_and(|inbox| inbox.admits_part(to, self.reply.len(), most)) {
            true => Ok(()),
            false => Err(self.connection.end(DOES_NOT_FIT)),
        }
    }

    /// Puts the payload in `self.reply` into the inbox of the session that made
    /// the request.
    #[cold]
    pub fn deliver(&mut self, to: RequestId) -> Result<(), Error> {
        let inbox = self.set.inbox(to.session);
        let to = RequestAt { shard: self.shard, sequence: to.sequence };
        match inbox.and_then(|inbox| inbox.deliver(to, self.reply, is_followed(self.reply))) {
            None => Err(self.connection.end(Error::Protocol("a reply to nobody"))),
            Some(sleeps_in_kernel) => {
                if sleeps_in_kernel {
                    self.set.wake_sleeper();
                }
                Ok(())
            }
        }
    }

    fn give_credit(&mut self, link: &mut Option<AnyLink>, consumed: u64) -> Result<(), Error> {
        let offset = self.lane.credit_word as u64 * 8;
        let to = RemoteAddress { region: self.connection.mailbox(), offset };
        let bytes = consumed.to_le_bytes();
        // The shard may hold replies back for want of this credit: it is woken.
        let imm = Some(immediate::of(immediate::Kind::Credit, self.shard));
        let link = link.get_or_insert_with(|| self.connection.link(self.set.number));
        link.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm }]);
        self.connection.pass_over_writes(link)
    }
}

/// Which request a reply answers.
#[inline(always)]
pub(crate) fn answered(reply: &[u8]) -> Option<RequestId> {
    let (header, _) = ReplyHeader::ref_from_prefix(reply).ok()?;
    Some(RequestId::from_number(header.id.get()))
}

/// Whether another reply to the same request follows this one.
#[inline(always)]
pub(crate) fn is_followed(reply: &[u8]) -> bool {
    reply.get(offset_of!(ReplyHeader, flags)).is_some_and(|flags| flags & MORE != 0)
}
