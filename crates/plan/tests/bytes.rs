//! The byte form: one for each plan, and no bytes make the decoder panic or take much memory.

use crate::generator::Names;
use remora_plan::bytes::{decode, encode};
use remora_plan::{Bytes, Condition, Objects, Outcome, Plan, Start, Step, Test};
use remora_testing::Random;

#[test]
fn what_is_encoded_is_decoded() {
    let mut random = Random::new(8);
    for number in 0..20_000 {
        let names = if number % 2 == 0 { Names::World } else { Names::Wild };
        let plan = names.plan(&mut random);
        assert_eq!(decode(&encode(&plan)), Some(plan));
    }
}

#[test]
fn mutated_bytes_are_refused_or_have_one_form() {
    let mut random = Random::new(9);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..60_000 {
        let names = random.pick(&[Names::World, Names::Wild]);
        let mut form = encode(&names.plan(&mut random));
        for _ in 0..random.within(1..4u8) {
            mutate(&mut form, &mut random);
        }
        match decode(&form) {
            None => bad += 1,
            Some(plan) => {
                good += 1;
                assert_eq!(encode(&plan), form, "{plan:?}");
                assert!(held(&plan) <= 64 * form.len(), "{} {}", held(&plan), form.len());
            }
        }
    }
    assert!(good > 3_000 && bad > 3_000, "{good} {bad}");
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random::new(10);
    for _ in 0..60_000 {
        let form = random.bytes_up_to(60);
        if let Some(plan) = decode(&form) {
            assert_eq!(encode(&plan), form);
        }
    }
    // Counts and lengths that the bytes behind them do not bear out.
    assert_eq!(decode(&[0, 0xff, 0xff, 0xff, 0xff]), None);
    assert_eq!(decode(&[0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 7]), None);
}

#[test]
fn outcomes_come_back_and_mutated_ones_take_no_more_than_their_bytes() {
    let mut random = Random::new(12);
    let (mut limits, mut refused) = (0, 0);
    for _ in 0..5_000 {
        let world = crate::world::World::random(&mut random);
        let plan = Names::World.plan(&mut random);
        let outcome = crate::driver::run(&world, &plan, &mut random);
        limits += u64::from(outcome.limit.is_some());
        let mut form = outcome.to_bytes();
        assert_eq!(Outcome::from_bytes(&form).as_ref(), Some(&outcome));
        assert_eq!(Outcome::from_bytes(&form[..form.len() - 1]), None);
        mutate(&mut form, &mut random);
        match Outcome::from_bytes(&form) {
            Some(outcome) => {
                let columns: usize = outcome.rows.iter().map(|row| row.len() + 1).sum();
                assert!(columns <= form.len());
            }
            None => refused += 1,
        }
    }
    assert!(limits > 100 && refused > 500, "{limits} {refused}");
}

#[test]
fn a_cut_form_is_none() {
    let mut random = Random::new(11);
    for _ in 0..500 {
        let form = encode(&Names::Wild.plan(&mut random));
        (0..form.len()).for_each(|length| assert_eq!(decode(&form[..length]), None));
    }
}

fn mutate(form: &mut Vec<u8>, random: &mut Random) {
    if form.is_empty() {
        return;
    }
    let at = random.below(form.len());
    match random.below(6u8) {
        0 => form[at] ^= 1 << random.below(8u32),
        1 => form[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
        2 => drop(form.remove(at)),
        3 => form.insert(at, random.below(0xffu32) as u8),
        4 => form.truncate(at),
        _ => {
            let end = (at + 4).min(form.len());
            form[at..end].fill(random.pick(&[0, 0xff]));
        }
    }
}

/// Bytes that a plan takes: what its lists and texts hold.
fn held(plan: &Plan) -> usize {
    let text = |text: &Bytes| 16 + text.len();
    let texts = |list: &[Bytes]| list.iter().map(|one| 16 + text(one)).sum::<usize>();
    let condition = |condition: &Condition| {
        let value = match &condition.test {
            Test::Is(_, value) => text(value),
            Test::Exists | Test::Missing => 0,
        };
        size_of::<Condition>() + text(&condition.field) + value
    };
    let objects = |objects: &Objects| {
        let conditions: usize = objects.conditions.iter().map(condition).sum();
        text(&objects.tree) + text(&objects.prefix) + conditions
    };
    let step = |step: &Step| {
        let inner = match step {
            Step::Follow { field, .. } | Step::Walk { via: field, .. } => text(field),
            Step::Where(tested) => condition(tested),
            Step::Get(fields) => texts(fields),
            _ => 0,
        };
        size_of::<Step>() + inner
    };
    let start = match plan.start() {
        Start::Keys(keys) => texts(keys),
        Start::List { key, .. } => text(key),
        Start::Window { objects: of, .. } | Start::Nearest { objects: of, .. } => objects(of),
    };
    start + plan.steps().iter().map(step).sum::<usize>()
}
