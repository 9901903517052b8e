//! Histories of changes against an oracle of logs: whatever is promoted has every acknowledged entry.

use remora_cluster::topology::change::{self, Joining, Promotion, Refusal};
use remora_cluster::topology::{
    DecodeError, Group, GroupId, GroupRole, Instance, Invalid, Member, MemberId, MemberState,
    Topology,
};
use remora_layout::limits::{
    MAX_EPOCH, MAX_GROUP_NAME_BYTES, MAX_GROUPS, MAX_MEMBER_ADDRESS_BYTES, MAX_MEMBERS,
    MAX_TOPOLOGY_BYTES,
};
use remora_layout::slot::SLOTS;
use remora_testing::Random;
use std::collections::BTreeMap;
use std::ops::Range;

const GROUP: GroupId = GroupId(1);
const MEMBERS: u64 = 5;

fn group(id: u32) -> (GroupId, String, u8) {
    (GroupId(id), format!("group-{id}"), 1)
}

fn joining(instance: Instance) -> Joining {
    let port = instance.member.0;
    Joining {
        instance,
        group: GROUP,
        fabric_address: format!("10.0.0.1:{port}"),
        resp_address: format!("10.0.1.1:{port}"),
    }
}

fn instance(member: u64, incarnation: u64) -> Instance {
    Instance { member: MemberId(member), incarnation }
}

/// What the processes of one group have, and what was acknowledged.
struct World {
    random: Random,
    topology: Topology,
    /// The entries of each process that lives.
    logs: BTreeMap<Instance, Vec<u64>>,
    acknowledged: Vec<u64>,
    entries: u64,
    incarnations: u64,
    /// Each process that became primary, and its epoch: it believes that it still leads.
    leaders: Vec<(Instance, u64)>,
    promotions: u64,
    refusals: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            random: Random::new(seed),
            topology: Topology::new(1, vec![group(1), group(2)]).expect("valid"),
            logs: BTreeMap::new(),
            acknowledged: Vec::new(),
            entries: 0,
            incarnations: 0,
            leaders: Vec::new(),
            promotions: 0,
            refusals: 0,
        };
        (1..=MEMBERS).for_each(|member| world.start(member));
        world
    }

    fn group(&self) -> &Group {
        self.topology.group(GROUP).expect("it is there")
    }

    fn any_process(&mut self) -> Instance {
        let at = self.random.below(self.logs.len());
        *self.logs.keys().nth(at).expect("below the length")
    }

    /// Any of these, each with the same chance.
    fn some_of(&mut self, of: &[Instance]) -> Vec<Instance> {
        of.iter().copied().filter(|_| self.random.one_in(2)).collect()
    }

    fn take(&mut self, next: Result<Topology, Refusal>) -> bool {
        match next {
            Ok(next) => {
                assert_eq!(next.version, self.topology.version + 1);
                assert_eq!(next.validate(), Ok(()));
                let bytes = next.encode();
                assert!(bytes.len() <= MAX_TOPOLOGY_BYTES);
                assert_eq!(Topology::decode(&bytes), Ok(next.clone()));
                self.topology = next;
                self.check();
                true
            }
            Err(_) => {
                self.refusals += 1;
                false
            }
        }
    }

    /// Each process that the record names, and that lives, has every acknowledged entry.
    fn check(&self) {
        let group = self.group();
        for named in group.primary.iter().chain(&group.in_sync) {
            let Some(log) = self.logs.get(named) else { continue };
            assert!(log.starts_with(&self.acknowledged), "{named} lacks acknowledged entries");
        }
    }

    /// A member starts, or starts again: its former process and what that had are gone.
    fn start(&mut self, member: u64) {
        self.logs.retain(|of, _| of.member.0 != member);
        self.incarnations += 1;
        let process = instance(member, self.incarnations);
        self.logs.insert(process, Vec::new());
        let next = change::join(&self.topology, joining(process));
        self.take(next);
    }

    /// The recorded primary writes, if it lives.
    fn write(&mut self) {
        let log = self.topology.group(GROUP).and_then(|of| of.primary);
        if let Some(log) = log.and_then(|of| self.logs.get_mut(&of)) {
            self.entries += 1;
            log.push(self.entries);
        }
    }

    /// A process gets what the recorded primary has, or a part of it, as members of its set do in order.
    fn ship(&mut self) {
        let to = self.any_process();
        let Some(primary) = self.group().primary.filter(|of| *of != to) else { return };
        let Some(log) = self.logs.get(&primary).cloned() else { return };
        let least = self.logs[&to].iter().zip(&log).take_while(|(a, b)| a == b).count();
        let part = self.random.within(least..log.len() + 1);
        let most = if self.random.one_in(2) { part } else { log.len() };
        self.logs.insert(to, log[..most].to_vec());
    }

    /// The recorded primary acknowledges what lies with all of the recorded set.
    fn acknowledge(&mut self) {
        let group = self.group().clone();
        let Some(log) = group.primary.and_then(|of| self.logs.get(&of)) else { return };
        if group.in_sync.len() < group.min_replicas.into() {
            return;
        }
        let common = |of: &Instance| {
            // What does not live any more stores nothing more.
            let other = self.logs.get(of).map_or(&[][..], Vec::as_slice);
            log.iter().zip(other).take_while(|(a, b)| a == b).count()
        };
        let all = group.in_sync.iter().map(common).min().unwrap_or(log.len());
        if all > self.acknowledged.len() {
            self.acknowledged = log[..all].to_vec();
        }
        self.check();
    }

    /// A process that leads, or believes so, asks for another set: of those of its set, and of those that
    /// have as much as it has.
    fn set_in_sync(&mut self) {
        let Some(&(author, epoch)) = self.leaders.last() else { return };
        let (author, epoch) = match self.leaders.len() {
            many if self.random.one_in(3) => self.leaders[self.random.below(many)],
            _ => (author, epoch),
        };
        let Some(log) = self.logs.get(&author).cloned() else { return };
        let recorded = self.group().in_sync.clone();
        let is_whole = |(_, other): &(&Instance, &Vec<u64>)| **other == log;
        let others: Vec<_> = self
            .logs
            .iter()
            .filter(is_whole)
            .map(|(of, _)| *of)
            .filter(|of| *of != author)
            .collect();
        let mut set = self.some_of(&recorded);
        for other in self.some_of(&others) {
            set.retain(|of| of.member != other.member);
            set.push(other);
        }
        let next = change::set_in_sync(&self.topology, GROUP, (author, epoch), set);
        let is_leader = self.group().primary == Some(author) && self.group().epoch == epoch;
        assert!(is_leader || next.is_err(), "a former primary has changed the set");
        self.take(next);
    }

    /// A watcher promotes any process, and keeps some of the recorded set.
    fn promote(&mut self) {
        let recorded = self.group().in_sync.clone();
        let to = match recorded.len() {
            many if many > 0 && self.random.one_in(2) => recorded[self.random.below(many)],
            _ => self.any_process(),
        };
        let epoch = self.group().epoch - self.random.below(2u64).min(self.group().epoch);
        let in_sync = self.some_of(&recorded);
        let promotion = Promotion { group: GROUP, epoch, to, in_sync };
        let next = change::promote(&self.topology, promotion);
        if self.take(next) {
            assert_eq!(self.group().epoch, epoch + 1);
            self.leaders.push((to, epoch + 1));
            self.promotions += 1;
        }
    }

    /// Where no process lives that the record names, an operator accepts the loss.
    fn force(&mut self) {
        let (to, group) = (self.any_process(), self.group().clone());
        let mut named = group.primary.iter().chain(&group.in_sync);
        if group.epoch == 0 || named.any(|of| self.logs.contains_key(of)) {
            return;
        }
        let next = change::promote_with_loss(&self.topology, GROUP, group.epoch, to);
        let log = self.logs[&to].clone();
        let kept = self.acknowledged.iter().zip(&log).take_while(|(a, b)| a == b).count();
        let before = std::mem::replace(&mut self.acknowledged, log[..kept].to_vec());
        if self.take(next) {
            self.leaders.push((to, group.epoch + 1));
        } else {
            self.acknowledged = before;
        }
    }

    fn step(&mut self) {
        let member = MemberId(1 + self.random.below(MEMBERS));
        match self.random.below(20) {
            0..=4 => self.write(),
            5..=9 => self.ship(),
            10..=12 => self.acknowledge(),
            13..=15 => self.set_in_sync(),
            16 => self.promote(),
            17 if self.random.one_in(4) => self.start(member.0),
            17 => self.force(),
            18 if self.random.one_in(4) => {
                let next = change::drain(&self.topology, member);
                self.take(next);
            }
            _ => {
                let next = change::undrain(&self.topology, member);
                self.take(next);
            }
        }
    }
}

#[test]
fn what_is_promoted_has_every_acknowledged_entry() {
    let (mut promotions, mut acknowledged, mut refusals) = (0, 0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed);
        (0..1_200).for_each(|_| world.step());
        promotions += world.promotions;
        refusals += world.refusals;
        acknowledged += world.acknowledged.len();
    }
    // The histories come where it matters.
    assert!(promotions > 800, "{promotions}");
    assert!(refusals > 5_000, "{refusals}");
    assert!(acknowledged > 3_000, "{acknowledged}");
    println!("{promotions} promotions, {refusals} refusals, {acknowledged} acknowledged");
}

/// A group of three, of which the first leads and the second is in sync.
fn three() -> (Topology, [Instance; 3]) {
    let all = [1, 2, 3].map(|member| instance(member, 10 * member));
    let mut topology = Topology::new(1, vec![group(1), group(2)]).expect("valid");
    for of in all {
        topology = change::join(&topology, joining(of)).expect("it joins");
    }
    let first = Promotion { group: GROUP, epoch: 0, to: all[0], in_sync: Vec::new() };
    topology = change::promote(&topology, first).expect("the first primary");
    topology = change::set_in_sync(&topology, GROUP, (all[0], 1), vec![all[1]]).expect("it leads");
    (topology, all)
}

#[test]
fn a_promotion_is_out_of_the_recorded_set_and_under_its_epoch() {
    let (topology, [first, second, third]) = three();
    let to = |to, epoch| Promotion { group: GROUP, epoch, to, in_sync: vec![second] };
    assert_eq!(change::promote(&topology, to(third, 1)), Err(Refusal::NotInSync(third)));
    assert_eq!(change::promote(&topology, to(first, 1)), Err(Refusal::LeadsAlready(first)));
    let other = Refusal::OtherEpoch { group: GROUP, epoch: 1 };
    assert_eq!(change::promote(&topology, to(second, 0)), Err(other));
    let widened = Promotion { in_sync: vec![second, third], ..to(second, 1) };
    assert_eq!(change::promote(&topology, widened), Err(Refusal::NotInSync(third)));

    let next = change::promote(&topology, to(second, 1)).expect("it is in sync");
    let group = next.group(GROUP).expect("it is there");
    assert_eq!((group.epoch, group.primary, group.in_sync.len()), (2, Some(second), 0));
    // The former primary neither changes the set nor comes back by itself.
    let late = change::set_in_sync(&next, GROUP, (first, 1), vec![third]);
    assert_eq!(late, Err(Refusal::OtherEpoch { group: GROUP, epoch: 2 }));
    let late = change::set_in_sync(&next, GROUP, (first, 2), vec![third]);
    assert_eq!(late, Err(Refusal::NotPrimary(first)));
    assert_eq!(change::promote(&next, to(first, 2)), Err(Refusal::NotInSync(first)));
    assert_eq!(next.role(first), Some(GroupRole::Behind));

    // Nor does it when it leads again: what it asked in its former epoch is of the past.
    let next = change::set_in_sync(&next, GROUP, (second, 2), vec![first]).expect("it leads");
    let again = Promotion { in_sync: Vec::new(), ..to(first, 2) };
    let next = change::promote(&next, again.clone()).expect("it is in sync");
    let third_epoch = Refusal::OtherEpoch { group: GROUP, epoch: 3 };
    let late = change::set_in_sync(&next, GROUP, (first, 1), vec![third]);
    assert_eq!(late, Err(third_epoch.clone()));
    assert_eq!(change::promote(&next, again), Err(third_epoch));
}

#[test]
fn a_process_that_was_started_again_is_not_in_the_set() {
    let (topology, [first, second, third]) = three();
    let again = instance(2, 21);
    let next = change::join(&topology, joining(again)).expect("it joins again");
    assert_eq!(next.group(GROUP).expect("it is there").in_sync, [second]);
    assert_eq!((next.role(second), next.role(again)), (None, Some(GroupRole::Behind)));
    for to in [second, again] {
        let promotion = Promotion { group: GROUP, epoch: 1, to, in_sync: Vec::new() };
        assert!(change::promote(&next, promotion).is_err(), "{to}");
    }
    let group = next.group(GROUP).expect("it is there");
    assert_eq!(next.eligible(group, &[first, again, third]).count(), 0);
    // Nor does the primary lead on, and it may be followed by those of its set only.
    let again = instance(1, 11);
    let next = change::join(&topology, joining(again)).expect("it joins again");
    let set = change::set_in_sync(&next, GROUP, (again, 1), vec![second]);
    assert_eq!(set, Err(Refusal::NotPrimary(again)));
    let group = next.group(GROUP).expect("it is there");
    assert_eq!(next.eligible(group, &[again, second, third]).collect::<Vec<_>>(), [second]);
    // By its disk that server may lead the next epoch, and no other server.
    let by_disk = change::promote_restarted(&next, GROUP, 1, again).expect("it is its server");
    let group = by_disk.group(GROUP).expect("it is there");
    assert_eq!((group.epoch, group.primary, group.in_sync.len()), (2, Some(again), 0));
    for (of, to) in [(&next, first), (&next, second), (&next, third), (&topology, first)] {
        let refused = change::promote_restarted(of, GROUP, 1, to);
        assert_eq!(refused, Err(Refusal::NotItsServer(to)));
    }
    let late = change::promote_restarted(&by_disk, GROUP, 1, again);
    assert_eq!(late, Err(Refusal::OtherEpoch { group: GROUP, epoch: 2 }));
    // What an operator forces is recorded as what it is: a set without anybody.
    let forced = change::promote_with_loss(&next, GROUP, 1, third).expect("forced");
    let group = forced.group(GROUP).expect("it is there");
    assert_eq!((group.epoch, group.primary, group.in_sync.len()), (2, Some(third), 0));
}

#[test]
fn a_draining_member_leaves_when_it_has_no_role() {
    let (topology, [first, second, third]) = three();
    let of = |next: Result<Topology, Refusal>| next.expect("it may");
    assert_eq!(change::leave(&topology, first.member), Err(Refusal::HasRole(first.member)));
    let draining = of(change::drain(&topology, first.member));
    let promotion = Promotion { group: GROUP, epoch: 1, to: second, in_sync: Vec::new() };
    let promoted = of(change::promote(&draining, promotion));
    let set = change::set_in_sync(&promoted, GROUP, (second, 2), vec![first]);
    assert_eq!(set, Err(Refusal::MayNotLead(first.member)));
    let left = of(change::leave(&promoted, first.member));
    assert!(left.member(first.member).is_none());
    // The last one that may lead is not drained.
    let one = of(change::drain(&left, third.member));
    assert_eq!(change::drain(&one, second.member), Err(Refusal::LastMember(second.member)));
    let back = of(change::undrain(&one, third.member));
    assert_eq!(back.member(third.member).map(|of| of.state), Some(MemberState::Joining));
}

/// A server that has lost its data draws a new id, and has the address of before.
#[test]
fn a_member_that_took_an_address_replaces_the_one_before() {
    let (topology, [first, second, third]) = three();
    let at = |old: Instance, member| Joining { instance: instance(member, 1), ..joining(old) };
    let next = change::join(&topology, at(third, 9)).expect("it joins");
    assert!(next.member(third.member).is_none() && next.member(MemberId(9)).is_some());
    // One that the record names stays until the record changes.
    let next = change::join(&topology, at(second, 9)).expect("it joins");
    assert_eq!(next.member(second.member).map(|of| of.state), Some(MemberState::Replaced));
    let promotion = Promotion { group: GROUP, epoch: 1, to: second, in_sync: Vec::new() };
    assert_eq!(change::promote(&next, promotion), Err(Refusal::MayNotLead(second.member)));
    let next = change::set_in_sync(&next, GROUP, (first, 1), Vec::new()).expect("it leads");
    assert!(next.member(second.member).is_none());
}

#[test]
fn slots_are_even_at_first_and_belong_to_one_group_each() {
    let topology = Topology::new(1, vec![group(1), group(2), group(3)]).expect("valid");
    let counts: Vec<_> = topology.slots().iter().map(|run| usize::from(run.slots)).collect();
    assert_eq!(counts.iter().sum::<usize>(), SLOTS);
    assert!(
        counts.iter().max().zip(counts.iter().min()).is_some_and(|(most, least)| most - least <= 1)
    );

    let mut random = Random::new(7);
    let mut owners: Vec<_> = (0..SLOTS as u16)
        .map(|slot| topology.group_of_slot(slot).map(|of| of.id.0).expect("each has one"))
        .collect();
    let mut topology = topology;
    for _ in 0..200 {
        let first = random.below(SLOTS);
        let end = (first + 1 + random.below(3_000usize)).min(SLOTS);
        let id = 1 + random.below(3u32);
        owners[first..end].fill(id);
        topology = with_runs(&topology, &runs_of(&owners)).expect("valid");
        assert_eq!(Topology::decode(&topology.encode()), Ok(topology.clone()));
    }
    for (slot, id) in owners.iter().enumerate() {
        assert_eq!(topology.group_of_slot(slot as u16).map(|of| of.id.0), Some(*id), "{slot}");
    }
    for (group, first, slots) in [(1, 5, 0), (1, SLOTS - 1, 2)] {
        let runs = [(group, first as u16, slots)];
        assert_eq!(with_runs(&topology, &runs), Err(DecodeError::Invalid(Invalid::Slots)));
    }
    let nowhere = with_runs(&topology, &[(9, 0, 1)]);
    assert_eq!(nowhere, Err(DecodeError::Invalid(Invalid::Dangling("table of slots"))));
}

/// Groups by slot, as runs: each is a group, its first slot and the number of slots.
fn runs_of(owners: &[u32]) -> Vec<(u32, u16, u16)> {
    let mut runs: Vec<(u32, u16, u16)> = Vec::new();
    for (slot, &owner) in owners.iter().enumerate() {
        match runs.last_mut() {
            Some((group, _, slots)) if *group == owner => *slots += 1,
            _ => runs.push((owner, slot as u16, 1)),
        }
    }
    runs
}

/// The same topology with these runs of slots. No change moves slots; the format allows any runs.
fn with_runs(topology: &Topology, runs: &[(u32, u16, u16)]) -> Result<Topology, DecodeError> {
    const RUN_BYTES: usize = 8;
    const COUNT_OF_RUNS: Range<usize> = 48..52;
    let mut bytes = topology.encode();
    bytes.truncate(bytes.len() - RUN_BYTES * topology.slots().len());
    for (group, first, slots) in runs {
        bytes.extend(group.to_le_bytes());
        bytes.extend([first.to_le_bytes(), slots.to_le_bytes()].concat());
    }
    bytes[COUNT_OF_RUNS].copy_from_slice(&(runs.len() as u32).to_le_bytes());
    Topology::decode(&super::encoding::sealed(&bytes))
}

#[test]
fn the_largest_topology_fits_one_node_of_the_coordinator() {
    let name = |id: usize| format!("{id:0>MAX_GROUP_NAME_BYTES$}");
    let groups = (1..=MAX_GROUPS).map(|id| (GroupId(id as u32), name(id), 16)).collect();
    let mut topology = Topology::new(u64::MAX, groups).expect("valid");
    let address = |kind: &str, id: usize| {
        format!("{kind}{id:0>width$}", width = MAX_MEMBER_ADDRESS_BYTES - 1)
    };
    let mut first = Vec::new();
    for id in 1..=MAX_MEMBERS {
        let of = instance(u64::MAX - id as u64, u64::MAX);
        let group = GroupId(id.div_ceil(2) as u32);
        let joining = Joining {
            instance: of,
            group,
            fabric_address: address("f", id),
            resp_address: address("r", id),
        };
        // Each change validates all: so many of them would take minutes.
        if id <= 8 || id == MAX_MEMBERS {
            topology = change::join(&topology, joining.clone()).expect("it joins");
        }
        first.push(joining);
    }
    let each_a_run: Vec<_> = (0..SLOTS as u32).map(|slot| 1 + slot % 2).collect();
    topology = with_runs(&topology, &runs_of(&each_a_run)).expect("valid");
    let bytes = topology.encode();
    assert!(bytes.len() <= MAX_TOPOLOGY_BYTES);
    assert_eq!(Topology::decode(&bytes), Ok(topology.clone()));
    let too_many = (1..=MAX_GROUPS as u32 + 1).map(group).collect();
    assert_eq!(Topology::new(1, too_many), Err(Invalid::TooMany("groups")));
    let long =
        Joining { resp_address: "x".repeat(MAX_MEMBER_ADDRESS_BYTES + 1), ..first.remove(0) };
    let refused = change::join(&topology, long.clone());
    assert_eq!(refused, Err(Refusal::Invalid(Invalid::Address(long.instance.member))));
}

#[test]
fn epochs_end_at_their_bound() {
    let (topology, [_, second, _]) = three();
    let mut bytes = topology.encode();
    // The epoch stands 32 bytes before the name of its group.
    let name = b"group-1";
    let at = bytes.windows(name.len()).position(|of| of == name).expect("its name") - 32;
    bytes[at..at + 8].copy_from_slice(&MAX_EPOCH.to_le_bytes());
    let bytes = super::encoding::sealed(&bytes);
    let last = Topology::decode(&bytes).expect("valid");
    assert_eq!(last.group(GROUP).map(|of| of.epoch), Some(MAX_EPOCH));
    let promotion = Promotion { group: GROUP, epoch: MAX_EPOCH, to: second, in_sync: Vec::new() };
    assert_eq!(change::promote(&last, promotion), Err(Refusal::LastEpoch(GROUP)));
}

#[test]
fn a_member_keeps_its_state_only_as_the_same_process() {
    let (topology, [first, ..]) = three();
    let state = |of: &Topology| of.member(first.member).map(|of: &Member| of.state);
    assert_eq!(state(&topology), Some(MemberState::Serving));
    let same = change::join(&topology, joining(first)).expect("it joins");
    assert_eq!(state(&same), Some(MemberState::Serving));
    let again = change::join(&topology, joining(instance(1, 11))).expect("it joins");
    assert_eq!(state(&again), Some(MemberState::Joining));
    let draining = change::drain(&topology, first.member).expect("others may lead");
    let again = change::join(&draining, joining(instance(1, 11))).expect("it joins");
    assert_eq!(state(&again), Some(MemberState::Draining));
}
