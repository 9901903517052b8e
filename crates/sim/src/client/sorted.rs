//! A simulated client's operations on sorted sets: each member is judged as a key whose number is its
//! score. So is each member that a range of scores may have, whether the range shows it or not.

use super::{MS, SimClient};
use crate::check::keys::{If, KeyOp, Value, said_of_each};
use crate::hashes::JUDGED_EXPIRY;
use crate::history::Begun;
use crate::probes::Probe;
use crate::sorted::{SortedSwarm, number_of_score, register_of_member};
use crate::values::{HashName, Register};
use remora_client_core::{
    Error, OpenSorted, OrderedCache, Path, Session, SortedMember, SortedScore,
};
use remora_layout::limits::SORTED_CHANGE_MEMBERS;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand, SortedRange, SortedRead, When};
use remora_protocol::{Command, Condition, Items};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

/// A set, and the seed's choices.
type Set = (u8, SortedSwarm);
/// Members with their numbers, in the order in which they came.
type Found = Vec<(Register, i64)>;

/// The numbers from one to another, as bounds of scores.
fn bounds(numbers: &RangeInclusive<i64>) -> (Bound<f64>, Bound<f64>) {
    let bound = |number: i64| match number {
        i64::MIN | i64::MAX => Bound::Unbounded,
        number => Bound::Included(number as f64),
    };
    (bound(*numbers.start()), bound(*numbers.end()))
}

impl SimClient {
    /// Operates on a sorted set.
    pub(super) fn use_sorted(
        &mut self,
        session: &mut Session,
        swarm: SortedSwarm,
    ) -> Result<(), Error> {
        let set = self.draw(swarm.sets.into()) as u8;
        if self.draw(1_000) < swarm.ends {
            return match self.draw(2) {
                0 => self.drop_hash(session, HashName::Sorted(set)),
                _ => self.expire_hash(session, HashName::Sorted(set)),
            };
        }
        let mut view = self.sorted_view(session, set)?;
        let done = self.use_sorted_view(session, (set, swarm), &mut view);
        self.views.sorted.insert(set, view);
        done
    }

    fn sorted_view(&mut self, session: &Session, set: u8) -> Result<OpenSorted, Error> {
        if let Some(view) = self.views.sorted.remove(&set) {
            return Ok(view);
        }
        let mut view = session.open_sorted(&HashName::Sorted(set).key())?;
        let bytes = self.world.swarm.sorted.map_or(0, |sorted| sorted.kept_bytes);
        view.tree_mut().set_cache(OrderedCache { bytes, ..OrderedCache::default() });
        Ok(view)
    }

    fn use_sorted_view(
        &self,
        session: &mut Session,
        of: Set,
        view: &mut OpenSorted,
    ) -> Result<(), Error> {
        let swarm = of.1;
        let adds = (self.now_ns() / swarm.tide_ns).is_multiple_of(2);
        match self.draw(100) {
            0..20 => self.get_score(session, self.sorted_member(of), view, self.path()),
            20..25 => self.rank(session, of),
            25..45 => self.read_scores(session, of, view),
            45..50 => self.read_all_scores(session, of),
            50..58 => self.change_members(session, of, adds),
            58..65 => self.increment(session, of),
            65..70 => self.add_if(session, of),
            70..74 if !adds => self.pop(session, of),
            74..76 if !adds => self.remove_range(session, of),
            _ if adds => self.add_to_sorted(session, of),
            _ => self.remove_from_sorted(session, of),
        }
    }

    fn sorted_member(&self, (set, swarm): Set) -> Register {
        let number = self.draw(swarm.members.into()) as u32;
        Register { database: self.database(), hash: Some(HashName::Sorted(set)), number }
    }

    /// Some members, each once.
    fn some_sorted(&self, of: Set) -> Vec<Register> {
        let most = [1, 1, 3, of.1.most_at_once][self.draw(4) as usize];
        let mut members: Vec<Register> =
            (0..1 + self.draw(most)).map(|_| self.sorted_member(of)).collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    fn score(&self, swarm: SortedSwarm) -> i64 {
        swarm.score(self.world.next_number(), |below| self.draw(below))
    }

    fn violate_sorted(&self, promise: &'static str, seen: String) {
        let seen = format!("client {}: {seen}", self.number);
        self.world.history.borrow_mut().violate(promise, seen);
    }

    fn reached(&self, probe: Probe, times: usize) {
        self.world.probes.borrow_mut().add(probe, times as u64);
    }

    /// The number that a score stands for.
    fn number_of_score(&self, key: Register, score: f64) -> i64 {
        number_of_score(score).unwrap_or_else(|| {
            self.violate_sorted("a score is one that was given", format!("{key}: {score}"));
            0
        })
    }

    /// A request about a set: the status, the number and the value of its reply.
    fn ask_sorted(
        &self,
        session: &mut Session,
        set: u8,
        command: SortedCommand<'_>,
    ) -> Result<(Status, i64, Vec<u8>), Error> {
        let (key, mut value) = (HashName::Sorted(set).key(), Vec::new());
        let request = command.request();
        if request.may_have_parts() {
            let ended = session.ask_long(&key, request, &mut |part| value.extend(part));
            return ended.map(|(status, number)| (status, number, value));
        }
        let reply = session.ask(&Command::Of { key: &key, request })?;
        value.extend(reply.value.unwrap_or_default());
        Ok((reply.status, reply.number, value))
    }

    /// The score in a reply of eight bytes.
    fn number_in(&self, key: Register, value: &[u8]) -> Option<i64> {
        let bytes = value.try_into().ok();
        if bytes.is_none() {
            self.violate_sorted("a score has eight bytes", format!("{key}: {value:02x?}"));
        }
        bytes.map(|bytes| self.number_of_score(key, f64::from_le_bytes(bytes)))
    }

    /// The member of this name; `None` if no client adds it.
    fn found_one(&self, (set, swarm): Set, name: &[u8], score: f64) -> Option<(Register, i64)> {
        let key = register_of_member(self.database(), set, name, swarm.members);
        if key.is_none() {
            let promise = "a sorted set has members that were added";
            self.violate_sorted(promise, format!("{}", name.escape_ascii()));
        }
        key.map(|key| (key, self.number_of_score(key, score)))
    }

    fn found_of(&self, of: Set, members: &[SortedMember]) -> Found {
        let one = |found: &SortedMember| self.found_one(of, &found.member, found.score);
        members.iter().filter_map(one).collect()
    }

    /// The members of an encoded list.
    fn found_in(&self, of: Set, list: &[u8]) -> Found {
        let one = |(score, name): (f64, &[u8])| self.found_one(of, name, score);
        let found: Found = Scored::in_list(list).filter_map(one).collect();
        let bytes: usize =
            Scored::in_list(list).map(|(_, name)| Scored::bytes_of(name.len())).sum();
        if bytes != list.len() {
            self.violate_sorted("a list of members is whole", format!("{list:02x?}"));
        }
        found
    }

    fn get_score(
        &self,
        session: &mut Session,
        key: Register,
        view: &mut OpenSorted,
        path: Path,
    ) -> Result<(), Error> {
        let begun = self.begin(key, KeyOp::Nothing);
        match session.sorted_score(view, &key.name(), path) {
            Ok(SortedScore { score, served_by, .. }) => {
                self.reached(Probe::SortedScoreRead, served_by.is_read().into());
                let found = score.map(|score| self.number_of_score(key, score));
                self.end(begun, KeyOp::Get { found });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    /// The rank comes with the score.
    fn rank(&self, session: &mut Session, of: Set) -> Result<(), Error> {
        let (key, is_reverse) = (self.sorted_member(of), self.draw(2) == 0);
        let (begun, name) = (self.begin(key, KeyOp::Nothing), key.name());
        let got = self.ask_sorted(session, of.0, SortedCommand::Rank { member: &name, is_reverse });
        if let Ok((Status::Ok, rank, _)) = &got
            && !(0..of.1.members.into()).contains(rank)
        {
            self.violate_sorted("a rank is below the number of members", format!("{key}: {rank}"));
        }
        match got {
            Ok((status, _, value)) => {
                let is_there = status != Status::NotFound;
                let found = is_there.then(|| self.number_in(key, &value)).flatten();
                self.end(begun, KeyOp::Get { found });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    /// The numbers of a range: of a few neighbours, of any, or all.
    fn drawn_numbers(&self, (_, swarm): Set) -> RangeInclusive<i64> {
        let (one, other) = (self.score(swarm), self.score(swarm));
        match self.draw(6) {
            0 => i64::MIN..=i64::MAX,
            1 => i64::MIN..=one,
            2 => one..=i64::MAX,
            _ => one.min(other)..=one.max(other),
        }
    }

    fn read_scores(
        &self,
        session: &mut Session,
        of: Set,
        view: &mut OpenSorted,
    ) -> Result<(), Error> {
        let (numbers, is_reverse) = (self.drawn_numbers(of), self.draw(2) == 0);
        let limit = [1, 4, 30, 10_000][self.draw(4) as usize];
        let (from, to) = bounds(&numbers);
        let range = SortedRange::Score { from, to };
        let begun = self.begin_fields(&self.all_fields(HashName::Sorted(of.0)), KeyOp::Nothing);
        let read = SortedRead { is_reverse, limit, ..SortedRead::of(range) };
        match session.sorted_range(view, read, self.path()) {
            Ok(got) => {
                self.reached(Probe::SortedRangeRead, got.served_by.is_read().into());
                let found = self.found_of(of, &got.members);
                self.check_order(of, &found, is_reverse);
                if found.len() as u64 > limit {
                    let promise = "a range has no more members than were wanted";
                    self.violate_sorted(promise, format!("{found:?}"));
                }
                let last = found.last().filter(|_| found.len() as u64 == limit);
                let seen = match last {
                    Some(&(_, last)) if is_reverse => last.saturating_add(1)..=*numbers.end(),
                    Some(&(_, last)) => *numbers.start()..=last.saturating_sub(1),
                    None => numbers.clone(),
                };
                self.saw_members(&begun, &found, &numbers, seen);
                Ok(())
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    /// All members by their indexes, as they were at one moment.
    fn read_all_scores(&self, session: &mut Session, of: Set) -> Result<(), Error> {
        let begun = self.begin_fields(&self.all_fields(HashName::Sorted(of.0)), KeyOp::Nothing);
        let is_reverse = self.draw(2) == 0;
        let read = SortedRead { is_reverse, ..SortedRead::of(SortedRange::ALL) };
        match self.ask_sorted(session, of.0, SortedCommand::Range(read)) {
            Ok((_, _, list)) => {
                let found = self.found_in(of, &list);
                self.check_order(of, &found, is_reverse);
                let all = i64::MIN..=i64::MAX;
                self.saw_members(&begun, &found, &all, all.clone());
                Ok(())
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    fn check_order(&self, (set, _): Set, found: &Found, is_reverse: bool) {
        let place = |(key, number): &(Register, i64)| (*number, key.name());
        let is_sorted = found.is_sorted_by(|one, other| match is_reverse {
            true => place(one) > place(other),
            false => place(one) < place(other),
        });
        if !is_sorted {
            let promise = "a range has its members in order, each once";
            self.violate_sorted(promise, format!("set {set}: {found:?}"));
        }
    }

    /// A range was read: these members were found, and no others with numbers that were seen.
    fn saw_members(
        &self,
        begun: &[Begun],
        found: &Found,
        numbers: &RangeInclusive<i64>,
        seen: RangeInclusive<i64>,
    ) {
        if let Some(outside) = found.iter().find(|(_, number)| !numbers.contains(number)) {
            let promise = "a range has no members with other scores";
            self.violate_sorted(promise, format!("{numbers:?}: {outside:?}"));
        }
        let found: BTreeMap<Register, i64> = found.iter().copied().collect();
        for &begun in begun {
            let (from, to) = (*seen.start(), *seen.end());
            let op = match found.get(&begun.key) {
                Some(&number) => KeyOp::Get { found: Some(number) },
                None if from > to => KeyOp::Nothing,
                None => KeyOp::Outside { from, to },
            };
            self.end(begun, op);
        }
    }

    fn set_op(number: i64, condition: If, done: Option<bool>) -> KeyOp {
        KeyOp::Set { value: Value { number, expiry: None }, condition, done }
    }

    /// Adds members in one change.
    fn add_to_sorted(&self, session: &mut Session, of: Set) -> Result<(), Error> {
        let members = self.some_sorted(of);
        let (mut begun, mut list) = (Vec::new(), Vec::new());
        let calls = members.iter().map(|&key| {
            let number = self.score(of.1);
            Scored::push(&mut list, number as f64, &key.name());
            begun.push(number);
            (key, Self::set_op(number, If::Always, None), None)
        });
        let calls: Vec<_> = calls.collect();
        let calls = self.world.history.borrow_mut().begin_all(self.number, self.now_ns(), calls);
        let members = Scored::parse(&list).expect("the names are short");
        let command = SortedCommand::Add { when: When::default(), counts_changed: false, members };
        match self.ask_sorted(session, of.0, command) {
            Ok((_, new, _)) => {
                let condition = match said_of_each(new as u64, calls.len()) {
                    Some(true) => If::Absent,
                    Some(false) => If::Present,
                    None => If::Always,
                };
                for (&call, &number) in calls.iter().zip(&begun) {
                    self.end(call, Self::set_op(number, condition, Some(true)));
                }
                Ok(())
            }
            // Those of the first changes may have theirs.
            Err(error)
                if error == Error::Refused(Status::OutOfMemory)
                    && calls.len() > SORTED_CHANGE_MEMBERS =>
            {
                self.world.probes.borrow_mut().add_error(error);
                Ok(())
            }
            Err(error) => self.fields_failed(&calls, error),
        }
    }

    /// Gives a member a score if it is there, or if it is not.
    fn add_if(&self, session: &mut Session, of: Set) -> Result<(), Error> {
        let number = of.1.new_score(self.world.next_number(), |below| self.draw(below));
        let (key, mut list) = (self.sorted_member(of), Vec::new());
        let (model, condition) =
            [(If::Absent, Condition::IfAbsent), (If::Present, Condition::IfPresent)]
                [self.draw(2) as usize];
        let begun = self.begin(key, Self::set_op(number, model, None));
        Scored::push(&mut list, number as f64, &key.name());
        let when = When { condition, ..When::default() };
        let members = Scored::parse(&list).expect("the name is short");
        let command = SortedCommand::Add { when, counts_changed: true, members };
        match self.ask_sorted(session, of.0, command) {
            Ok((_, changed, _)) => {
                self.end(begun, Self::set_op(number, model, Some(changed == 1)));
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn remove_from_sorted(&self, session: &mut Session, of: Set) -> Result<(), Error> {
        let members = self.some_sorted(of);
        if self.are_unsettled(&members) {
            return self.read_all_scores(session, of);
        }
        let begun = self.begin_fields(&members, KeyOp::Del { removed: None });
        let mut list = Vec::new();
        members.iter().for_each(|key| Items::push(&mut list, &key.name()));
        let command = SortedCommand::Remove { members: Items::parse(&list).expect("it is one") };
        match self.ask_sorted(session, of.0, command) {
            Ok((_, removed, _)) => {
                let removed = said_of_each(removed as u64, members.len());
                self.end_fields(&begun, KeyOp::Del { removed })
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    /// Adds to the score of a member: mostly so little that it keeps its place.
    fn increment(&self, session: &mut Session, of: Set) -> Result<(), Error> {
        let (key, far) = (self.sorted_member(of), self.score(of.1));
        let by = if self.draw(4) == 0 { far } else { self.draw(9) as i64 - 4 };
        if self.are_unsettled(&[key]) {
            return self.read_all_scores(session, of);
        }
        let (begun, name) = (self.begin(key, KeyOp::Incr { by, sum: None }), key.name());
        let when = When::default();
        let command = SortedCommand::Increment { when, by: by as f64, member: &name };
        match self.ask_sorted(session, of.0, command) {
            Ok((_, _, value)) => {
                let sum = self.number_in(key, &value);
                self.end(begun, KeyOp::Incr { by, sum });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    /// Takes the first or last members. All others are farther from that end.
    fn pop(&self, session: &mut Session, of: Set) -> Result<(), Error> {
        let (count, from_greatest) = (1 + self.draw(4), self.draw(2) == 0);
        let members = self.all_fields(HashName::Sorted(of.0));
        if self.are_unsettled(&members) {
            return self.read_all_scores(session, of);
        }
        let begun = self.begin_fields(&members, KeyOp::Del { removed: None });
        match self.ask_sorted(session, of.0, SortedCommand::Pop { count, from_greatest }) {
            Ok((_, _, list)) => {
                let found = self.found_in(of, &list);
                self.check_order(of, &found, from_greatest);
                self.reached(Probe::SortedPopped, found.len());
                let nearer = match found.last() {
                    Some(&(_, last)) if found.len() as u64 == count => match from_greatest {
                        true => last.saturating_add(1)..=i64::MAX,
                        false => i64::MIN..=last.saturating_sub(1),
                    },
                    _ => i64::MIN..=i64::MAX,
                };
                let found: BTreeMap<Register, i64> = found.into_iter().collect();
                for &begun in &begun {
                    let op = match found.get(&begun.key) {
                        Some(&number) => KeyOp::Take { number },
                        None => KeyOp::Outside { from: *nearer.start(), to: *nearer.end() },
                    };
                    self.end(begun, op);
                }
                Ok(())
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    fn remove_range(&self, session: &mut Session, of: Set) -> Result<(), Error> {
        let numbers = self.drawn_numbers(of);
        let (from, to) = (*numbers.start(), *numbers.end());
        let members = self.all_fields(HashName::Sorted(of.0));
        if self.are_unsettled(&members) {
            return self.read_all_scores(session, of);
        }
        let begun = self.begin_fields(&members, KeyOp::DelWithin { from, to });
        let bounds = bounds(&numbers);
        let range = SortedRange::Score { from: bounds.0, to: bounds.1 };
        match self.ask_sorted(session, of.0, SortedCommand::RemoveRange { range }) {
            Ok((_, 0, _)) => self.end_fields(&begun, KeyOp::Outside { from, to }),
            Ok((_, removed, _)) => {
                self.reached(Probe::SortedRangeRemoved, removed as usize);
                self.end_fields(&begun, KeyOp::DelWithin { from, to })
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    /// Adds or removes members one after the other, without waiting for each reply: nodes are divided
    /// or joined while others read them.
    fn change_members(&self, session: &mut Session, of: Set, adds: bool) -> Result<(), Error> {
        let (first, count) = (self.sorted_member(of), 1 + self.draw(of.1.most_at_once) as u32);
        let mut begun = Vec::new();
        for number in first.number..(first.number + count).min(of.1.members) {
            let (key, score) = (Register { number, ..first }, self.score(of.1));
            if !adds && self.are_unsettled(&[key]) {
                continue;
            }
            let (name, mut list) = (key.name(), Vec::new());
            let op = match adds {
                true => Self::set_op(score, If::Always, None),
                false => KeyOp::Del { removed: None },
            };
            begun.push((self.begin(key, op), score));
            let request = if adds {
                Scored::push(&mut list, score as f64, &name);
                let members = Scored::parse(&list).expect("the name is short");
                let when = When::default();
                SortedCommand::Add { when, counts_changed: false, members }.request()
            } else {
                Items::push(&mut list, &name);
                let members = Items::parse(&list).expect("it is one");
                SortedCommand::Remove { members }.request()
            };
            session.submit(&Command::Of { key: &HashName::Sorted(of.0).key(), request })?;
        }
        self.end_members(session, &begun, adds)
    }

    fn end_members(
        &self,
        session: &mut Session,
        begun: &[(Begun, i64)],
        adds: bool,
    ) -> Result<(), Error> {
        let mut timed_out = None;
        for &(begun, score) in begun {
            let mut answer = None;
            let taken = session.next_reply(&mut |_, reply| {
                answer = Some((reply.status, reply.number));
            });
            match taken {
                Err(Error::TimedOut) => {
                    timed_out = Some(Error::TimedOut);
                    continue;
                }
                taken => taken.map(drop)?,
            }
            let Some((status, number)) = answer else {
                self.violate_sorted("every request is answered", format!("{begun:?}"));
                continue;
            };
            let condition = if number == 1 { If::Absent } else { If::Present };
            match status {
                Status::Ok if adds => self.end(begun, Self::set_op(score, condition, Some(true))),
                Status::Ok => self.end(begun, KeyOp::Del { removed: Some(number == 1) }),
                refused => self.failed(begun, Error::Refused(refused))?,
            }
        }
        timed_out.map_or(Ok(()), Err)
    }

    /// Reads members of a set around the time when it expires.
    pub(super) fn read_expired_sorted(
        &mut self,
        session: &mut Session,
        set: u8,
        at_ms: u64,
    ) -> Result<(), Error> {
        let Some(mut view) = self.views.sorted.remove(&set) else { return Ok(()) };
        let left_ms = at_ms.saturating_sub(self.world.node.borrow().unix_ms());
        let (database, hash) = (self.database(), Some(HashName::Sorted(set)));
        let done = [0, left_ms + 2].into_iter().try_for_each(|waits_ms| {
            self.pause((waits_ms + self.draw(8)) * MS);
            JUDGED_EXPIRY.into_iter().try_for_each(|number| {
                let key = Register { database, hash, number };
                self.get_score(session, key, &mut view, Path::Read)
            })
        });
        self.views.sorted.insert(set, view);
        done
    }
}
