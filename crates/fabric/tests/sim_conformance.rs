//! The conformance body on the simulated fabric, and its own behaviour: tears on purpose, any value
//! of an interval and no other, losses, repetition.

use remora_arena::{Mapping, Owner, Words};
use remora_fabric::conformance::{self, EchoFixture, TestFixture};
use remora_fabric::sim::{
    Random, SimCosts, SimHop, SimJournal, SimLink, SimOptions, SimStage, SimTarget, SimWorld,
};
use remora_fabric::{Completion, Link, LinkError, RemoteAddress, Waited, Work};

use std::sync::{Arc, Mutex};

/// With costs that are drawn, or stated.
struct BedOf<const STATED: bool> {
    world: SimWorld,
    target: SimTarget,
    owner: Owner<SimJournal>,
    mailbox: Words,
    /// The region of the initiator that the target writes.
    near: SimTarget,
    local: Words,
    link: SimLink,
}

type Fixture = BedOf<false>;

impl<const STATED: bool> TestFixture for BedOf<STATED> {
    type Link = SimLink;

    fn new(region_bytes: usize) -> Self {
        let world = SimWorld::new(SimOptions { seed: 7, ..SimOptions::default() });
        let target = SimTarget::new();
        let owner = target.arena(0, region_bytes);
        let mailbox = Words::new(Mapping::heap(region_bytes));
        target.mailbox(1, mailbox.clone());
        let near = SimTarget::new();
        let local = Words::new(Mapping::heap(64));
        near.mailbox(0, local.clone());
        let mut link = match STATED {
            true => SimLink::with_costs(&world, &target, Arc::new(costs())),
            false => SimLink::new(&world, &target),
        };
        link.listen(&near);
        link.reserve_landing(region_bytes);
        Self { world, target, owner, mailbox, near, local, link }
    }

    fn link(&mut self) -> &mut SimLink {
        &mut self.link
    }

    fn readable(&self) -> u32 {
        0
    }

    fn mailbox(&self) -> u32 {
        1
    }

    fn target_store(&mut self, offset: usize, bytes: &[u8]) {
        self.owner.store_bytes(offset, bytes);
    }

    fn target_load(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.mailbox.copy_out(offset, &mut content);
        content
    }

    fn withdraw(&mut self) {
        self.target.withdraw_all();
    }

    fn lose(&mut self) -> LinkError {
        self.link.lose();
        LinkError::Disconnected
    }

    fn immediates(&mut self) -> Vec<(u32, u64)> {
        let told = std::iter::from_fn(|| self.target.immediate());
        told.map(|(imm, _)| (imm, self.mailbox.load(imm as usize))).collect()
    }
}

/// The target of the echo, in virtual time: it looks at intervals, as a thread does that wakes
/// earlier or later.
struct Echo {
    world: SimWorld,
    target: SimTarget,
    mailbox: Words,
    back: SimLink,
    rounds: u64,
}

impl Echo {
    fn look(mut self) {
        while self.target.immediate().is_some() {
            let bytes = self.mailbox.load(0).to_le_bytes();
            let to = RemoteAddress { region: 0, offset: 0 };
            self.back.post(&[Work::Write { id: 0, to, bytes: &bytes, imm: None }]);
            self.rounds -= 1;
        }
        while self.back.poll().is_some() {}
        if self.rounds > 0 {
            let world = self.world.clone();
            let nap = world.draw(|random| random.within(&(1..=4_000)));
            world.schedule(nap, move || self.look());
        }
    }
}

impl EchoFixture for BedOf<false> {
    fn start_echo(&mut self, rounds: u64) {
        let (world, target) = (self.world.clone(), self.target.clone());
        let back = SimLink::new(&world, &self.near);
        Echo { world, target, mailbox: self.mailbox.clone(), back, rounds }.look();
    }

    fn echoed(&self) -> u64 {
        self.local.load(0)
    }

    fn stop_echo(&mut self) -> u64 {
        0
    }
}

/// A port and a wire. Both directions share each of them.
fn costs() -> SimCosts {
    let port = SimHop {
        stage: Some(SimStage::new()),
        read_ns: 40,
        write_ns: 60,
        after_ns: 700,
        ..SimHop::default()
    };
    let wire = SimHop { stage: Some(SimStage::new()), byte_ps: 90, ..SimHop::default() };
    let (there, back) = (vec![port.clone(), wire.clone()], vec![wire, port]);
    SimCosts { there, back, header_bytes: 72, reads_cost_peer_cpu: false }
}

#[test]
fn sim_conforms_with_stated_costs() {
    conformance::run::<BedOf<true>>();
}

/// A READ of 1,000 bytes alone: 40 + 700, 6 for 72 bytes on the wire, 96 for
/// 1,072, 40 + 700. Two at once: each stage serves one after the other.
#[test]
fn stated_costs_add_up_and_stages_are_shared() {
    let mut fixture = BedOf::<true>::new(4096);
    let read = |id| {
        let from = RemoteAddress { region: 0, offset: 0 };
        Work::Read { id, from, into: 0, bytes: 1_000 }
    };
    fixture.link.post(&[read(1)]);
    assert_eq!(fixture.link.wait(None), Waited::Completed);
    assert_eq!((fixture.link.poll().unwrap().id, fixture.world.now_ns()), (1, 1_582));
    fixture.link.post(&[read(2), read(3)]);
    assert_eq!(fixture.link.wait(None), Waited::Completed);
    assert_eq!((fixture.link.poll().unwrap().id, fixture.world.now_ns()), (2, 1_582 * 2));
    assert_eq!(fixture.link.wait(None), Waited::Completed);
    // Its request too waits for the first one's bytes on the wire, then takes 6.
    assert_eq!((fixture.link.poll().unwrap().id, fixture.world.now_ns()), (3, 1_582 * 2 + 96 + 6));
}

#[test]
fn sim_conforms() {
    conformance::run::<Fixture>();
}

#[test]
fn no_wake_up_is_lost() {
    assert_eq!(conformance::wake_ups_are_not_lost::<Fixture>(20_000), 0);
}

/// Virtual time is exact: a wait ends exactly at its timeout. An event before that ends it at the
/// moment of the event.
#[test]
fn a_wait_ends_when_something_comes_or_at_its_end() {
    let mut fixture = Fixture::new(4096);
    let rounds = 5_000;
    fixture.start_echo(rounds);
    let mut random = Random::new(3);
    let (mut in_time, mut timed_out) = (0, 0);
    for round in 1..=rounds {
        let to = RemoteAddress { region: 1, offset: 0 };
        let bytes = round.to_le_bytes();
        fixture.link.post(&[Work::Write { id: round, to, bytes: &bytes, imm: Some(1) }]);
        let mut is_open = true;
        while fixture.echoed() < round || is_open {
            let begun = fixture.world.now_ns();
            let nap = random.below(3_000);
            let arrived = fixture.near.arrivals();
            match fixture.link.wait(Some(std::time::Duration::from_nanos(nap))) {
                Waited::Completed => {
                    let done = Completion { id: round, result: Ok(()) };
                    assert_eq!(fixture.link.poll(), Some(done));
                    is_open = false;
                    in_time += 1;
                }
                Waited::Arrived => in_time += 1,
                Waited::TimedOut => {
                    assert_eq!(fixture.world.now_ns(), begun + nap);
                    assert_eq!(fixture.near.arrivals(), arrived, "it came, and did not wake");
                    timed_out += 1;
                }
                Waited::Failed(reason) => panic!("{reason}"),
            }
            assert!(fixture.world.now_ns() <= begun + nap, "it slept too long");
            assert!(fixture.world.now_ns() < round * 100_000, "no answer in round {round}");
        }
    }
    assert!(in_time > rounds && timed_out > rounds, "{in_time} {timed_out}");
}

const WORDS: usize = 16;

fn read(id: u64) -> Work<'static> {
    let from = RemoteAddress { region: 0, offset: 0 };
    Work::Read { id, from, into: 0, bytes: WORDS * 8 }
}

fn words_of(link: &SimLink) -> Vec<u64> {
    let bytes = link.landed(0, WORDS * 8).chunks_exact(8);
    bytes.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

struct Writer {
    world: SimWorld,
    target: SimTarget,
    owner: Arc<Mutex<Owner<SimJournal>>>,
    journal: SimJournal,
}

fn writer(options: SimOptions) -> Writer {
    let world = SimWorld::new(options);
    let target = SimTarget::new();
    let journal = SimJournal::new();
    let owner = Owner::heap(WORDS * 8, journal.clone());
    target.expose(0, owner.view().clone(), journal.clone());
    Writer { world, target, owner: Arc::new(Mutex::new(owner)), journal }
}

/// A writer changes all words at once, forwards, while a READ is under way. READs show mixtures in
/// both directions, also against the order of the stores. Without tears they show only whole
/// prefixes of the stores.
#[test]
fn a_torn_write_is_seen_torn() {
    for tear_ppm in [1_000_000, 0] {
        let (mut new_first, mut old_first, mut whole, mut prefixes) = (0, 0, 0, 0);
        for seed in 0..400 {
            let it = writer(SimOptions { seed, tear_ppm, ..SimOptions::default() });
            it.owner.lock().unwrap().store_bytes(0, &[0x11; WORDS * 8]);
            let mut link = SimLink::new(&it.world, &it.target);
            link.reserve_landing(WORDS * 8);
            let owner = Arc::clone(&it.owner);
            it.world
                .schedule(2_000, move || owner.lock().unwrap().store_bytes(0, &[0x22; WORDS * 8]));
            link.post(&[read(1)]);
            assert_eq!(link.wait(None), Waited::Completed);
            assert_eq!(link.poll(), Some(Completion { id: 1, result: Ok(()) }));
            let is_new: Vec<bool> =
                words_of(&link).iter().map(|word| *word == u64::from_le_bytes([0x22; 8])).collect();
            let news = is_new.iter().filter(|is_new| **is_new).count();
            prefixes += is_new[..news].iter().all(|is_new| *is_new) as u32;
            whole += (news == 0 || news == WORDS) as u32;
            new_first += (is_new[0] && !is_new[WORDS - 1]) as u32;
            old_first += (!is_new[0] && is_new[WORDS - 1]) as u32;
        }
        assert!(whole > 50, "READs before and after the stores are whole: {whole}");
        if tear_ppm == 0 {
            assert_eq!((prefixes, old_first), (400, 0));
        } else {
            assert!(new_first > 10 && old_first > 10, "{new_first} {old_first}");
        }
    }
}

/// A random history. Returns a hash of all results, and how often a READ showed two words that
/// never existed at the same time.
fn random_history(seed: u64) -> (u64, u32) {
    let it = writer(SimOptions { seed, ..SimOptions::default() });
    let mut random = Random::new(seed ^ 0xabcd);
    // When each word held each value: (from, until).
    type Held = Vec<(u64, u64, u64)>;
    let held: Arc<Mutex<Vec<Held>>> = Arc::new(Mutex::new(vec![vec![(0, 0, u64::MAX)]; WORDS]));
    let mut at = 0;
    for value in 1..600u64 {
        at += random.below(150);
        let word = random.below(WORDS as u64) as usize;
        let (owner, held) = (Arc::clone(&it.owner), Arc::clone(&held));
        let world = it.world.clone();
        it.world.schedule(at, move || {
            owner.lock().unwrap().store(word, value);
            let held = &mut held.lock().unwrap()[word];
            held.last_mut().unwrap().2 = world.now_ns();
            held.push((value, world.now_ns(), u64::MAX));
        });
    }
    let mut link = SimLink::new(&it.world, &it.target);
    link.reserve_landing(WORDS * 8);
    let (mut hash, mut torn, mut last) = (seed, 0, vec![0; WORDS]);
    for id in 0..40 {
        let posted = it.world.now_ns();
        link.post(&[read(id)]);
        while link.poll().is_none() {
            assert_eq!(link.wait(None), Waited::Completed);
        }
        let completed = it.world.now_ns();
        let (mut together_from, mut together_until) = (0, u64::MAX);
        for (word, value) in words_of(&link).into_iter().enumerate() {
            let held = &held.lock().unwrap()[word];
            let (_, from, until) = *held
                .iter()
                .find(|(known, ..)| *known == value)
                .expect("a value that the word never held");
            assert!(from <= completed && until >= posted, "not in the interval");
            assert!(value >= last[word], "older than an earlier READ");
            last[word] = value;
            together_from = together_from.max(from);
            together_until = together_until.min(until);
            hash = (hash ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        hash ^= completed;
        torn += (together_from > together_until) as u32;
        assert_eq!(it.journal.kept(), 0, "nothing is under way, nothing is kept");
    }
    (hash, torn)
}

#[test]
fn reads_show_only_what_was_there_and_a_seed_repeats_itself() {
    let mut torn = 0;
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let (hash, torn_here) = random_history(seed);
        assert_eq!(random_history(seed).0, hash, "seed {seed} does not repeat itself");
        torn += torn_here;
        hashes.insert(hash);
    }
    assert_eq!(hashes.len(), 100);
    assert!(torn > 100, "mixtures that never stood in memory occur: {torn}");
}

/// WRITEs become visible word by word, in any order.
#[test]
fn a_write_is_seen_half_done() {
    let (mut tail_first, mut head_first) = (0, 0);
    for seed in 0..200 {
        let world = SimWorld::new(SimOptions { seed, ..SimOptions::default() });
        let target = SimTarget::new();
        let mailbox = Words::new(Mapping::heap(WORDS * 8));
        target.mailbox(1, mailbox.clone());
        let mut link = SimLink::new(&world, &target);
        let to = RemoteAddress { region: 1, offset: 0 };
        link.post(&[Work::Write { id: 1, to, bytes: &[1; WORDS * 8], imm: Some(9) }]);
        while world.step(u64::MAX) {
            let words = [mailbox.load(0) != 0, mailbox.load(WORDS - 1) != 0];
            head_first += (words == [true, false]) as u32;
            tail_first += (words == [false, true]) as u32;
            if target.arrivals() == 1 {
                assert_eq!(words, [true, true], "told before the bytes were there");
            }
        }
        assert_eq!(target.immediate().map(|(imm, _)| imm), Some(9));
    }
    assert!(head_first > 10 && tail_first > 10, "{head_first} {tail_first}");
}

/// Links are lost by chance and on schedule. Each operation ends once and in order, the successful
/// ones first.
#[test]
fn a_lost_link_fails_all_that_is_under_way() {
    let mut split = 0;
    for seed in 0..200 {
        let chance = seed % 2 == 0;
        let loss_ppm = if chance { 30_000 } else { 0 };
        let it = writer(SimOptions { seed, loss_ppm, ..SimOptions::default() });
        let mut link = SimLink::new(&it.world, &it.target);
        link.reserve_landing(WORDS * 8);
        if !chance {
            it.world.schedule(1_000 + seed * 300, link.loser());
        }
        let batch: Vec<_> = (0..50).map(read).collect();
        link.post(&batch);
        let mut failed = 0;
        for id in 0..50 {
            let completion = loop {
                if let Some(completion) = link.poll() {
                    break completion;
                }
                assert_ne!(link.wait(None), Waited::TimedOut, "one never ended");
            };
            assert_eq!(completion.id, id);
            match completion.result {
                Ok(()) => assert_eq!(failed, 0, "a success behind a failure"),
                Err(reason) => {
                    assert_eq!(reason, LinkError::Disconnected);
                    failed += 1;
                }
            }
        }
        assert_eq!(link.poll(), None);
        split += (failed > 0 && failed < 50) as u32;
        // The remaining events have no effect.
        while it.world.step(u64::MAX) {}
        assert_eq!(it.journal.kept(), 0);
    }
    assert!(split > 50, "{split}");
}

#[test]
fn what_the_peer_writes_ends_a_wait() {
    let world = SimWorld::new(SimOptions::default());
    let [near, far] = [(); 2].map(|()| SimTarget::new());
    near.mailbox(0, Words::new(Mapping::heap(64)));
    let mut here = SimLink::new(&world, &far);
    here.listen(&near);
    let mut there = SimLink::new(&world, &near);
    let nap = std::time::Duration::from_nanos(10);
    assert_eq!(here.wait(Some(nap)), Waited::TimedOut);
    assert_eq!(world.now_ns(), 10);
    let to = RemoteAddress { region: 0, offset: 0 };
    there.post(&[Work::Write { id: 1, to, bytes: &[1], imm: None }]);
    assert_eq!(here.wait(None), Waited::Arrived);
    assert_eq!(here.wait(None), Waited::TimedOut, "once, and then nothing more can come");
}
