//! The link: operations are executed by whoever posts them.

use crate::{Completion, Link, LinkError, RemoteAddress, Transport, Work};
use remora_arena::Words;
use std::collections::VecDeque;

struct RemoteRegion {
    words: Words,
    writable: bool,
}

/// One end of a shared-memory connection.
pub struct ShmLink {
    regions: Vec<Option<RemoteRegion>>,
    landing: Vec<u8>,
    done: VecDeque<Completion>,
    failure: Option<LinkError>,
    /// The word that says that the session was withdrawn.
    withdrawn: Option<(Words, usize)>,
}

impl ShmLink {
    /// A link without regions. `withdrawn` is the word by which the peer ends
    /// the session.
    pub fn new(withdrawn: Option<(Words, usize)>) -> Self {
        Self {
            regions: Vec::new(),
            landing: Vec::new(),
            done: VecDeque::new(),
            failure: None,
            withdrawn,
        }
    }

    /// Adds a region of the peer; `writable` for one's own mailbox there.
    pub fn add_region(&mut self, region: u32, words: Words, writable: bool) {
        let index = region as usize;
        if self.regions.len() <= index {
            self.regions.resize_with(index + 1, || None);
        }
        self.regions[index] = Some(RemoteRegion { words, writable });
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
        let offset = region.words.check(address.offset, bytes).map_err(|_| {
            LinkError::OutOfBounds { region: address.region, offset: address.offset, bytes }
        })?;
        Ok((region, offset))
    }

    #[inline(always)]
    fn execute(&mut self, work: &Work<'_>) -> Result<(), LinkError> {
        match *work {
            Work::Read { from, into, bytes, .. } => {
                let (region, offset) = Self::region(&self.regions, from, bytes)?;
                let landing = self.landing.get_mut(into..).and_then(|rest| rest.get_mut(..bytes));
                region.words.copy_out(offset, landing.ok_or(LinkError::NoLanding)?);
            }
            Work::Write { to, bytes, .. } => {
                let (region, offset) = Self::region(&self.regions, to, bytes.len())?;
                if !region.writable {
                    return Err(LinkError::NotWritable(to.region));
                }
                region.words.copy_in(offset, bytes);
            }
        }
        Ok(())
    }

    fn prefetch(&self, work: &Work<'_>) {
        let Work::Read { from, bytes, .. } = *work else { return };
        let Some(region) = self.regions.get(from.region as usize).and_then(Option::as_ref) else {
            return;
        };
        // A record's first lines; the rest of a long one streams in by itself.
        for line in 0..bytes.div_ceil(64).min(2) as u64 {
            region.words.prefetch(from.offset.wrapping_add(line * 64));
        }
    }

    /// Re-read after the operations, so that none completes successfully once
    /// the session has been withdrawn.
    #[inline(always)]
    fn is_withdrawn(&self) -> bool {
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
            let (Work::Read { id, .. } | Work::Write { id, .. }) = *work;
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
}
