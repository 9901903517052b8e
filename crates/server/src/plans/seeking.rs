//! A search that a shard makes for a plan: the reads that the object's type says, in turns.

use remora_arena::Journal;
use remora_engine::{LongRead, Met, Now, Seek, Shard};
use remora_layout::hash::KeyHash;
use remora_plan::Bytes;
use remora_protocol::message::Status;

/// A search that is under way.
pub struct Seeking {
    key: Bytes,
    hash: KeyHash,
    seek: Box<dyn Seek>,
    read: Option<LongRead>,
    found: Vec<u8>,
    wait: u64,
}

/// What a turn of a search came to.
pub enum Sought {
    /// It goes on in the next turn.
    Later,
    /// It has found this.
    Met(Met),
    /// The key holds nothing any more.
    Gone,
    /// The key holds something else.
    Other,
}

impl Seeking {
    /// A search in this key's object.
    pub fn new((key, hash): (Bytes, KeyHash), seek: Box<dyn Seek>) -> Self {
        Self { key, hash, seek, read: None, found: Vec::new(), wait: 0 }
    }

    /// The sequence that its result waits for.
    pub const fn wait(&self) -> u64 {
        self.wait
    }

    /// The results of its last read.
    pub fn found(&self) -> &[u8] {
        &self.found
    }

    /// The search itself.
    pub fn into_seek(self) -> Box<dyn Seek> {
        self.seek
    }

    /// Goes on for a turn of the shard.
    ///
    /// # Errors
    /// The shard refuses the search.
    pub fn turn<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) -> Result<Sought, Status> {
        let mut read = match self.read.take() {
            Some(read) => read,
            None => match self.begin(shard, now)? {
                Ok(read) => read,
                Err(sought) => return Ok(sought),
            },
        };
        let turn = match shard.read_turn(&mut read, &mut self.found, now) {
            Err(Status::NotFound | Status::NoTree) => return Ok(Sought::Gone),
            turn => turn?,
        };
        self.wait = self.wait.max(shard.wait_of(&read));
        if !turn.ended && !self.seek.is_enough(&self.found) {
            self.read = Some(read);
            return Ok(Sought::Later);
        }
        if turn.has_doubles {
            shard.tidy(&read, &mut self.found);
        }
        Ok(self.seek.take(&self.found).map_or(Sought::Later, Sought::Met))
    }

    /// Begins the next read; otherwise what the search has come to.
    fn begin<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        now: Now,
    ) -> Result<Result<LongRead, Sought>, Status> {
        self.found.clear();
        let Some(request) = self.seek.request() else {
            return Ok(Err(Sought::Met(Met::Objects { ids: Vec::new(), next: 0 })));
        };
        match shard.begin_read((&self.key, self.hash), request, now) {
            Ok(read) => Ok(Ok(read)),
            Err(reply) => {
                self.wait = self.wait.max(reply.wait);
                match reply.status {
                    Status::NotFound | Status::NoTree => Ok(Err(Sought::Gone)),
                    Status::WrongType => Ok(Err(Sought::Other)),
                    status => Err(status),
                }
            }
        }
    }
}
