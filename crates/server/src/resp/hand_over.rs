//! What a request has taken from a key, when its turn to be served came, goes to another key.
//!
//! Invariant: it is put at the other key, or back. The request runs to its end even if its connection
//! is closed. Between the two steps neither key has it; a server that dies there has lost it.

use super::key_steps::{Next, encoded};
use remora_engine::moving::KeyAt;
use remora_frontend::OwnedReply;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};
use remora_resp::request::ItemsRequest;

/// See the module's text.
pub(super) struct HandingOver {
    from: KeyAt,
    to: KeyAt,
    put: ItemsRequest,
    put_back: ItemsRequest,
    at: Step,
    /// Tries while a key was on its way to another one.
    tries: u32,
}

/// Most such tries: a key moves in bounded time, and each try lets its shard work on.
const MOST_TRIES: u32 = 1 << 16;

/// What is asked.
enum Step {
    /// The items.
    Take,
    /// To put them; the reply that had them.
    Put(OwnedReply),
    /// To put them back, for this reason.
    PutBack(OwnedReply, Status),
}

impl HandingOver {
    /// From one key to another, by these requests there and back.
    pub(super) fn new(
        (from, to): (KeyAt, KeyAt),
        (put, put_back): (ItemsRequest, ItemsRequest),
    ) -> Self {
        Self { from, to, put, put_back, at: Step::Take, tries: 0 }
    }

    /// Whether a key is on its way to another one, and may be tried again.
    fn may_try_again(&mut self, reply: &OwnedReply) -> bool {
        self.tries += 1;
        reply.status == Status::TryAgain && self.tries < MOST_TRIES
    }

    /// Continues after an answer.
    pub(super) fn next(&mut self, reply: OwnedReply) -> Next {
        match std::mem::replace(&mut self.at, Step::Take) {
            Step::Take if reply.status != Status::Ok => Next::Reply(reply),
            Step::Take => {
                let asked = ask(&self.to, self.put, &reply);
                self.at = Step::Put(reply);
                asked
            }
            Step::Put(taken) if reply.status == Status::Ok => Next::Reply(taken),
            Step::Put(taken) if self.may_try_again(&reply) => {
                let asked = ask(&self.to, self.put, &taken);
                self.at = Step::Put(taken);
                asked
            }
            Step::Put(taken) => {
                let asked = ask(&self.from, self.put_back, &taken);
                self.at = Step::PutBack(taken, reply.status);
                asked
            }
            Step::PutBack(taken, status) if self.may_try_again(&reply) => {
                let asked = ask(&self.from, self.put_back, &taken);
                self.at = Step::PutBack(taken, status);
                asked
            }
            Step::PutBack(_, status) => Next::Reply(OwnedReply::status(status)),
        }
    }
}

/// Gives a key the items of a reply, which are its second item.
fn ask(to: &KeyAt, request: ItemsRequest, taken: &OwnedReply) -> Next {
    let items = taken.value.as_deref().and_then(Items::split);
    let items = items.and_then(|(_, rest)| Items::split(rest)?.0);
    let Some(items) = items.and_then(Items::parse) else {
        return Next::Reply(OwnedReply::status(Status::Malformed));
    };
    let command = Command::Of { key: &to.key, request: request(items) };
    Next::Ask(to.shard, encoded(to.database, &command))
}
