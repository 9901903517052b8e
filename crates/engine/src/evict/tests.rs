//! The policy against sequences worked by hand and a naive model.

use super::*;
use remora_testing::Random;
use std::collections::HashMap;

const BYTES: usize = 80;
const TAKE: Verdict = Verdict::Take { bytes: BYTES };
const SPARE: Verdict = Verdict::Spare { bytes: BYTES };

fn id(number: u32) -> Id {
    Id { slot: number * 2, generation: 1 }
}

fn policy() -> Policy {
    Policy::new(1 << 16)
}

/// Inserts records of fresh keys.
fn insert(policy: &mut Policy, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        policy.inserted(id(number), BYTES, spread(number));
    }
}

/// Takes victims, remembered where they should be.
fn evict(policy: &mut Policy, count: usize) -> Vec<u32> {
    let take = |policy: &mut Policy| {
        let victim = policy.victim(|_| TAKE).expect("there are records");
        if victim.came_from_small {
            policy.remember(spread(victim.id.slot / 2));
        }
        victim.id.slot / 2
    };
    (0..count).map(|_| take(policy)).collect()
}

fn spread(number: u32) -> u64 {
    let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[test]
fn untouched_records_go_in_the_order_in_which_they_came() {
    let mut policy = policy();
    insert(&mut policy, 0..10);
    assert_eq!(evict(&mut policy, 10), (0..10).collect::<Vec<_>>());
    assert_eq!(policy.victim(|_| TAKE), None);
    assert_eq!(policy.records(), 0);
}

#[test]
fn one_touch_moves_a_record_to_main_and_the_touches_are_counted_down() {
    let mut policy = policy();
    insert(&mut policy, 0..5);
    // 0 and 3 pass into main; the small queue is above its tenth throughout.
    policy.touched(0);
    policy.touched(3 * 2);
    assert_eq!(evict(&mut policy, 3), [1, 2, 4]);
    // Main holds 0, 3. A touch there is a second life, not a third.
    policy.touched(0);
    assert_eq!(evict(&mut policy, 2), [3, 0]);
}

#[test]
fn main_gives_a_round_for_each_touch() {
    let mut policy = policy();
    insert(&mut policy, 0..3);
    (0..3).for_each(|number| policy.touched(number * 2));
    // One new record, untouched, of four: it is more than a tenth, and is evicted.
    insert(&mut policy, [9]);
    assert_eq!(evict(&mut policy, 1), [9]);
    // Main: 0, 1, 2. Two touches for 0, one for 1, none for 2.
    [0, 0, 1].iter().for_each(|number| policy.touched(number * 2));
    assert_eq!(evict(&mut policy, 3), [2, 1, 0]);
}

#[test]
fn what_comes_back_soon_goes_to_main() {
    let mut policy = policy();
    insert(&mut policy, 0..40);
    (0..30).for_each(|number| policy.touched(number * 2));
    // 0 to 29 pass into main, 30 and 31 go and are remembered.
    assert_eq!(evict(&mut policy, 2), [30, 31]);
    // 30 is known; 90 is not, and 32 to 39 are before it.
    insert(&mut policy, [30, 90]);
    assert_eq!(evict(&mut policy, 6), [32, 33, 34, 35, 36, 37]);
    // Three of 34 are in small, less than a tenth: main gives until they are more.
    assert_eq!(evict(&mut policy, 5), [0, 1, 2, 3, 38]);
}

#[test]
fn an_update_keeps_what_was_earned() {
    let mut policy = policy();
    insert(&mut policy, 0..4);
    policy.touched(0);
    assert_eq!(evict(&mut policy, 1), [1], "0 has passed into main");
    policy.replaced(0, BYTES, id(50), BYTES);
    assert_eq!(policy.touches(id(50).slot), 1, "a write is a touch");
    // 2 and 3 in small; the entry of 0 is stale and is dropped when met.
    let gone = |candidate: Id| match candidate.slot {
        0 => Verdict::Gone,
        _ => TAKE,
    };
    let order: Vec<u32> = (0..3).map(|_| policy.victim(gone).unwrap().id.slot / 2).collect();
    assert_eq!(order, [2, 3, 50]);
}

#[test]
fn a_spared_record_stays_and_the_search_ends() {
    let mut policy = policy();
    insert(&mut policy, [7]);
    assert_eq!(policy.victim(|_| SPARE), None, "nothing else is there");
    assert_eq!(policy.records(), 1);
    insert(&mut policy, [8]);
    let spare = |candidate: Id| if candidate == id(7) { SPARE } else { TAKE };
    assert_eq!(policy.victim(spare).unwrap().id, id(8));
}

#[test]
fn a_victim_is_found_within_the_looks_however_much_was_touched() {
    let mut policy = policy();
    insert(&mut policy, 0..10_000);
    (0..10_000).for_each(|number| (0..3).for_each(|_| policy.touched(number * 2)));
    let looks = std::cell::Cell::new(0);
    let count = |_: Id| {
        looks.set(looks.get() + 1);
        TAKE
    };
    assert!(policy.victim(count).is_some());
    assert_eq!(looks.get(), VICTIM_LOOKS + 1);
}

#[test]
fn the_small_queue_is_a_tenth_of_the_bytes() {
    let mut policy = policy();
    let bytes_of = |id: Id| if id.slot < 20 { 80 } else { 8 * 80 };
    let take = |id: Id| Verdict::Take { bytes: bytes_of(id) };
    // Nine small records reach main; one as long as eight of them comes.
    (0..10).for_each(|number| policy.inserted(id(number), 80, spread(number)));
    (0..9).for_each(|number| policy.touched(number * 2));
    assert_eq!(policy.victim(take).map(|victim| victim.id), Some(id(9)));
    policy.inserted(id(10), 640, spread(10));
    policy.inserted(id(11), 640, spread(11));
    // Two records of eleven, but 16 bytes of 25: both go before any of main.
    let order: Vec<u32> = (0..3).map(|_| policy.victim(take).unwrap().id.slot / 2).collect();
    assert_eq!(order, [10, 11, 0]);
    assert_eq!((policy.small.bytes, policy.main.bytes), (0, 8 * 80));
}

#[test]
fn a_moved_record_keeps_what_it_has_earned() {
    let mut policy = policy();
    insert(&mut policy, 0..3);
    policy.touched(2);
    policy.moved(2, BYTES, id(40), 2 * BYTES);
    assert_eq!(policy.touches(id(40).slot), 1);
    assert!(!policy.tracks(2) && policy.tracks(id(40).slot) && policy.is_small(id(40).slot));
    assert_eq!((policy.small.live, policy.small.bytes), (3, 4 * BYTES as u64));
    policy.moved(id(50).slot, BYTES, id(51), BYTES);
    assert!(!policy.tracks(id(51).slot), "who is not known is not after a move either");
}

#[test]
fn a_number_within_another_record_is_not_asked_about() {
    let mut policy = policy();
    // A record at 6, gone; then one at 7, in a page of another class.
    policy.inserted(Id { slot: 6, generation: 1 }, BYTES, 1);
    policy.removed(6, BYTES);
    policy.inserted(Id { slot: 7, generation: 9 }, BYTES, 2);
    let judge = |candidate: Id| {
        assert_eq!(candidate.slot, 7);
        TAKE
    };
    assert_eq!(policy.victim(judge).unwrap().id, Id { slot: 7, generation: 9 });
}

#[test]
fn a_flush_forgets_all() {
    let mut policy = policy();
    insert(&mut policy, 0..4);
    policy.clear();
    assert_eq!(policy.records(), 0);
    policy.removed(0, BYTES);
    policy.touched(0);
    assert_eq!(policy.touches(0), 0, "what is not known is not touched");
}

/// S3-FIFO as a child would write it: two lists, eagerly kept.
#[derive(Default)]
struct Naive {
    small: Vec<Id>,
    main: Vec<Id>,
    touches: HashMap<u32, u8>,
    ghost: Ghost,
}

impl Naive {
    fn insert(&mut self, new: Id, hash: u64) {
        self.touches.insert(new.slot, 0);
        match self.ghost.forget(hash) {
            true => self.main.push(new),
            false => self.small.push(new),
        }
    }

    /// An update is a use, and the record keeps its queue.
    fn replace(&mut self, slot: u32, new: Id) {
        let touches = (self.touches[&slot] + 1).min(3);
        self.touches.insert(new.slot, touches);
        match self.remove(slot) {
            true => self.small.push(new),
            false => self.main.push(new),
        }
    }

    fn remove(&mut self, slot: u32) -> bool {
        let was_small = self.small.iter().any(|id| id.slot == slot);
        self.small.retain(|id| id.slot != slot);
        self.main.retain(|id| id.slot != slot);
        was_small
    }

    fn victim(&mut self) -> Option<Id> {
        for look in 0.. {
            let (small, main) = (self.small.len(), self.main.len());
            if small + main == 0 {
                break;
            }
            let tired = look >= VICTIM_LOOKS;
            let from_small = small > 0 && (main == 0 || small * 10 >= small + main);
            let id = if from_small { self.small.remove(0) } else { self.main.remove(0) };
            let touches = self.touches[&id.slot];
            if touches == 0 || tired {
                if from_small {
                    let records = self.small.len() + self.main.len();
                    self.ghost.remember(spread(id.slot / 2), records);
                }
                return Some(id);
            }
            self.touches.insert(id.slot, if from_small { 0 } else { touches - 1 });
            self.main.push(id);
        }
        None
    }
}

#[test]
fn long_random_histories_agree_with_the_naive_model() {
    const RECORDS: u64 = 600;
    for seed in 1..=4u64 {
        let (mut policy, mut naive) = (policy(), Naive::default());
        let mut live: HashMap<u32, u32> = HashMap::new();
        let mut random = Random::new(seed);
        let (mut evicted, mut largest) = (0, 0);
        for step in 0..40_000u32 {
            let draw = random.bits();
            let number = (draw >> 20) % RECORDS;
            // Some are asked for far more often than others.
            let number = (number * number / RECORDS) as u32;
            let slot = number * 2;
            let is_live = live.contains_key(&slot);
            match draw % 10 {
                0..=2 if !is_live => {
                    let new = Id { slot, generation: step };
                    live.insert(slot, step);
                    policy.inserted(new, BYTES, spread(number));
                    naive.insert(new, spread(number));
                }
                0..=6 if is_live => {
                    policy.touched(slot);
                    naive.touches.entry(slot).and_modify(|count| *count = (*count + 1).min(3));
                }
                7 if is_live => {
                    // An update into a slot that is free.
                    let to = (0..).map(|at| RECORDS as u32 * 2 + at * 2);
                    let to = to.into_iter().find(|to| !live.contains_key(to)).unwrap();
                    let new = Id { slot: to, generation: step };
                    policy.replaced(slot, BYTES, new, BYTES);
                    naive.replace(slot, new);
                    live.remove(&slot);
                    live.insert(to, step);
                }
                8 if is_live => {
                    policy.removed(slot, BYTES);
                    naive.remove(slot);
                    live.remove(&slot);
                }
                9 => {
                    let judge = |id: Id| match live.get(&id.slot) == Some(&id.generation) {
                        true => TAKE,
                        false => Verdict::Gone,
                    };
                    let victim = policy.victim(judge);
                    assert_eq!(victim.map(|victim| victim.id), naive.victim(), "step {step}");
                    if let Some(victim) = victim {
                        if victim.came_from_small {
                            policy.remember(spread(victim.id.slot / 2));
                        }
                        live.remove(&victim.id.slot);
                        evicted += 1;
                    }
                }
                _ => {}
            }
            policy.tidy(|id| live.get(&id.slot) == Some(&id.generation));
            assert_eq!(policy.small.live as usize, naive.small.len());
            assert_eq!(policy.main.live as usize, naive.main.len());
            largest = largest.max(policy.small.entries.len() + policy.main.entries.len());
        }
        assert!(evicted > 1_000, "{evicted}");
        assert!(largest < 4 * RECORDS as usize, "stale entries are swept: {largest}");
    }
}

#[test]
fn updates_without_end_take_no_more_memory() {
    let mut policy = policy();
    insert(&mut policy, 0..1_000);
    let mut current: Vec<u32> = vec![1; 1_000];
    let mut largest = 0;
    for round in 2..400u32 {
        for number in 0..1_000u32 {
            current[number as usize] = round;
            let new = Id { slot: number * 2, generation: round };
            policy.replaced(number * 2, BYTES, new, BYTES);
            policy.tidy(|id| current[id.slot as usize / 2] == id.generation);
        }
        largest = largest.max(policy.heap_bytes());
    }
    // Marks for 2^16 slots, and at most four entries a record.
    assert!(largest < (1 << 14) + 4 * 8 * 1_000, "{largest}");
}

#[test]
fn a_scan_does_not_push_out_what_is_used() {
    // 900 hot records among a scan of 50 000, each asked for once, in a cache of 1000.
    let mut policy = policy();
    let mut hot: Vec<bool> = vec![true; 900];
    insert(&mut policy, 0..900);
    (0..900).for_each(|number| policy.touched(number * 2));
    for scanned in 0..50_000u32 {
        insert(&mut policy, [1_000 + scanned % 10_000]);
        if scanned >= 100 {
            let out = evict(&mut policy, 1)[0];
            if out < 900 {
                hot[out as usize] = false;
            }
        }
        // A tenth of the hot records is touched in each thousand.
        if scanned % 10 == 0 {
            policy.touched((scanned / 10 * 7 % 900) * 2);
        }
    }
    let kept = hot.iter().filter(|&&hot| hot).count();
    assert!(kept > 850, "{kept} of 900 are still there");
}
