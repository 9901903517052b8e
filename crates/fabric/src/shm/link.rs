//! The link: the posting thread executes the operations itself.

use super::bell::{Bell, Sleeper, Woken};
use super::doorbell::Doorbell;
use crate::{Completion, Link, LinkError, RemoteAddress, Transport, Waited, Work};
use remora_arena::{ReadView, Words};
use remora_layout::immediate::{Kind, kind_of, shard_of};
use remora_layout::limits::{MAX_READ_BYTES, MAX_WRITE_BYTES};
use std::collections::VecDeque;
use std::time::Duration;

struct RemoteRegion {
    view: ReadView,
    /// The same memory, if it is this end's own mailbox: the link only writes it.
    mailbox: Option<Words>,
}

/// The bell that a WRITE with an immediate rings.
enum Rung {
    Bell(Bell),
    Doorbell(Doorbell),
}

/// How this end of the link notices the peer's writes.
struct Ear {
    sleeper: Sleeper,
    /// Whether something is there that was not yet taken.
    scan: Box<dyn FnMut() -> bool + Send + Sync>,
}

/// One end of a shared-memory connection.
pub struct ShmLink {
    regions: Vec<Option<RemoteRegion>>,
    landing: Vec<u8>,
    done: VecDeque<Completion>,
    failure: Option<LinkError>,
    /// The word that says that the session was withdrawn.
    withdrawn: Option<(ReadView, usize)>,
    /// Each immediate's bell.
    bells: Vec<(u32, Rung)>,
    ear: Option<Ear>,
}

impl ShmLink {
    /// A link without regions. `withdrawn` is the word by which the peer ends
    /// the session.
    pub fn new(withdrawn: Option<(ReadView, usize)>) -> Self {
        Self {
            regions: Vec::new(),
            landing: Vec::new(),
            done: VecDeque::new(),
            failure: None,
            withdrawn,
            bells: Vec::new(),
            ear: None,
        }
    }

    /// A WRITE with an immediate to this shard rings this bell after its bytes.
    pub fn add_bell(&mut self, shard: u32, bell: Bell) {
        self.add_rung(shard, Rung::Bell(bell));
    }

    /// As [`ShmLink::add_bell`], for a shard that uses ready bits.
    pub fn add_doorbell(&mut self, shard: u32, doorbell: Doorbell) {
        self.add_rung(shard, Rung::Doorbell(doorbell));
    }

    fn add_rung(&mut self, shard: u32, rung: Rung) {
        self.bells.retain(|(known, _)| *known != shard);
        self.bells.push((shard, rung));
    }

    /// The sleeper for [`Link::wait`]: the bell that the peer rings, and the check for written and
    /// untaken bytes.
    pub fn listen(&mut self, sleeper: Sleeper, scan: impl FnMut() -> bool + Send + Sync + 'static) {
        self.ear = Some(Ear { sleeper, scan: Box::new(scan) });
    }

    /// Adds a region of the peer that it lets us read.
    pub fn add_readable(&mut self, region: u32, view: ReadView) {
        self.add(region, RemoteRegion { view, mailbox: None });
    }

    /// Adds one's own mailbox at the peer.
    pub fn add_writable(&mut self, region: u32, words: Words) {
        self.add(region, RemoteRegion { view: words.view(), mailbox: Some(words) });
    }

    fn add(&mut self, region: u32, added: RemoteRegion) {
        let index = region as usize;
        if self.regions.len() <= index {
            self.regions.resize_with(index + 1, || None);
        }
        self.regions[index] = Some(added);
    }

    #[inline(always)]
    fn region(
        regions: &[Option<RemoteRegion>],
        address: RemoteAddress,
        bytes: usize,
    ) -> Result<(&RemoteRegion, usize), LinkError> {
        let region = regions
            .get(address.region as usize)
            .and_then(Option::as_ref)
            .ok_or(LinkError::NoSuchRegion(address.region))?;
        let offset = region.view.check(address.offset, bytes).map_err(|_| {
            LinkError::OutOfBounds { region: address.region, offset: address.offset, bytes }
        })?;
        Ok((region, offset))
    }

    #[inline(always)]
    fn execute(&mut self, work: &Work<'_>) -> Result<(), LinkError> {
        match *work {
            Work::Read { from, into, bytes, .. } => {
                let (region, offset) = Self::region(&self.regions, from, bytes)?;
                if region.mailbox.is_some() {
                    return Err(LinkError::NotReadable(from.region));
                }
                if bytes > MAX_READ_BYTES {
                    return Err(LinkError::TooLong(bytes));
                }
                let landing = self.landing.get_mut(into..).and_then(|rest| rest.get_mut(..bytes));
                let landing = landing.ok_or(LinkError::NoLanding)?;
                // x86-ordering: the loads of a READ come before those of the next one.
                region.view.copy_out(offset, landing);
            }
            Work::Write { to, bytes, imm, .. } => {
                let (region, offset) = Self::region(&self.regions, to, bytes.len())?;
                let Some(words) = &region.mailbox else {
                    return Err(LinkError::NotWritable(to.region));
                };
                if bytes.len() > MAX_WRITE_BYTES {
                    return Err(LinkError::TooLong(bytes.len()));
                }
                // x86-ordering: the stores of a WRITE become visible before those of the next one.
                words.copy_in(offset, bytes);
                if let Some(imm) = imm {
                    self.ring(imm)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn ring(&self, imm: u32) -> Result<(), LinkError> {
        let bell = self.bells.iter().find(|(known, _)| *known as usize == shard_of(imm));
        match &bell.ok_or(LinkError::NoSuchImmediate(imm))?.1 {
            Rung::Bell(bell) => _ = bell.ring(),
            Rung::Doorbell(doorbell) if kind_of(imm) == Some(Kind::Credit) => {
                doorbell.ring_for_credit();
            }
            Rung::Doorbell(doorbell) => _ = doorbell.ring(),
        };
        Ok(())
    }

    fn prefetch(&self, work: &Work<'_>) {
        let Work::Read { from, bytes, .. } = *work else { return };
        let region = self.regions.get(from.region as usize).and_then(Option::as_ref);
        let Some(RemoteRegion { view, .. }) = region else { return };
        // A record's first lines; the rest of a long one streams in by itself.
        for line in 0..bytes.div_ceil(64).min(2) as u64 {
            view.prefetch(from.offset.wrapping_add(line * 64));
        }
    }

    /// Loaded again after the operations, so that none completes successfully once the session has
    /// been withdrawn.
    #[inline(always)]
    fn is_withdrawn(&self) -> bool {
        // x86-ordering: this load comes after those of the READs before it.
        self.withdrawn.as_ref().is_some_and(|(words, word)| words.load_acquire(*word) != 0)
    }
}

impl Link for ShmLink {
    fn transport(&self) -> Transport {
        Transport::Shm
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        false
    }

    #[inline]
    fn post(&mut self, batch: &[Work<'_>]) {
        if batch.len() > 1 {
            for work in batch {
                self.prefetch(work);
            }
        }
        let first = self.done.len();
        for work in batch {
            let id = work.id();
            let result = match self.failure {
                None => self.execute(work),
                Some(failure) => Err(failure),
            };
            if let Err(failure) = result {
                self.failure = Some(failure);
            }
            self.done.push_back(Completion { id, result });
        }
        if self.failure.is_none() && self.is_withdrawn() {
            self.failure = Some(LinkError::Withdrawn);
            for completion in self.done.iter_mut().skip(first) {
                completion.result = Err(LinkError::Withdrawn);
            }
        }
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        if !self.done.is_empty() {
            return Waited::Completed;
        }
        if self.failure.is_none() && self.is_withdrawn() {
            self.failure = Some(LinkError::Withdrawn);
        }
        if let Some(failure) = self.failure {
            return Waited::Failed(failure);
        }
        let Some(ear) = &mut self.ear else {
            // Operations complete when they are posted: nothing can come.
            std::thread::sleep(timeout.unwrap_or_default());
            return Waited::TimedOut;
        };
        let withdrawn = self.withdrawn.as_ref();
        let ended = || withdrawn.is_some_and(|(words, word)| words.load_acquire(*word) != 0);
        let woken = ear.sleeper.sleep(timeout, || ended() || (ear.scan)());
        if ended() {
            self.failure = Some(LinkError::Withdrawn);
            return Waited::Failed(LinkError::Withdrawn);
        }
        match woken {
            Woken::Found | Woken::Signalled => Waited::Arrived,
            Woken::TimedOut => Waited::TimedOut,
        }
    }

    #[inline(always)]
    fn landed(&self, at: usize, bytes: usize) -> &[u8] {
        &self.landing[at..at + bytes]
    }

    fn reserve_landing(&mut self, bytes: usize) {
        if self.landing.len() < bytes {
            self.landing.resize(bytes, 0);
        }
    }

    fn failure(&self) -> Option<LinkError> {
        self.failure
    }

    fn has_completed(&self) -> bool {
        !self.done.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::Mapping;
    use remora_layout::immediate::of;
    use remora_layout::session::{mailbox_bytes, ready_word, set_offset, stuck_word};
    use std::sync::atomic::Ordering;

    /// RDMA_Mongo 4.4 (M25): the immediate names the written kind of message. A request rings at
    /// the shard that it names; credit rings only if that shard waits for some.
    #[test]
    fn the_kind_in_an_immediate_decides_whether_the_shard_is_told() {
        let [to_server, to_client] = [0; 2].map(|_| Words::new(Mapping::heap(mailbox_bytes(2))));
        let mut link = ShmLink::new(None);
        link.add_writable(1, to_server.clone());
        for shard in 0..2 {
            let bell = Bell::new(to_client.view(), 0, Bell::eventfd().unwrap());
            let mailboxes = (to_server.clone(), to_client.view());
            link.add_doorbell(shard, Doorbell::new(mailboxes, 2, shard as usize, 0, bell));
        }
        let mut told = |imm: Option<u32>| {
            let to = RemoteAddress { region: 1, offset: 1 << 12 };
            link.post(&[Work::Write { id: 0, to, bytes: &[1; 8], imm }]);
            let result = link.poll().expect("it has completed").result;
            let told =
                [0, 1].map(|shard| to_server.word(ready_word(shard)).swap(0, Ordering::SeqCst));
            result.map(|()| told)
        };
        assert_eq!(told(None), Ok([0, 0]));
        assert_eq!(told(Some(of(Kind::Request, 1))), Ok([0, 1]));
        assert_eq!(told(Some(of(Kind::Credit, 1))), Ok([0, 0]), "it waits for none");
        to_client.store(set_offset(2, 0) / 8 + stuck_word(1), 1);
        assert_eq!(told(Some(of(Kind::Credit, 0))), Ok([0, 0]), "the other one waits");
        assert_eq!(told(Some(of(Kind::Credit, 1))), Ok([0, 1]));
        let nobody = of(Kind::Request, 2);
        assert_eq!(told(Some(nobody)), Err(LinkError::NoSuchImmediate(nobody)));
    }
}
