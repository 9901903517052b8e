//! One member: what it refuses, and in which order it does things.

use crate::fixture::{GROUP, MS, ends, instance, joining, led_by_1, promoted, with_set};
use remora_cluster::ReplicaStanding;
use remora_cluster::coordinator::{self, Outcome, Refused, SessionState};
use remora_cluster::lease::{FENCE_WAIT_NS, LEASE_TERM_NS, LeaseAsk, READERS_WAIT_NS};
use remora_cluster::member::{Action, Event, Member, Notice, Part};
use remora_cluster::message::Message;
use remora_cluster::topology::{Instance, Topology, change};
use remora_layout::limits::{
    HEARTBEAT_MS, LEAD_AGAIN_MS, RELEASED_TIMEOUT_MS, RETURN_BACKOFF_MS, SILENT_REPLICA_MS,
};
use std::sync::Arc;

struct Fixture {
    member: Member,
    now_ns: u64,
    /// These confirm each lease at once.
    confirm: Vec<Instance>,
    /// It has asked for its presence.
    has_entered: bool,
}

impl Fixture {
    /// This member, as the topology makes it.
    fn new(number: u64, topology: &Topology) -> Self {
        let member = Member::new(joining(instance(number)));
        let mut new = Self { member, now_ns: 50_000 * MS, confirm: Vec::new(), has_entered: false };
        new.give(Event::Coordinator(coordinator::Event::Session(SessionState::Connected)));
        new.topology(topology);
        new
    }

    /// Member 1, which leads epoch 1 and serves.
    fn primary(in_sync: &[u64]) -> Self {
        let mut new = Self::new(1, &led_by_1(&[]));
        new.confirm = (2..=3).map(instance).collect();
        new.give(Event::Ready(1));
        new.wait_ms(2 * HEARTBEAT_MS);
        new.topology(&led_by_1(in_sync));
        new.wait_ms(2 * HEARTBEAT_MS);
        assert_eq!(new.part(), Part::Serves(1));
        new
    }

    /// All but what is said, and requests for presence.
    fn give(&mut self, event: Event) -> Vec<Action> {
        let mut actions = self.member.handle(self.now_ns, event);
        self.has_entered |= actions.iter().any(|of| matches!(of, Action::Enter(_)));
        actions.retain(|of| !matches!(of, Action::Say(_) | Action::Enter(_)));
        if let Some(epoch) = actions.iter().find_map(|of| match of {
            Action::Withdraw(epoch) => Some(*epoch),
            _ => None,
        }) {
            let positions = Some(ends(1, 10));
            actions.extend(self.give(Event::Withdrawn { epoch, positions, led: None }));
        }
        let asks: Vec<_> = actions
            .iter()
            .filter_map(|of| match of {
                Action::Send(to, Message::AskLease(ask)) => Some((*to, *ask)),
                _ => None,
            })
            .collect();
        for (from, ask) in asks {
            if !self.confirm.contains(&from) {
                continue;
            }
            self.give(Event::Message(from, Message::ConfirmLease(ask)));
        }
        actions.retain(|of| !matches!(of, Action::Send(_, Message::AskLease(_))));
        actions
    }

    fn topology(&mut self, topology: &Topology) -> Vec<Action> {
        let topology = Arc::new(topology.clone());
        self.give(Event::Coordinator(coordinator::Event::Topology(topology)))
    }

    fn withdraw(&mut self, epoch: u64, version: u64) -> Vec<Action> {
        self.give(Event::Message(instance(9), Message::Withdraw { group: GROUP, epoch, version }))
    }

    /// Ticks for so long.
    fn wait_ms(&mut self, ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..ms / HEARTBEAT_MS {
            self.now_ns += HEARTBEAT_MS * MS;
            actions.extend(self.give(Event::Tick));
        }
        actions
    }

    /// Whether it has asked for its presence since this was called last.
    fn enters(&mut self) -> bool {
        std::mem::take(&mut self.has_entered)
    }

    fn part(&mut self) -> Part {
        self.member.part(self.now_ns)
    }

    fn confirms(&mut self, from: u64, epoch: u64) -> bool {
        let ask = LeaseAsk { epoch, round: 0, clock_ns: 5 };
        let answer = self.give(Event::Message(instance(from), Message::AskLease(ask)));
        answer.contains(&Action::Send(instance(from), Message::ConfirmLease(ask)))
    }
}

fn proposals(actions: &[Action]) -> Vec<Vec<Instance>> {
    let of = |action: &Action| match action {
        Action::Propose(next) => Some(next.group(GROUP).unwrap().in_sync.clone()),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn waits_for(actions: &[Action]) -> Option<Vec<Instance>> {
    let of = |action: &Action| match action {
        Action::Require(required) => Some(required.wait_for.clone()),
        _ => None,
    };
    actions.iter().filter_map(of).next_back()
}

#[test]
fn a_follower_confirms_the_lease_of_its_primary_and_of_its_epoch_only() {
    let topology = promoted(&led_by_1(&[2, 3]), 2, &[3]);
    let mut member = Fixture::new(3, &topology);
    assert_eq!(member.part(), Part::Follows(instance(2), 2));
    assert!(member.confirms(2, 2));
    assert!(!member.confirms(2, 1) && !member.confirms(2, 3) && !member.confirms(1, 2));
    assert!(!member.confirms(1, 1), "the primary of before");
}

#[test]
fn a_member_that_has_withdrawn_takes_no_part_in_the_old_epoch() {
    let topology = led_by_1(&[2, 3]);
    let mut member = Fixture::new(2, &topology);
    assert!(member.confirms(1, 1));
    let actions = member.withdraw(2, topology.version);
    let positions = ends(1, 10);
    let answer = Message::Withdrawn { group: GROUP, epoch: 2, positions, led: None };
    let expected = [Action::Hold, Action::Withdraw(2), Action::Send(instance(9), answer)];
    assert_eq!(actions, expected);
    assert!(!member.confirms(1, 1), "the lease of the old primary ends");
    // The primary records something else meanwhile: the member is in the set still.
    let later = with_set(&topology, &[2]);
    assert_eq!(member.topology(&later), []);
    assert_eq!(member.part(), Part::Holds);
    assert!(!member.confirms(1, 1));
    // Out of the set it cannot be elected any more.
    let later = with_set(&later, &[3]);
    assert_eq!(member.topology(&later), [Action::Follow(instance(1))]);
    assert_eq!(member.part(), Part::Follows(instance(1), 1));
    assert!(member.confirms(1, 1));
}

#[test]
fn a_topology_from_before_the_withdrawal_lets_nobody_take_part_again() {
    let old = led_by_1(&[3]);
    let mut member = Fixture::new(2, &old);
    member.withdraw(2, old.version + 1);
    member.topology(&old);
    assert_eq!(member.part(), Part::Holds, "by a newer one it is in the set");
}

#[test]
fn a_late_message_of_a_watcher_holds_nobody_that_is_out_of_the_set() {
    let before = led_by_1(&[2, 3]);
    let mut member = Fixture::new(2, &before);
    let after = with_set(&before, &[3]);
    member.topology(&after);
    assert_eq!(member.withdraw(2, before.version), [], "it cannot be elected any more");
    assert!(member.confirms(1, 1));
    assert!(member.withdraw(2, after.version).contains(&Action::Withdraw(2)));
    // In the set it may be elected by any version.
    let mut member = Fixture::new(3, &before);
    member.topology(&after);
    assert!(member.withdraw(2, before.version).contains(&Action::Withdraw(2)));
}

#[test]
fn a_watcher_of_an_epoch_that_has_begun_is_ignored() {
    let topology = promoted(&led_by_1(&[2, 3]), 2, &[3]);
    let mut member = Fixture::new(3, &topology);
    assert_eq!(member.withdraw(2, topology.version), []);
    assert_eq!(member.withdraw(1, topology.version), []);
    assert_eq!(member.part(), Part::Follows(instance(2), 2));
    assert!(member.withdraw(3, topology.version).contains(&Action::Withdraw(3)));
    assert_eq!(member.withdraw(2, topology.version), []);
}

#[test]
fn a_promoted_member_waits_from_its_own_withdrawal() {
    let topology = led_by_1(&[2, 3]);
    let mut member = Fixture::new(2, &topology);
    member.confirm = vec![instance(3)];
    member.withdraw(2, topology.version);
    member.wait_ms(50);
    // The watcher asks again: that begins no new wait.
    member.withdraw(2, topology.version);
    let actions = member.topology(&promoted(&topology, 2, &[3]));
    assert!(actions.contains(&Action::Prepare(2)) && !actions.contains(&Action::Withdraw(2)));
    member.give(Event::Ready(2));
    let rest_ms = FENCE_WAIT_NS / MS - 50;
    assert!(!member.wait_ms(rest_ms - HEARTBEAT_MS).contains(&Action::Serve(2)));
    assert_eq!(member.part(), Part::Waits(2));
    assert!(member.wait_ms(HEARTBEAT_MS).contains(&Action::Serve(2)));
    assert_eq!(member.part(), Part::Serves(2));
}

#[test]
fn a_promoted_member_that_nobody_asked_withdraws_first() {
    let topology = led_by_1(&[2, 3]);
    let mut member = Fixture::new(2, &topology);
    let actions = member.topology(&promoted(&topology, 2, &[]));
    let withdraws = actions.iter().position(|of| *of == Action::Withdraw(2)).unwrap();
    assert!(actions[withdraws..].contains(&Action::Prepare(2)));
    member.give(Event::Ready(2));
    assert!(!member.wait_ms(FENCE_WAIT_NS / MS - HEARTBEAT_MS).contains(&Action::Serve(2)));
    assert!(member.wait_ms(2 * HEARTBEAT_MS).contains(&Action::Serve(2)));
}

#[test]
fn a_promoted_member_does_not_serve_before_it_is_ready() {
    let topology = led_by_1(&[2, 3]);
    let mut member = Fixture::new(2, &topology);
    member.topology(&promoted(&topology, 2, &[]));
    member.give(Event::Ready(1));
    assert!(!member.wait_ms(2 * FENCE_WAIT_NS / MS).contains(&Action::Serve(2)));
    member.give(Event::Ready(2));
    assert!(member.wait_ms(HEARTBEAT_MS).contains(&Action::Serve(2)));
}

#[test]
fn what_was_released_is_not_waited_out() {
    let topology = led_by_1(&[2, 3]);
    let begun = Message::Begun { group: GROUP, epoch: 2, is_released: true };
    for is_told_first in [true, false] {
        let mut member = Fixture::new(2, &topology);
        member.withdraw(2, topology.version);
        if is_told_first {
            member.give(Event::Message(instance(9), begun.clone()));
        }
        member.topology(&promoted(&topology, 2, &[]));
        if !is_told_first {
            member.give(Event::Message(instance(9), begun.clone()));
        }
        member.give(Event::Ready(2));
        assert!(member.wait_ms(HEARTBEAT_MS).contains(&Action::Serve(2)));
    }
    // What was released is another epoch.
    let mut member = Fixture::new(2, &topology);
    member.withdraw(2, topology.version);
    let other = Message::Begun { group: GROUP, epoch: 3, is_released: true };
    member.give(Event::Message(instance(9), other));
    member.topology(&promoted(&topology, 2, &[]));
    member.give(Event::Ready(2));
    assert!(!member.wait_ms(HEARTBEAT_MS).contains(&Action::Serve(2)));
}

#[test]
fn a_restarted_process_resumes_nothing() {
    let topology = led_by_1(&[]);
    let again = Instance { incarnation: 2, ..instance(1) };
    let mut member = Member::new(joining(again));
    let connected = coordinator::Event::Session(SessionState::Connected);
    member.handle(MS, Event::Coordinator(connected));
    let topology = coordinator::Event::Topology(Arc::new(topology));
    let mut actions = member.handle(MS, Event::Coordinator(topology));
    actions.extend(member.handle(11 * MS, Event::Tick));
    let proposes = |of: &Action| matches!(of, Action::Propose(_));
    assert!(!actions.iter().any(proposes), "the process of before may be there still");
    member.handle(12 * MS, Event::Entered(again, Outcome::Done));
    actions.extend(member.handle(21 * MS, Event::Tick));
    assert_eq!(member.part(21 * MS), Part::Holds);
    let takes_part = |of: &Action| matches!(of, Action::Prepare(_) | Action::Follow(_));
    assert!(!actions.iter().any(takes_part));
    let joins = |of: &Action| matches!(of, Action::Propose(next) if next.member(again.member).unwrap().incarnation == 2);
    assert!(actions.iter().any(joins), "it joins as another instance: {actions:?}");
}

#[test]
fn a_primary_serves_while_all_of_its_set_confirms() {
    let mut member = Fixture::primary(&[2, 3]);
    member.wait_ms(1_000);
    assert_eq!(member.part(), Part::Serves(1));
    assert!(member.member.serves(1, member.now_ns) && !member.member.serves(2, member.now_ns));
    assert!(member.member.serves_until_ns(member.now_ns) > member.now_ns);
    let alone = &mut Fixture::primary(&[]);
    let word_ns = alone.member.serves_until_ns(alone.now_ns);
    assert_eq!(word_ns, alone.now_ns + LEASE_TERM_NS, "another one may be in the set next");
    member.confirm = vec![instance(2)];
    member.wait_ms(LEASE_TERM_NS / MS - HEARTBEAT_MS);
    assert_eq!(member.part(), Part::Serves(1));
    member.wait_ms(2 * HEARTBEAT_MS);
    assert_eq!(member.part(), Part::Waits(1));
    assert_eq!(member.member.serves_until_ns(member.now_ns), 0);
}

#[test]
fn a_silent_replica_is_waited_for_until_the_record_has_left_it_out() {
    let mut member = Fixture::primary(&[2, 3]);
    member.confirm = vec![instance(2)];
    let mut actions = member.wait_ms(SILENT_REPLICA_MS + 2 * HEARTBEAT_MS);
    assert_eq!(proposals(&actions), [[instance(2)]]);
    actions.retain(|of| matches!(of, Action::Require(_)));
    let both = vec![instance(2), instance(3)];
    let waited: Vec<_> =
        actions.iter().filter_map(|of| waits_for(std::slice::from_ref(of))).collect();
    assert!(waited.iter().all(|of| *of == both), "{waited:?}");
    assert_eq!(member.part(), Part::Waits(1));
    // It is recorded.
    let actions = member.topology(&with_set(&led_by_1(&[2, 3]), &[2]));
    assert_eq!(waits_for(&actions), Some(vec![instance(2)]));
    assert_eq!(member.part(), Part::Serves(1));
    // It comes back slowly.
    member.give(Event::Proposed(Outcome::Done));
    member.confirm = both.clone();
    member.give(Event::Replica(instance(3), ReplicaStanding::Joining));
    assert_eq!(waits_for(&member.wait_ms(RETURN_BACKOFF_MS - 2 * HEARTBEAT_MS)), None);
    let actions = member.wait_ms(3 * HEARTBEAT_MS);
    assert_eq!(waits_for(&actions), Some(both.clone()), "waited for before it is recorded");
    assert_eq!(proposals(&actions), Vec::<Vec<Instance>>::new());
    member.give(Event::Replica(instance(3), ReplicaStanding::InSync));
    assert_eq!(proposals(&member.wait_ms(HEARTBEAT_MS)), [both]);
}

#[test]
fn a_replica_that_was_silent_comes_back_though_its_standing_has_not_changed() {
    let mut member = Fixture::primary(&[2, 3]);
    member.give(Event::Replica(instance(3), ReplicaStanding::InSync));
    member.confirm = vec![instance(2)];
    let silent = member.wait_ms(SILENT_REPLICA_MS + 2 * HEARTBEAT_MS);
    assert_eq!(proposals(&silent), [[instance(2)]]);
    member.topology(&with_set(&led_by_1(&[2, 3]), &[2]));
    member.give(Event::Proposed(Outcome::Done));
    // It is heard again, and has kept up all the time: the shards have nothing new to say.
    let both = vec![instance(2), instance(3)];
    member.confirm = both.clone();
    let actions = member.wait_ms(RETURN_BACKOFF_MS + 2 * HEARTBEAT_MS);
    assert_eq!(waits_for(&actions), Some(both));
    assert!(proposals(&actions).is_empty(), "it may lack what was not waited for");
}

#[test]
fn nobody_knows_what_was_recorded_until_a_topology_tells() {
    let mut member = Fixture::primary(&[2]);
    member.give(Event::Replica(instance(3), ReplicaStanding::Joining));
    member.wait_ms(HEARTBEAT_MS);
    member.give(Event::Replica(instance(3), ReplicaStanding::InSync));
    let both = vec![instance(2), instance(3)];
    assert_eq!(proposals(&member.wait_ms(2 * HEARTBEAT_MS)), [both]);
    let session = |state| Event::Coordinator(coordinator::Event::Session(state));
    member.give(session(SessionState::Suspended));
    member.give(Event::Proposed(Outcome::Unknown));
    // It lags, and is waited for all the same: the record may have it.
    let lags = member.give(Event::Replica(instance(3), ReplicaStanding::Behind));
    assert_eq!(waits_for(&lags), None);
    member.give(session(SessionState::Connected));
    // Read at a server that may lag.
    assert_eq!(waits_for(&member.topology(&led_by_1(&[2]))), None);
    // So it records the set of before once more, to know.
    let actions = member.wait_ms(HEARTBEAT_MS);
    assert_eq!(proposals(&actions), [[instance(2)]]);
    assert_eq!(waits_for(&actions), None);
    let known = with_set(&led_by_1(&[2]), &[2]);
    assert_eq!(waits_for(&member.topology(&known)), Some(vec![instance(2)]));
}

#[test]
fn a_primary_ends_with_its_epoch() {
    let mut member = Fixture::primary(&[2]);
    let next = promoted(&led_by_1(&[2]), 2, &[]);
    let actions = member.topology(&next);
    assert_eq!(actions, [Action::Hold, Action::Follow(instance(2))]);
    assert!(!member.member.serves(1, member.now_ns));
    // An older topology comes late.
    assert_eq!(member.topology(&led_by_1(&[2])), []);
    assert_eq!(member.part(), Part::Follows(instance(2), 2));
}

#[test]
fn a_lost_session_ends_nothing() {
    let mut member = Fixture::primary(&[2]);
    let session = |state| Event::Coordinator(coordinator::Event::Session(state));
    for state in [SessionState::Suspended, SessionState::Lost, SessionState::Connected] {
        member.give(session(state));
        member.wait_ms(1_000);
        assert_eq!(member.part(), Part::Serves(1));
    }
    let actions = member.member.handle(member.now_ns, session(SessionState::Lost));
    assert_eq!(actions, []);
    member.member.handle(member.now_ns, session(SessionState::Connected));
    let actions = member.member.handle(member.now_ns, Event::Tick);
    assert!(actions.iter().any(|of| matches!(of, Action::Enter(_))), "it is present again");
}

#[test]
fn a_hand_over_ends_reads_then_changes_then_the_epoch() {
    let mut member = Fixture::primary(&[2]);
    let hand_over = |epoch| Event::Message(instance(9), Message::HandOver { group: GROUP, epoch });
    assert_eq!(member.give(hand_over(2)), [], "of another epoch");
    assert_eq!(member.give(hand_over(1)), [Action::StopEchoes(1)]);
    assert_eq!(member.give(hand_over(1)), [], "asked again");
    let actions = member.wait_ms(READERS_WAIT_NS / MS);
    assert!(!actions.contains(&Action::StopChanges(1)), "it counts from behind the last echo");
    assert_eq!(member.part(), Part::Serves(1), "it serves meanwhile");
    assert_eq!(member.give(Event::Drained { epoch: 1, positions: ends(1, 9) }), []);
    assert!(member.wait_ms(HEARTBEAT_MS).contains(&Action::StopChanges(1)));
    assert_eq!(member.give(Event::Drained { epoch: 2, positions: ends(1, 9) }), []);
    let actions = member.give(Event::Drained { epoch: 1, positions: ends(1, 12) });
    let released = Message::Released { group: GROUP, epoch: 1, positions: ends(1, 12) };
    assert_eq!(actions, [Action::Hold, Action::Send(instance(9), released)]);
    // It never leads that epoch again, whatever it reads.
    assert_eq!(member.topology(&with_set(&led_by_1(&[2]), &[2])), []);
    assert_eq!(member.part(), Part::Holds);
}

#[test]
fn a_primary_that_has_released_its_epoch_asks_to_lead_the_next_if_nobody_takes_it() {
    let mut member = Fixture::primary(&[2]);
    let hand_over = Message::HandOver { group: GROUP, epoch: 1 };
    member.give(Event::Message(instance(9), hand_over));
    member.wait_ms(READERS_WAIT_NS / MS + 2 * HEARTBEAT_MS);
    member.give(Event::Drained { epoch: 1, positions: ends(1, 12) });
    let takes_back = |actions: &[Action]| {
        let of = |action: &Action| match action {
            Action::Propose(next) => Some(next.group(GROUP).unwrap().clone()),
            _ => None,
        };
        actions.iter().find_map(of)
    };
    // The coordinator has no quorum.
    let session = |state| Event::Coordinator(coordinator::Event::Session(state));
    member.give(session(SessionState::Suspended));
    let actions = member.wait_ms(2 * RELEASED_TIMEOUT_MS);
    assert_eq!(actions, [], "it keeps what it has, and waits");
    member.give(session(SessionState::Connected));
    let next = takes_back(&member.wait_ms(2 * HEARTBEAT_MS)).expect("it asks to lead again");
    assert_eq!((next.epoch, next.primary), (2, Some(instance(1))));
    assert_eq!(next.in_sync, [instance(2)]);
    // It is recorded. Its former epoch was released, so that there is nothing to wait out.
    let topology = change::take_back(&led_by_1(&[2]), GROUP, (instance(1), 1)).unwrap();
    let actions = member.topology(&topology);
    assert!(actions.contains(&Action::Prepare(2)), "{actions:?}");
    member.give(Event::Ready(2));
    assert!(member.wait_ms(2 * HEARTBEAT_MS).contains(&Action::Serve(2)));
}

#[test]
fn a_hand_over_that_takes_too_long_is_given_up() {
    let mut member = Fixture::primary(&[2]);
    let hand_over = Message::HandOver { group: GROUP, epoch: 1 };
    member.give(Event::Message(instance(9), hand_over));
    assert!(member.wait_ms(2_000).contains(&Action::Serve(1)));
    assert_eq!(member.give(Event::Drained { epoch: 1, positions: ends(1, 12) }), []);
    assert_eq!(member.part(), Part::Serves(1));
}

#[test]
fn a_primary_that_is_cut_off_lets_the_others_go_on() {
    let present = |of: &[u64]| {
        let live = of.iter().map(|of| instance(*of)).collect();
        Event::Coordinator(coordinator::Event::Members(live))
    };
    // Both replicas are present: one of them can lead the other.
    let mut member = Fixture::primary(&[2, 3]);
    member.give(present(&[1, 2, 3]));
    member.confirm.clear();
    let actions = member.wait_ms(SILENT_REPLICA_MS + 2 * HEARTBEAT_MS);
    assert!(actions.contains(&Action::Leave) && proposals(&actions).is_empty(), "{actions:?}");
    // It still has everything, and nobody was promoted: it goes on.
    member.enters();
    let actions = member.wait_ms(RELEASED_TIMEOUT_MS - 2 * HEARTBEAT_MS);
    assert!(proposals(&actions).is_empty() && !member.enters(), "it leaves them the epoch");
    let actions = member.wait_ms(6 * HEARTBEAT_MS);
    assert!(member.enters(), "it is present again");
    assert_eq!(proposals(&actions), [[]]);
    // It is reached again while it has stepped aside.
    let mut member = Fixture::primary(&[2, 3]);
    member.give(present(&[1, 2, 3]));
    member.confirm.clear();
    member.wait_ms(SILENT_REPLICA_MS + 2 * HEARTBEAT_MS);
    member.confirm = vec![instance(2), instance(3)];
    member.enters();
    member.wait_ms(3 * HEARTBEAT_MS);
    assert!(member.enters() && member.part() == Part::Serves(1));
    // Only one is: it could do no better.
    let mut member = Fixture::primary(&[2, 3]);
    member.give(present(&[1, 2]));
    member.confirm.clear();
    let actions = member.wait_ms(SILENT_REPLICA_MS + 2 * HEARTBEAT_MS);
    assert!(!actions.contains(&Action::Leave));
    assert_eq!(proposals(&actions), [[]]);
}

#[test]
fn a_server_that_cannot_lead_keeps_its_data_and_tries_again_until_another_one_leads() {
    let topology = promoted(&led_by_1(&[2, 3]), 2, &[3]);
    let present = |of: &[u64]| {
        let live = of.iter().map(|of| instance(*of)).collect();
        Event::Coordinator(coordinator::Event::Members(live))
    };
    let fails = |epoch| Event::CannotLead(epoch, "no memory".into());
    let mut member = Fixture::new(2, &topology);
    member.give(present(&[2, 3]));
    assert_eq!(member.give(fails(1)), [], "of another epoch");
    assert_eq!(member.give(fails(2)), [Action::Leave], "a watcher may choose another one");
    member.enters();
    // Nobody confirms its lease. It proposes no set without those that could lead instead.
    let actions = member.wait_ms(LEAD_AGAIN_MS + HEARTBEAT_MS);
    let prepares =
        |actions: &[Action]| actions.iter().filter(|of| **of == Action::Prepare(2)).count();
    assert!(proposals(&actions).is_empty() && prepares(&actions) == 1, "{actions:?}");
    assert!(!member.enters());
    assert_eq!(member.give(fails(2)), []);
    assert_eq!(prepares(&member.wait_ms(LEAD_AGAIN_MS + HEARTBEAT_MS)), 1);
    assert_eq!(member.give(Event::Applied(2)), []);
    assert_eq!(proposals(&member.wait_ms(2 * HEARTBEAT_MS)).len(), 1);
    assert!(member.enters(), "it may lead after all");
    // Another one is promoted.
    member.give(fails(2));
    let actions = member.topology(&promoted(&topology, 3, &[]));
    assert_eq!(actions, [Action::Hold, Action::Follow(instance(3))]);
    assert_eq!(member.part(), Part::Follows(instance(3), 3));
    member.wait_ms(HEARTBEAT_MS);
    assert!(member.enters());
}

#[test]
fn a_member_hears_of_an_epoch_and_asks_for_the_newest_topology() {
    let topology = led_by_1(&[2]);
    let mut member = Fixture::new(2, &topology);
    let ask = LeaseAsk { epoch: 2, round: 0, clock_ns: 5 };
    let asks = Event::Message(instance(3), Message::AskLease(ask));
    assert_eq!(member.give(asks.clone()), [Action::Refresh(topology.version)]);
    assert_eq!(member.give(asks), [], "not with each heartbeat");
    member.withdraw(2, topology.version);
    assert_eq!(
        member.wait_ms(500).iter().filter(|of| **of == Action::Refresh(topology.version)).count(),
        5
    );
}

#[test]
fn presence_is_asked_for_until_it_is_there() {
    let mut member = Member::new(joining(instance(2)));
    let session = |state| Event::Coordinator(coordinator::Event::Session(state));
    member.handle(MS, Event::Tick);
    member.handle(2 * MS, session(SessionState::Connected));
    let enters = |member: &mut Member, at_ms: u64| {
        member.handle(at_ms * MS, Event::Tick).iter().any(|of| matches!(of, Action::Enter(_)))
    };
    assert!(enters(&mut member, 3) && !enters(&mut member, 4));
    member.handle(5 * MS, Event::Entered(instance(2), Outcome::Refused(Refused::IsPresent)));
    let again = (1..40).filter(|at| enters(&mut member, at * 10)).count();
    assert!((3..5).contains(&again), "{again}");
    member.handle(400 * MS, Event::Entered(instance(2), Outcome::Done));
    assert!((41..80).all(|at| !enters(&mut member, at * 10)));
    // It is not there, by the word of the coordinator.
    let nobody = coordinator::Event::Members(vec![instance(1)]);
    member.handle(800 * MS, Event::Coordinator(nobody));
    assert!((81..100).any(|at| enters(&mut member, at * 10)));
}

fn said(member: &mut Member, now_ns: u64, event: Event) -> Vec<Notice> {
    let of = |action| match action {
        Action::Say(notice) => Some(notice),
        _ => None,
    };
    member.handle(now_ns, event).into_iter().filter_map(of).collect()
}

#[test]
fn a_member_that_was_removed_does_not_join_again_by_itself() {
    let topology = led_by_1(&[2]);
    let mut member = Fixture::new(3, &topology);
    member.give(Event::Entered(instance(3), Outcome::Done));
    member.wait_ms(100);
    let removed = change::leave(&topology, instance(3).member).unwrap();
    assert_eq!(member.topology(&removed), [Action::Hold, Action::Retire]);
    assert_eq!(member.part(), Part::Holds);
    // Nor is it present again, whatever it hears.
    let nobody = coordinator::Event::Members(Vec::new());
    member.give(Event::Coordinator(nobody));
    member.give(Event::Coordinator(coordinator::Event::Session(SessionState::Connected)));
    let actions = member.member.handle(member.now_ns, Event::Tick);
    assert_eq!(actions, []);
    assert_eq!(member.wait_ms(2_000), []);
    // A process that was started again joins.
    let mut again = Fixture::new(3, &removed);
    again.give(Event::Entered(instance(3), Outcome::Done));
    assert!(again.wait_ms(100).iter().any(|of| matches!(of, Action::Propose(_))));
}

#[test]
fn a_member_does_not_take_the_address_of_one_that_is_present() {
    let topology = led_by_1(&[2]);
    let mut joins = joining(instance(4));
    joins.resp_address.clone_from(&joining(instance(2)).resp_address);
    let mut member = Member::new(joins.clone());
    let tell = |of: coordinator::Event| Event::Coordinator(of);
    let present =
        |of: &[u64]| coordinator::Event::Members(of.iter().map(|of| instance(*of)).collect());
    member.handle(MS, tell(coordinator::Event::Session(SessionState::Connected)));
    member.handle(MS, Event::Entered(instance(4), Outcome::Done));
    member.handle(MS, tell(coordinator::Event::Topology(Arc::new(topology))));
    member.handle(MS, tell(present(&[1, 2, 3, 4])));
    let in_use = Notice::AddressInUse(instance(2).member, joins.resp_address);
    assert_eq!(said(&mut member, 10 * MS, Event::Tick), [in_use]);
    for at in 2..300 {
        assert_eq!(member.handle(at * 10 * MS, Event::Tick), [], "it says so once");
    }
    // The other one is gone: it was a process before this one.
    member.handle(3_000 * MS, tell(present(&[1, 3, 4])));
    let actions = member.handle(3_010 * MS, Event::Tick);
    let [Action::Propose(next)] = &actions[..] else { panic!("{actions:?}") };
    assert!(next.member(instance(4).member).is_some());
}

#[test]
fn a_member_says_once_why_it_is_not_admitted() {
    let mut joins = joining(instance(4));
    joins.resp_address = "no address".into();
    let mut member = Member::new(joins);
    let tell = |of: coordinator::Event| Event::Coordinator(of);
    member.handle(MS, tell(coordinator::Event::Session(SessionState::Connected)));
    member.handle(MS, Event::Entered(instance(4), Outcome::Done));
    member.handle(MS, tell(coordinator::Event::Topology(Arc::new(led_by_1(&[2])))));
    let notices = said(&mut member, 10 * MS, Event::Tick);
    assert!(matches!(notices[..], [Notice::NotAdmitted(_)]), "{notices:?}");
    assert_eq!(said(&mut member, 20 * MS, Event::Tick), []);
}
