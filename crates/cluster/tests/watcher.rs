//! The elected watcher: whom it promotes, and when.

use crate::fixture::{GROUP, MS, ends, instance, joining, led_by_1, promoted, with_set};
use remora_cluster::NotByDisk;
use remora_cluster::coordinator::{self, Outcome, Refused, SessionState, Standing, Term};
use remora_cluster::led_epoch::LedEpoch;
use remora_cluster::message::{Message, Position};
use remora_cluster::topology::{Instance, MemberId, Topology, change};
use remora_cluster::watcher::{Action, Event, Notice, Reason, Watcher};
use remora_layout::limits::{FAILOVER_BACKOFF_MAX_MS, HEARTBEAT_MS, WITHDRAW_ALL_MS};
use std::sync::Arc;

struct Fixture {
    watcher: Watcher,
    now_ns: u64,
}

impl Fixture {
    /// The watcher of term 5.
    fn new(topology: &Topology, live: &[u64]) -> Self {
        let mut new = Self { watcher: Watcher::new(), now_ns: 90_000 * MS };
        new.connect();
        new.topology(topology);
        new.live(live);
        new
    }

    fn connect(&mut self) {
        self.hear(coordinator::Event::Session(SessionState::Connected));
        self.hear(coordinator::Event::Standing(Standing::Leads(Term(5))));
        assert_eq!(self.watcher.term(), Some(Term(5)));
    }

    fn give(&mut self, event: Event) -> Vec<Action> {
        let mut actions = self.watcher.handle(self.now_ns, event);
        actions.retain(|of| !matches!(of, Action::Say(_)));
        actions
    }

    fn hear(&mut self, event: coordinator::Event) -> Vec<Action> {
        self.give(Event::Coordinator(event))
    }

    fn topology(&mut self, topology: &Topology) -> Vec<Action> {
        self.hear(coordinator::Event::Topology(Arc::new(topology.clone())))
    }

    fn live(&mut self, live: &[u64]) -> Vec<Action> {
        let live = live.iter().map(|of| instance(*of)).collect();
        self.hear(coordinator::Event::Members(live))
    }

    fn wait_ms(&mut self, ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..ms / HEARTBEAT_MS {
            self.now_ns += HEARTBEAT_MS * MS;
            actions.extend(self.give(Event::Tick));
        }
        actions
    }

    fn answers(
        &mut self,
        from: Instance,
        (epoch, positions): (u64, Vec<Position>),
        led: Option<LedEpoch>,
    ) -> Vec<Action> {
        let message = Message::Withdrawn { group: GROUP, epoch, positions, led };
        self.give(Event::Message(from, message))
    }

    fn withdrawn(&mut self, from: u64, epoch: u64, positions: Vec<Position>) -> Vec<Action> {
        self.answers(instance(from), (epoch, positions), None)
    }
}

fn asked(actions: &[Action]) -> Vec<u64> {
    let of = |action: &Action| match action {
        Action::Send(to, Message::Withdraw { .. }) => Some(to.member.0),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

/// The new primary and its set, as they are proposed.
fn proposed(actions: &[Action]) -> Option<(u64, Vec<u64>)> {
    let of = |action: &Action| match action {
        Action::Propose(proposal) => {
            assert_eq!(proposal.term, Some(Term(5)));
            let group = proposal.topology.group(GROUP).unwrap();
            let set = group.in_sync.iter().map(|of| of.member.0).collect();
            Some((group.primary.unwrap().member.0, set))
        }
        _ => None,
    };
    actions.iter().find_map(of)
}

/// Received up to here, and applied up to there.
fn received(epoch: u64, sequence: u64, applied: u64) -> Vec<Position> {
    vec![Position { epoch, sequence, applied }]
}

#[test]
fn the_one_that_has_received_most_is_promoted_once_all_have_withdrawn() {
    let topology = led_by_1(&[2, 3]);
    let mut watcher = Fixture::new(&topology, &[1, 2, 3]);
    assert_eq!(watcher.wait_ms(100), []);
    let actions = [watcher.live(&[2, 3]), watcher.wait_ms(HEARTBEAT_MS)].concat();
    assert_eq!(asked(&actions), [2, 3]);
    let asks = Message::Withdraw { group: GROUP, epoch: 2, version: topology.version };
    assert!(actions.contains(&Action::Send(instance(2), asks)));
    assert_eq!(watcher.withdrawn(2, 2, received(1, 40, 38)), [], "nobody before all have answered");
    let actions = watcher.withdrawn(3, 2, received(1, 41, 38));
    assert_eq!(proposed(&actions), Some((3, vec![2])));
    // It is recorded, and the new primary is told.
    watcher.topology(&promoted(&topology, 3, &[2]));
    let begun = Message::Begun { group: GROUP, epoch: 2, is_released: false };
    assert_eq!(watcher.give(Event::Proposed(Outcome::Done)), [Action::Send(instance(3), begun)]);
    assert_eq!(watcher.wait_ms(1_000), []);
}

#[test]
fn nobody_is_promoted_that_has_not_withdrawn() {
    let mut watcher = Fixture::new(&led_by_1(&[2, 3]), &[2, 3]);
    let actions = watcher.wait_ms(10 * WITHDRAW_ALL_MS);
    assert_eq!(proposed(&actions), None);
    assert!(asked(&actions).len() > 20, "they are asked again");
    // One of them answers, and the other is left out.
    let actions = watcher.withdrawn(2, 2, ends(1, 40));
    assert_eq!(proposed(&actions), Some((2, vec![])));
}

#[test]
fn answers_of_another_epoch_or_group_do_not_count() {
    let mut watcher = Fixture::new(&led_by_1(&[2, 3]), &[2, 3]);
    watcher.wait_ms(2 * WITHDRAW_ALL_MS);
    assert_eq!(watcher.withdrawn(2, 1, ends(1, 40)), []);
    assert_eq!(watcher.withdrawn(2, 3, ends(1, 40)), []);
    let other = Message::Withdrawn {
        group: remora_cluster::topology::GroupId(2),
        epoch: 2,
        positions: ends(1, 40),
        led: None,
    };
    assert_eq!(watcher.give(Event::Message(instance(2), other)), []);
}

#[test]
fn a_laggard_is_never_promoted() {
    let topology = led_by_1(&[2]);
    let mut watcher = Fixture::new(&topology, &[3]);
    watcher.wait_ms(2 * WITHDRAW_ALL_MS);
    // It has received most, and is not in the recorded set.
    watcher.withdrawn(3, 2, ends(1, 99));
    // This one is in the set, and is not present any more.
    watcher.withdrawn(2, 2, ends(1, 40));
    let mut said = Vec::new();
    for _ in 0..200 {
        watcher.now_ns += HEARTBEAT_MS * MS;
        for action in watcher.watcher.handle(watcher.now_ns, Event::Tick) {
            match action {
                Action::Say(notice) => said.push(notice),
                action => assert_eq!(proposed(&[action]), None),
            }
        }
    }
    let why = NotByDisk::NotPresent(MemberId(1));
    assert_eq!(said, [Notice::Waits(GROUP, vec![], Some(why))], "it says so, once");
    // It is back.
    let actions = watcher.live(&[2, 3]);
    assert_eq!(proposed(&actions), Some((2, vec![])));
}

#[test]
fn an_instance_that_was_started_again_is_no_candidate() {
    let topology = led_by_1(&[2, 3]);
    let again = Instance { incarnation: 2, ..instance(3) };
    let topology = change::join(&topology, joining(again)).unwrap();
    let mut watcher = Fixture::new(&topology, &[]);
    watcher.hear(coordinator::Event::Members(vec![again]));
    let mut actions = watcher.answers(again, (2, ends(1, 99)), None);
    actions.extend(watcher.wait_ms(5 * WITHDRAW_ALL_MS));
    assert_eq!(proposed(&actions), None);
}

#[test]
fn a_member_that_would_need_a_copy_is_left_out() {
    let mut watcher = Fixture::new(&led_by_1(&[2, 3]), &[2, 3]);
    watcher.wait_ms(HEARTBEAT_MS);
    // By shard: each has received more of one, and member 3 has applied what member 2 lacks.
    let position = |sequence, applied| Position { epoch: 1, sequence, applied };
    watcher.withdrawn(2, 2, vec![position(50, 40), position(50, 40)]);
    let actions = watcher.withdrawn(3, 2, vec![position(30, 30), position(60, 60)]);
    assert_eq!(proposed(&actions), Some((2, vec![])));
}

#[test]
fn a_primary_that_is_back_before_anybody_has_withdrawn_leads_on() {
    let topology = led_by_1(&[2, 3]);
    let mut watcher = Fixture::new(&topology, &[2, 3]);
    watcher.wait_ms(HEARTBEAT_MS);
    assert_eq!(watcher.watcher.failovers().count(), 1);
    watcher.live(&[1, 2, 3]);
    assert_eq!(watcher.watcher.failovers().count(), 0);
    // Once one has, the old primary has no lease any more.
    watcher.live(&[2, 3]);
    watcher.withdrawn(2, 2, ends(1, 40));
    watcher.live(&[1, 2, 3]);
    let actions = watcher.withdrawn(3, 2, ends(1, 40));
    assert_eq!(proposed(&actions), Some((2, vec![3])), "of equal ones the first");
}

#[test]
fn what_was_known_before_a_gap_decides_nothing() {
    let topology = led_by_1(&[2, 3]);
    let mut watcher = Fixture::new(&topology, &[2, 3]);
    watcher.withdrawn(2, 2, ends(1, 40));
    watcher.hear(coordinator::Event::Session(SessionState::Suspended));
    assert_eq!(watcher.watcher.term(), None);
    assert_eq!(watcher.withdrawn(3, 2, ends(1, 40)), []);
    watcher.connect();
    let mut actions = watcher.topology(&topology);
    actions.extend(watcher.wait_ms(5 * WITHDRAW_ALL_MS));
    assert_eq!(actions, [], "it has not read who is present");
    // The primary is, and was all the time.
    let mut actions = watcher.live(&[1, 2, 3]);
    actions.extend(watcher.wait_ms(5 * WITHDRAW_ALL_MS));
    assert_eq!(actions, []);
}

#[test]
fn a_refused_promotion_is_decided_anew() {
    let topology = led_by_1(&[2, 3]);
    let mut watcher = Fixture::new(&topology, &[2, 3]);
    watcher.withdrawn(2, 2, ends(1, 40));
    assert_eq!(proposed(&watcher.withdrawn(3, 2, ends(1, 41))), Some((3, vec![2])));
    // The primary was there after all, and has dropped member 3 meanwhile.
    let mut actions = watcher.topology(&with_set(&topology, &[2]));
    actions.extend(watcher.give(Event::Proposed(Outcome::Refused(Refused::Outdated))));
    actions.extend(watcher.wait_ms(HEARTBEAT_MS));
    assert_eq!(proposed(&actions), Some((2, vec![])), "by the newer record");
    // A watcher that is none any more does nothing.
    watcher.give(Event::Proposed(Outcome::Refused(Refused::NotWatcher)));
    assert_eq!(watcher.wait_ms(1_000), []);
}

#[test]
fn an_epoch_that_has_begun_ends_the_failover() {
    let topology = led_by_1(&[2, 3]);
    let mut watcher = Fixture::new(&topology, &[2, 3]);
    watcher.withdrawn(2, 2, ends(1, 40));
    // Another watcher has promoted.
    watcher.topology(&promoted(&topology, 3, &[2]));
    assert_eq!(watcher.watcher.failovers().count(), 0);
    assert_eq!(watcher.withdrawn(3, 2, ends(1, 40)), []);
}

#[test]
fn a_wish_is_handed_over_and_nothing_is_waited_out() {
    let topology = led_by_1(&[2, 3]);
    let mut watcher = Fixture::new(&topology, &[1, 2, 3]);
    assert_eq!(watcher.give(Event::Promote(MemberId(1))), [], "it leads already");
    let hand_over = Message::HandOver { group: GROUP, epoch: 1 };
    let actions = watcher.give(Event::Promote(MemberId(3)));
    assert_eq!(actions, [Action::Send(instance(1), hand_over)]);
    let released = |epoch| Message::Released { group: GROUP, epoch, positions: ends(1, 40) };
    assert_eq!(watcher.give(Event::Message(instance(1), released(2))), []);
    let actions = watcher.give(Event::Message(instance(1), released(1)));
    let mut actions = [actions, watcher.wait_ms(HEARTBEAT_MS)].concat();
    assert_eq!(asked(&actions), [2, 3]);
    actions.clear();
    watcher.withdrawn(2, 2, ends(1, 40));
    let actions = watcher.withdrawn(3, 2, ends(1, 40));
    assert_eq!(proposed(&actions), Some((3, vec![1, 2])), "the primary of before stays in sync");
    watcher.topology(&promoted(&topology, 3, &[1, 2]));
    let begun = Message::Begun { group: GROUP, epoch: 2, is_released: true };
    assert_eq!(watcher.give(Event::Proposed(Outcome::Done)), [Action::Send(instance(3), begun)]);
}

#[test]
fn a_draining_primary_is_replaced_and_a_draining_replica_is_no_candidate() {
    let topology = led_by_1(&[2, 3]);
    let drained = change::drain(&topology, MemberId(1)).unwrap();
    let mut watcher = Fixture::new(&drained, &[1, 2, 3]);
    let hand_over = Message::HandOver { group: GROUP, epoch: 1 };
    assert!(watcher.wait_ms(100).contains(&Action::Send(instance(1), hand_over)));
    let drained = change::drain(&topology, MemberId(2)).unwrap();
    let mut watcher = Fixture::new(&drained, &[2, 3]);
    watcher.withdrawn(2, 2, ends(1, 99));
    assert_eq!(proposed(&watcher.withdrawn(3, 2, ends(1, 40))), Some((3, vec![])));
}

#[test]
fn a_group_without_a_primary_gets_its_first() {
    let mut topology = Topology::new(7, vec![(GROUP, "g".into(), 1)]).unwrap();
    for number in 1..=2 {
        topology = change::join(&topology, joining(instance(number))).unwrap();
    }
    let mut watcher = Fixture::new(&topology, &[]);
    assert_eq!(watcher.wait_ms(100), []);
    let actions = [watcher.live(&[1, 2]), watcher.wait_ms(HEARTBEAT_MS)].concat();
    assert_eq!(asked(&actions), [1, 2]);
    watcher.withdrawn(1, 1, ends(0, 0));
    assert_eq!(proposed(&watcher.withdrawn(2, 1, ends(0, 7))), Some((2, vec![])));
}

#[test]
fn a_watcher_stands_once() {
    let mut watcher = Fixture { watcher: Watcher::new(), now_ns: MS };
    assert_eq!(watcher.wait_ms(100), []);
    watcher.hear(coordinator::Event::Session(SessionState::Connected));
    assert_eq!(watcher.wait_ms(100), [Action::Stand]);
    watcher.give(Event::Stood(Outcome::NotSent));
    assert_eq!(watcher.wait_ms(100), [Action::Stand]);
    watcher.hear(coordinator::Event::Standing(Standing::Waits));
    watcher.give(Event::Stood(Outcome::Done));
    assert_eq!(watcher.wait_ms(100), []);
}

#[test]
fn a_drain_that_fails_is_tried_again_after_a_pause() {
    let drained = change::drain(&led_by_1(&[2, 3]), MemberId(1)).unwrap();
    let mut watcher = Fixture::new(&drained, &[1, 2, 3]);
    let tries = |watcher: &mut Fixture, ms: u64| {
        let mut tries = 0;
        for _ in 0..ms / HEARTBEAT_MS {
            watcher.now_ns += HEARTBEAT_MS * MS;
            for action in watcher.watcher.handle(watcher.now_ns, Event::Tick) {
                tries += usize::from(matches!(action, Action::Say(Notice::Begins(..))));
            }
        }
        tries
    };
    assert_eq!(tries(&mut watcher, 3_200), 1, "the second one, at once");
    let later = tries(&mut watcher, 60_000);
    assert!((5..20).contains(&later), "{later}: the primary never answers");
}

/// Of twelve promotions, each of whose primaries is gone so long after it, the times until the group
/// begins to fail over again, ms.
fn waits_of_a_group_whose_primaries_last(ms: u64) -> Vec<u64> {
    let mut topology = led_by_1(&[2, 3]);
    let mut watcher = Fixture::new(&topology, &[1, 2, 3]);
    let mut waits = Vec::new();
    for _ in 0..12 {
        let group = topology.group(GROUP).unwrap();
        let (primary, epoch) = (group.primary.unwrap().member.0, group.epoch + 1);
        watcher.wait_ms(ms);
        let others: Vec<u64> = (1..=3).filter(|of| *of != primary).collect();
        let gone_ns = watcher.now_ns;
        let mut actions = watcher.live(&others);
        while asked(&actions).is_empty() {
            actions = watcher.wait_ms(HEARTBEAT_MS);
        }
        waits.push((watcher.now_ns - gone_ns) / MS);
        watcher.withdrawn(others[0], epoch, ends(epoch - 1, 40));
        let proposed = proposed(&watcher.withdrawn(others[1], epoch, ends(epoch - 1, 40)));
        let (to, _) = proposed.unwrap();
        // The primary is back, and in sync again.
        let set: Vec<u64> = (1..=3).filter(|of| *of != to).collect();
        topology = with_set(&promoted(&topology, to, &[]), &set);
        watcher.topology(&topology);
        watcher.give(Event::Proposed(Outcome::Done));
        watcher.live(&[1, 2, 3]);
    }
    waits
}

#[test]
fn a_group_backs_off_if_its_primaries_end_at_once_and_not_if_they_have_led() {
    let waits = waits_of_a_group_whose_primaries_last(4_000);
    let is_at_once = waits.iter().all(|wait| *wait <= HEARTBEAT_MS);
    assert!(is_at_once, "a primary has led, and its group waits: {waits:?}");
    let waits = waits_of_a_group_whose_primaries_last(2 * HEARTBEAT_MS);
    assert!(waits.windows(2).all(|two| two[0] <= two[1]), "{waits:?}");
    let longest = FAILOVER_BACKOFF_MAX_MS - 2 * HEARTBEAT_MS;
    assert!((longest..=longest + HEARTBEAT_MS).contains(&waits[11]), "{waits:?}");
}

/// Member 1 has led epoch 1, and was started again as this instance.
fn restarted() -> (Topology, Instance) {
    let again = Instance { incarnation: 2, ..instance(1) };
    (change::join(&led_by_1(&[2, 3]), joining(again)).unwrap(), again)
}

/// Nobody but these is present.
fn only(topology: &Topology, live: &[Instance]) -> Fixture {
    let mut watcher = Fixture::new(topology, &[]);
    watcher.hear(coordinator::Event::Members(live.to_vec()));
    watcher.wait_ms(HEARTBEAT_MS);
    watcher
}

const LED: LedEpoch = LedEpoch { incarnation: 1, epoch: 1, is_durable: true };

/// The members of the set are gone. They may be there again as other instances, or never.
#[test]
fn a_primary_that_was_started_again_leads_if_its_disk_has_everything() {
    let (topology, again) = restarted();
    let mut watcher = only(&topology, &[again]);
    let actions = watcher.wait_ms(WITHDRAW_ALL_MS);
    assert!(asked(&actions).contains(&1), "it is asked: {actions:?}");
    let actions = watcher.answers(again, (2, Vec::new()), Some(LED));
    assert_eq!(proposed(&actions), Some((1, vec![])));
    let next = change::promote_restarted(&topology, GROUP, 1, again).unwrap();
    watcher.topology(&next);
    let begun = Message::Begun { group: GROUP, epoch: 2, is_released: false };
    assert_eq!(watcher.give(Event::Proposed(Outcome::Done)), [Action::Send(again, begun)]);
}

#[test]
fn no_disk_counts_but_that_of_the_process_that_led_this_epoch() {
    let (topology, again) = restarted();
    let waits = |led: Option<LedEpoch>| {
        let mut watcher = only(&topology, &[again]);
        let mut actions = watcher.answers(again, (2, ends(1, 99)), led);
        actions.extend(watcher.wait_ms(2_000));
        assert_eq!(proposed(&actions), None, "{led:?}");
        let waits: Vec<_> = watcher.watcher.waits().map(|(_, notice)| notice.clone()).collect();
        let [Notice::Waits(GROUP, missing, Some(why))] = &waits[..] else { panic!("{waits:?}") };
        assert_eq!(missing, &[instance(2), instance(3)]);
        *why
    };
    assert_eq!(waits(None), NotByDisk::SaysNothing(again));
    let of_another_process = LedEpoch { incarnation: 9, ..LED };
    assert_eq!(waits(Some(of_another_process)), NotByDisk::SaysNothing(again));
    let of_another_epoch = LedEpoch { epoch: 2, ..LED };
    assert_eq!(waits(Some(of_another_epoch)), NotByDisk::SaysNothing(again));
    let not_durable = LedEpoch { is_durable: false, ..LED };
    assert_eq!(waits(Some(not_durable)), NotByDisk::NotDurable(again));
}

/// The disks of replicas may lack what they had in memory only.
#[test]
fn replicas_that_were_started_again_are_not_promoted_by_their_disks() {
    let replica = Instance { incarnation: 2, ..instance(2) };
    let topology = change::join(&led_by_1(&[2]), joining(replica)).unwrap();
    let mut watcher = only(&topology, &[replica]);
    let led = LedEpoch { incarnation: 1, epoch: 1, is_durable: true };
    let mut actions = watcher.answers(replica, (2, ends(1, 99)), Some(led));
    actions.extend(watcher.wait_ms(2_000));
    assert_eq!(proposed(&actions), None);
    let why = NotByDisk::NotPresent(MemberId(1));
    let waits = Notice::Waits(GROUP, vec![instance(2)], Some(why));
    assert!(watcher.watcher.waits().any(|(_, notice)| *notice == waits));
}

#[test]
fn memory_comes_before_the_disk() {
    let (topology, again) = restarted();
    let mut watcher = only(&topology, &[again, instance(3)]);
    let actions = watcher.answers(again, (2, Vec::new()), Some(LED));
    assert_eq!(proposed(&actions), None, "one that has everything in memory may answer");
    assert_eq!(proposed(&watcher.withdrawn(3, 2, ends(1, 40))), Some((3, vec![])));
    // One that is present and never answers does not hold the group up.
    let mut watcher = only(&topology, &[again, instance(3)]);
    let mut actions = watcher.answers(again, (2, Vec::new()), Some(LED));
    actions.extend(watcher.wait_ms(2 * WITHDRAW_ALL_MS));
    assert_eq!(proposed(&actions), Some((1, vec![])));
}

#[test]
fn a_drained_server_is_not_promoted_by_its_disk() {
    let (topology, again) = restarted();
    let topology = change::drain(&topology, again.member).unwrap();
    let mut watcher = only(&topology, &[again]);
    let mut actions = watcher.answers(again, (2, Vec::new()), Some(LED));
    actions.extend(watcher.wait_ms(2_000));
    assert_eq!(proposed(&actions), None);
    let waits = Some(NotByDisk::MayNotLead(again.member));
    let is_it = |notice: &Notice| matches!(notice, Notice::Waits(_, _, why) if *why == waits);
    assert!(watcher.watcher.waits().any(|(_, notice)| is_it(notice)));
}

/// A command asks again as long as it waits.
#[test]
fn a_wish_that_is_repeated_is_said_once_and_may_begin_anew() {
    let topology = led_by_1(&[2]);
    let mut watcher = Fixture::new(&topology, &[1, 2, 3]);
    let mut said = Vec::new();
    let mut ask = |watcher: &mut Fixture, member| {
        let actions = watcher.watcher.handle(watcher.now_ns, Event::Promote(MemberId(member)));
        said.extend(actions.into_iter().filter(|of| matches!(of, Action::Say(_))));
    };
    ask(&mut watcher, 3);
    ask(&mut watcher, 3);
    assert_eq!(watcher.watcher.refusals().map(|of| of.1).collect::<Vec<_>>(), [MemberId(3)]);
    // It is in the set by now.
    watcher.topology(&with_set(&topology, &[2, 3]));
    ask(&mut watcher, 3);
    ask(&mut watcher, 3);
    let (why, wish) =
        ("that member is not in the recorded in-sync set, or not present", MemberId(3));
    let says = [Notice::Refused(GROUP, why), Notice::Begins(GROUP, Reason::Asked(wish))];
    assert_eq!(said, says.map(Action::Say));
    assert_eq!(watcher.watcher.refusals().count(), 0);
    // The primary does not answer: what becomes of the wish is told until it is repeated.
    watcher.wait_ms(20_000);
    assert_eq!(watcher.watcher.failovers().count(), 0);
    assert_eq!(watcher.watcher.refusals().map(|of| of.1).collect::<Vec<_>>(), [wish]);
    let hand_over = Message::HandOver { group: GROUP, epoch: 1 };
    let actions = watcher.give(Event::Promote(wish));
    assert_eq!(actions, [Action::Send(instance(1), hand_over)]);
}

#[test]
fn only_members_that_are_present_are_asked_and_seldom_once_it_waits() {
    let mut watcher = Fixture::new(&led_by_1(&[2, 3]), &[]);
    assert_eq!(asked(&watcher.wait_ms(3_000)), [] as [u64; 0]);
    // One comes back, and is asked at once.
    assert_eq!(asked(&watcher.live(&[3])), [3]);
    let seldom = asked(&watcher.wait_ms(4_000));
    assert!((3..=5).contains(&seldom.len()), "{seldom:?}");
    let actions = watcher.withdrawn(3, 2, ends(1, 40));
    assert_eq!(proposed(&actions), Some((3, vec![])));
}

#[test]
fn answers_of_strangers_are_not_kept() {
    let mut watcher = Fixture::new(&led_by_1(&[2, 3]), &[]);
    watcher.wait_ms(100);
    let before = format!("{:?}", watcher.watcher).len();
    for stranger in 100..1_100 {
        watcher.withdrawn(stranger, 2, ends(1, 99));
    }
    assert_eq!(format!("{:?}", watcher.watcher).len(), before);
    // Those of one that leaves the group go, too.
    let topology = led_by_1(&[2]);
    let mut watcher = Fixture::new(&topology, &[]);
    watcher.wait_ms(100);
    let before = format!("{:?}", watcher.watcher);
    watcher.withdrawn(3, 2, ends(1, 99));
    assert_ne!(format!("{:?}", watcher.watcher), before);
    let left = change::leave(&topology, instance(3).member).unwrap();
    watcher.topology(&left);
    watcher.topology(&change::join(&left, joining(instance(3))).unwrap());
    assert!(!format!("{:?}", watcher.watcher).contains("sequence: 99"));
}

#[test]
fn a_draining_member_is_the_last_choice() {
    let topology = change::drain(&led_by_1(&[2, 3]), instance(3).member).unwrap();
    let mut watcher = Fixture::new(&topology, &[2, 3]);
    watcher.wait_ms(HEARTBEAT_MS);
    watcher.withdrawn(3, 2, ends(1, 60));
    let actions = watcher.withdrawn(2, 2, ends(1, 40));
    assert_eq!(proposed(&actions).map(|(to, _)| to), Some(2), "though it has received less");
    // Nobody else is left.
    let mut watcher = Fixture::new(&topology, &[3]);
    watcher.wait_ms(HEARTBEAT_MS);
    let actions = watcher.withdrawn(3, 2, ends(1, 60));
    assert_eq!(proposed(&actions), Some((3, vec![])));
}
