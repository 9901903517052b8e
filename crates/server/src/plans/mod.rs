//! Plans that run at this thread: each in turns, on to the shards that own what it wants (decision 0074).
//!
//! ```text
//!   a connection or a session                         the shards, this one too
//!        begin(plan) ------>  Plans  -- a look for each shard, with what the run wants of it -->
//!        outcome  <---------    |   <-- answers, in any order --
//!                               one Run each
//! ```
//!
//! Invariants:
//! * a turn takes answers until they have led to [`PLAN_TURN_VISITS`] visits, and one batch more at most;
//! * a batch is one look at each shard, which the shard does in turns of its own;
//! * so many plans run that, by their limits, they hold [`PLANS_HELD_BYTES`] together; the others wait in the
//!   order in which they came;
//! * the time of a plan counts from when it came;
//! * numbers of plans are not used again: an answer to a plan that has ended is an answer to none.
//!
//! It does no I/O: jobs go out by [`Plans::pop_job`], outcomes by [`Plans::pop_ended`].

mod answers;
mod look;
mod search;
mod seeking;

pub use look::LookWork;

use remora_frontend::{Job, Order, OwnedReply, PlanLook, Token};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{MAX_REPLY_BYTES, PLAN_TURN_VISITS, PLANS_AT_ONCE, PLANS_HELD_BYTES};
use remora_plan::limits::{BYTES_AHEAD, REMEMBERED_UNIT_BYTES};
use remora_plan::{Given, Limit, Outcome, OutcomeWriter, Plan, Run, Step, Want};
use remora_protocol::message::Status;
use search::Search;
use std::collections::{BTreeMap, VecDeque};

/// The connection slot of tokens of plans' jobs: they answer no connection.
pub const PLANS: usize = usize::MAX - 2;
/// Bytes of answers that a run may be given in one batch: some long values.
const BATCH_BYTES: usize = 2 * MAX_REPLY_BYTES;
/// A connection whose client sends no more still gets the outcome of a plan that takes no longer.
const LONG_MS: u64 = 200;
/// Rows that are made into bytes before another plan's turn.
const WRITTEN_ROWS: usize = 256;
/// Bytes that a remembered key takes beside its text.
const REMEMBERED_BYTES: u64 = 64;

/// Who has asked for a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A RESP connection of this thread, by the token of its request.
    Connection(Token),
    /// A session whose rings this thread serves.
    Session {
        /// The client's place at the shard.
        place: usize,
        /// The session's number.
        session: u64,
        /// The request's id.
        id: u32,
    },
}

/// What there was of plans since the start, and what there is.
#[derive(Clone, Copy, Default, Debug)]
pub struct PlanCounts {
    /// Plans that have ended with an outcome.
    pub ended: u64,
    /// Those of them that had reached a limit.
    pub limited: u64,
    /// Plans that were given up: refused, or their askers have gone.
    pub given_up: u64,
    /// Looks at shards.
    pub looks: u64,
    /// Wants of these looks.
    pub wants: u64,
    /// Plans that run.
    pub running: u64,
    /// Plans that wait.
    pub waiting: u64,
    /// Bytes that the running ones may hold, by their limits.
    pub reserved_bytes: u64,
}

/// See the module's text.
pub struct Plans {
    home: usize,
    /// For the hash of the keys that runs remember.
    seed: u64,
    /// Plans that have begun to run.
    begun: u64,
    /// The time, ms of a clock that never goes back.
    now_ms: u64,
    running: BTreeMap<u64, Running>,
    waiting: VecDeque<Waiting>,
    /// Answers that are not taken yet.
    answers: VecDeque<(Token, OwnedReply)>,
    /// Plans whose runs want something that was not asked for yet.
    ready: VecDeque<u64>,
    out: VecDeque<(usize, Job)>,
    /// Outcomes that are made into bytes, and how many rows they have.
    writing: VecDeque<(Asker, OutcomeWriter, usize)>,
    ended: VecDeque<(Asker, OwnedReply)>,
    counts: PlanCounts,
}

/// A plan that has not begun to run.
struct Waiting {
    asker: Asker,
    database: Database,
    plan: Plan,
    came_ms: u64,
}

/// A plan that runs.
struct Running {
    asker: Asker,
    database: Database,
    run: Run,
    reserved_bytes: u64,
    came_ms: u64,
    /// The number of the present batch, and the looks of it that are not answered, by shard.
    batch: u64,
    asked: BTreeMap<usize, Look>,
    /// Bytes of the batch's answers.
    batch_bytes: usize,
    search: Search,
}

/// A look at a shard: for each of its wants, the numbers that it has in the run's batch.
#[derive(Default)]
struct Look {
    wants: Vec<(KeyHash, Want)>,
    numbers: Vec<Vec<usize>>,
}

impl Look {
    /// Adds a want. Rows that come to one item want it once.
    fn add(&mut self, number: usize, hash: KeyHash, want: Want) {
        let same =
            self.wants.iter().position(|(other, known)| *other == hash && is_same(known, &want));
        match same {
            Some(at) => self.numbers[at].push(number),
            None => {
                self.wants.push((hash, want));
                self.numbers.push(vec![number]);
            }
        }
    }

    fn job(&self, (home, serial, request): (usize, u64, u64), shard: usize) -> (usize, Job) {
        let token = Token { home, connection: PLANS, serial, request, part: 0, shard };
        let look = PlanLook { wants: self.wants.clone() };
        (shard, Job::new(Order::Look(Box::new(look)), token))
    }
}

/// Whether one look answers both wants: the link that led there does not matter.
fn is_same(one: &Want, other: &Want) -> bool {
    match (one, other) {
        (Want::Item { place, fields }, Want::Item { place: of, fields: wanted }) => {
            place.key == of.key && fields == wanted
        }
        (
            Want::Entries { place, range, count },
            Want::Entries { place: of, range: wanted, count: some },
        ) => place.key == of.key && range == wanted && count == some,
        (Want::List { place, from, count }, Want::List { place: of, from: start, count: some }) => {
            place.key == of.key && from == start && count == some
        }
        _ => false,
    }
}

impl Running {
    /// Gives an answer to each row that waits for it. The visits that it leads to, about.
    fn give(&mut self, numbers: &[usize], given: &Given) -> usize {
        let visits = match given {
            Given::List { elements, .. } => elements.len(),
            Given::Entries { entries, .. } => entries.len(),
            Given::Objects { objects, .. } => objects.len(),
            Given::Documents { documents, .. } => documents.len(),
            _ => 1,
        };
        for number in numbers {
            self.run.give(*number, given.clone());
        }
        numbers.len() * visits.max(1)
    }
}

/// Bytes that a run of a plan may hold, by the plan's limits.
fn reserved_bytes(plan: &Plan) -> u64 {
    let limits = plan.limits();
    let remembers = |step: &&Step| matches!(step, Step::Once | Step::Walk { .. });
    let remembering = plan.steps().iter().filter(remembers).count() as u64;
    let of_key = REMEMBERED_UNIT_BYTES as u64 + REMEMBERED_BYTES;
    limits.bytes + BYTES_AHEAD as u64 + remembering * limits.remembered * of_key
}

impl Plans {
    /// No plan runs at the thread of shard `home`.
    pub fn new(home: usize, seed: u64) -> Self {
        Self {
            home,
            seed,
            begun: 0,
            now_ms: 0,
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            ready: VecDeque::new(),
            out: VecDeque::new(),
            writing: VecDeque::new(),
            ended: VecDeque::new(),
            counts: PlanCounts::default(),
        }
    }

    /// Whether no plan runs or waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.writing.is_empty()
    }

    /// Whether there is work for the next turn.
    #[inline]
    pub fn has_work(&self) -> bool {
        let may_run = !self.answers.is_empty() || !self.ready.is_empty();
        may_run
            || !self.writing.is_empty()
            || !self.ended.is_empty()
            || !self.out.is_empty()
            || self.may_start()
    }

    /// The counts.
    pub fn counts(&self) -> PlanCounts {
        let (running, waiting) = (self.running.len() as u64, self.waiting.len() as u64);
        PlanCounts { running, waiting, ..self.counts }
    }

    /// Takes a plan.
    pub fn begin(&mut self, asker: Asker, (database, plan): (Database, Plan)) {
        self.waiting.push_back(Waiting { asker, database, plan, came_ms: self.now_ms });
    }

    /// Takes the answer to a look.
    pub fn take(&mut self, token: Token, reply: OwnedReply) {
        self.answers.push_back((token, reply));
    }

    /// The next look for a shard.
    pub fn pop_job(&mut self) -> Option<(usize, Job)> {
        self.out.pop_front()
    }

    /// The next answer for an asker: an outcome as bytes, or a status that is an error.
    pub fn pop_ended(&mut self) -> Option<(Asker, OwnedReply)> {
        self.ended.pop_front()
    }

    /// The connections whose plans have taken long: a plan whose client has gone is to end.
    pub fn long_ones(&self) -> impl Iterator<Item = &Token> {
        let now_ms = self.now_ms;
        let waiting = self.waiting.iter().map(|of| (&of.asker, of.came_ms));
        let all = self.running.values().map(|of| (&of.asker, of.came_ms)).chain(waiting);
        all.filter_map(move |(asker, came_ms)| match asker {
            Asker::Connection(token) if now_ms > came_ms + LONG_MS => Some(token),
            _ => None,
        })
    }

    fn may_start(&self) -> bool {
        let fits = |next: &Waiting| {
            let held = self.counts.reserved_bytes + reserved_bytes(&next.plan);
            self.running.len() < PLANS_AT_ONCE && held <= PLANS_HELD_BYTES
        };
        self.waiting.front().is_some_and(|next| self.running.is_empty() || fits(next))
    }

    fn start_some(&mut self) {
        while self.may_start()
            && let Some(Waiting { asker, database, plan, came_ms }) = self.waiting.pop_front()
        {
            let reserved_bytes = reserved_bytes(&plan);
            self.counts.reserved_bytes += reserved_bytes;
            let run = Run::new(plan, came_ms, self.seed);
            let (batch, asked, search) = (0, BTreeMap::new(), Search::default());
            let running = Running {
                asker,
                database,
                run,
                reserved_bytes,
                came_ms,
                batch,
                asked,
                batch_bytes: 0,
                search,
            };
            self.begun += 1;
            self.running.insert(self.begun, running);
            self.ready.push_back(self.begun);
        }
    }

    /// The time is this, ms of a clock that never goes back.
    #[inline]
    pub const fn look_at_clock(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// A turn. `route`: the hash of a key, and the shard that owns it; none if that is not of this server.
    pub fn turn(&mut self, route: impl Fn(Database, &[u8]) -> Option<(KeyHash, usize)>) {
        self.start_some();
        let mut visits = 0;
        while visits < PLAN_TURN_VISITS {
            if let Some(number) = self.ready.pop_front() {
                visits += self.ask(number, &route);
            } else if !self.writing.is_empty() {
                visits += self.write_some();
            } else if let Some((token, reply)) = self.answers.pop_front() {
                visits += self.take_answer(&token, &reply);
            } else {
                break;
            }
        }
    }

    /// Ends the plans whose time is over.
    pub fn tick(&mut self) {
        let now_ms = self.now_ms;
        let mut over = Vec::new();
        for (&number, running) in &mut self.running {
            running.run.tick(now_ms);
            if running.run.outcome().is_some() {
                over.push(number);
            }
        }
        over.into_iter().for_each(|number| self.end(number, Ok(())));
        let is_over = |of: &Waiting| now_ms > of.came_ms.saturating_add(of.plan.limits().time_ms);
        for at in (0..self.waiting.len()).rev() {
            if is_over(&self.waiting[at])
                && let Some(Waiting { asker, .. }) = self.waiting.remove(at)
            {
                let outcome = Outcome { limit: Some(Limit::Time), ..Outcome::default() };
                self.write(asker, outcome);
            }
        }
    }

    /// Gives up the plans of these askers: they have gone.
    pub fn forget(&mut self, has_gone: impl Fn(&Asker) -> bool) {
        self.writing.retain(|(asker, ..)| !has_gone(asker));
        let before = self.waiting.len();
        self.waiting.retain(|of| !has_gone(&of.asker));
        self.counts.given_up += (before - self.waiting.len()) as u64;
        let counts = &mut self.counts;
        self.running.retain(|_, running| {
            let stays = !has_gone(&running.asker);
            if !stays {
                counts.reserved_bytes -= running.reserved_bytes;
                counts.given_up += 1;
            }
            stays
        });
    }

    /// Ends all plans: the server answers no reads now, or its role changes.
    pub fn end_all(&mut self, status: Status) {
        let numbers: Vec<u64> = self.running.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.end(number, Err(status)));
        for Waiting { asker, .. } in self.waiting.drain(..) {
            self.ended.push_back((asker, OwnedReply::status(status)));
            self.counts.given_up += 1;
        }
    }

    /// Asks for what a run wants. The visits that objects lead to which were found before.
    fn ask(
        &mut self,
        number: u64,
        route: &impl Fn(Database, &[u8]) -> Option<(KeyHash, usize)>,
    ) -> usize {
        let Some(running) = self.running.get_mut(&number) else { return 0 };
        running.run.tick(self.now_ms);
        if running.run.outcome().is_some() {
            self.end(number, Ok(()));
            return 0;
        }
        let mut looks: BTreeMap<usize, Look> = BTreeMap::new();
        let mut at_hand = Vec::new();
        for (at, want) in running.run.wants().iter().enumerate() {
            if let Some(given) = running.search.at_hand(want) {
                at_hand.push((at, given));
                continue;
            }
            let Some((hash, shard)) = route(running.database, want.key()) else {
                self.end(number, Err(Status::OtherGroup));
                return 0;
            };
            let want = running.search.widened(want);
            looks.entry(shard).or_default().add(at, hash, want);
        }
        running.batch += 1;
        running.batch_bytes = 0;
        for (&shard, look) in &looks {
            self.counts.looks += 1;
            self.counts.wants += look.wants.len() as u64;
            self.out.push_back(look.job((self.home, number, running.batch), shard));
        }
        if looks.is_empty() {
            self.ready.push_back(number);
        }
        running.asked = looks;
        let visits = at_hand.iter().map(|(at, given)| running.give(&[*at], given));
        visits.sum()
    }

    /// Takes the answers of a shard. The visits that they lead to, about.
    fn take_answer(&mut self, token: &Token, reply: &OwnedReply) -> usize {
        // Its plan may have ended.
        let Some(running) = self.running.get_mut(&token.serial) else { return 0 };
        if reply.status != Status::Ok {
            self.end(token.serial, Err(reply.status));
            return 0;
        }
        running.batch_bytes += reply.value_bytes();
        if running.batch_bytes > BATCH_BYTES {
            self.end(token.serial, Err(Status::TooLarge));
            return 0;
        }
        let Some(mut look) = running.asked.remove(&token.shard) else { return 0 };
        let mut rest = reply.value.as_deref().unwrap_or_default();
        let (mut taken, mut visits) = (0, 0);
        while let Some((answer, after)) = answers::split(rest)
            && let Some((_, want)) = look.wants.get(taken)
        {
            rest = after;
            let given = answers::given(want, answer).unwrap_or(Given::OtherType);
            let Some(given) = running.search.take(given) else {
                look.wants[taken].1 = running.search.widened(want);
                break;
            };
            visits += running.give(&look.numbers[taken], &given);
            taken += 1;
        }
        if taken < look.wants.len() {
            // The others were too long for one answer.
            look.wants.drain(..taken);
            look.numbers.drain(..taken);
            self.counts.looks += 1;
            self.out.push_back(look.job((self.home, token.serial, token.request), token.shard));
            running.asked.insert(token.shard, look);
        } else if running.asked.is_empty() {
            self.ready.push_back(token.serial);
        }
        visits
    }

    /// A plan has ended: with its outcome, or with an error.
    fn end(&mut self, number: u64, how: Result<(), Status>) {
        let Some(running) = self.running.remove(&number) else { return };
        self.counts.reserved_bytes -= running.reserved_bytes;
        match how {
            Ok(()) => self.write(running.asker, running.run.into_outcome().unwrap_or_default()),
            Err(status) => {
                self.counts.given_up += 1;
                self.ended.push_back((running.asker, OwnedReply::status(status)));
            }
        }
    }

    /// Begins to make an outcome into bytes.
    fn write(&mut self, asker: Asker, outcome: Outcome) {
        self.counts.ended += 1;
        self.counts.limited += u64::from(outcome.limit.is_some());
        let rows = outcome.rows.len();
        self.writing.push_back((asker, OutcomeWriter::new(outcome), rows));
    }

    /// Goes on with that for some rows. Their number, about.
    fn write_some(&mut self) -> usize {
        let Some((asker, mut writer, rows)) = self.writing.pop_front() else { return 0 };
        let Some(value) = writer.write(WRITTEN_ROWS) else {
            self.writing.push_back((asker, writer, rows));
            return WRITTEN_ROWS;
        };
        let reply = OwnedReply {
            number: rows as i64,
            value: Some(value),
            ..OwnedReply::status(Status::Ok)
        };
        self.ended.push_back((asker, reply));
        rows.min(WRITTEN_ROWS)
    }
}

#[cfg(test)]
mod tests;
