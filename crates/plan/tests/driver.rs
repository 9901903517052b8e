//! A driver that answers from a world, in random order.

use crate::world::{Thing, World};
use remora_plan::{
    Area, Bytes, Fields, Given, KeyRange, LinkAt, Object, Outcome, Place, Plan, Run, Value, Want,
};
use remora_testing::Random;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Runs a plan.
pub fn run(world: &World, plan: &Plan, random: &mut Random) -> Outcome {
    let mut run = Run::new(plan.clone(), 0, random.bits());
    while run.outcome().is_none() {
        batch(world, &mut run, random);
    }
    assert!(run.wants().is_empty(), "an ended run wants nothing");
    run.into_outcome().unwrap()
}

/// Answers one batch.
pub fn batch(world: &World, run: &mut Run, random: &mut Random) {
    let wants = run.wants().to_vec();
    assert!((1..=remora_plan::limits::BATCH_WANTS).contains(&wants.len()), "{}", wants.len());
    let mut left: Vec<_> = (0..wants.len()).collect();
    while !left.is_empty() {
        let number = left.swap_remove(random.below(left.len()));
        assert_eq!(run.wants(), wants, "a batch stays until it is answered");
        assert!(run.give(number, answer(world, &wants[number], random)));
        if !left.is_empty() && random.one_in(20) {
            assert!(!run.give(number, Given::Gone), "an answer counts once");
            assert!(!run.give(wants.len(), Given::Gone), "there is no such want");
        }
    }
}

/// What the world says to a want.
pub fn answer(world: &World, want: &Want, random: &mut Random) -> Given {
    match want {
        Want::Item { place, fields } => {
            check_link(world, place);
            item(world, place, fields, random)
        }
        Want::List { place, from, count } => {
            check_link(world, place);
            list(world, place, *from, *count)
        }
        Want::Entries { place, range, count } => {
            check_link(world, place);
            let entries = match world.things.get(&place.key) {
                None => return Given::Gone,
                Some(Thing::Ordered(entries)) => of_range(entries, range),
                Some(_) => return Given::OtherType,
            };
            let some: Vec<_> = entries.into_iter().take(*count as usize).collect();
            let goes_on = some.len() == *count as usize;
            Given::Entries { entries: some, goes_on }
        }
        // Worlds have no collections.
        Want::Documents { place, .. } => match world.things.get(&place.key) {
            None => Given::Gone,
            Some(_) => Given::OtherType,
        },
        Want::Objects { tree, area, fields, count, next } => {
            let found = objects(world, tree, area);
            let Some(found) = found else { return Given::Gone };
            let from: usize =
                next.as_ref().map_or(0, |next| std::str::from_utf8(next).unwrap().parse().unwrap());
            let piece = random.within(1..*count as usize + 1);
            piece_of(found, from, piece, fields, random)
        }
    }
}

/// A link that the run names is one of the world, with its hint.
fn check_link(world: &World, place: &Place) {
    let Some(link) = &place.link else { return assert_eq!(place.hint, None) };
    let value = match (&world.things[&link.key], &link.at) {
        (Thing::Hash(fields), LinkAt::Field(name)) => &fields[name],
        (Thing::List(elements), LinkAt::Element(at)) => &elements[*at as usize],
        other => panic!("no link stands there: {other:?}"),
    };
    assert_eq!(*value, Value::Link { key: place.key.clone(), hint: place.hint });
}

fn item(world: &World, place: &Place, wanted: &Fields, random: &mut Random) -> Given {
    let fields = match world.things.get(&place.key) {
        None => return Given::Gone,
        Some(Thing::List(_) | Thing::Ordered(_)) => return Given::OtherType,
        Some(Thing::Text(text)) => return Given::Text(text.clone()),
        Some(Thing::Hash(fields)) => fields.iter(),
    };
    let is_wanted = |name: &Bytes| match wanted {
        Fields::All => true,
        Fields::Some(names) => names.contains(name),
    };
    let fields = fields.filter(|(name, _)| is_wanted(name));
    let mut fields: Vec<_> = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    shuffle(&mut fields, random);
    Given::Hash(fields)
}

fn list(world: &World, place: &Place, from: i64, count: u32) -> Given {
    let elements = match world.things.get(&place.key) {
        None => return Given::Gone,
        Some(Thing::List(elements)) => elements,
        Some(_) => return Given::OtherType,
    };
    let total = elements.len() as i64;
    let from = if from < 0 { (total + from).max(0) } else { from };
    let wanted = elements.iter().skip(from as usize).take(count as usize);
    Given::List { elements: wanted.cloned().collect(), total: total as u64 }
}

/// The entries of a range, in the order that it says.
pub fn of_range(entries: &BTreeMap<Bytes, Value>, range: &KeyRange) -> Vec<(Bytes, Value)> {
    let is_from = |key: &Bytes| match &range.from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    };
    let is_to = |key: &Bytes| match &range.to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    };
    let is_in = |key: &Bytes| is_from(key) && is_to(key);
    let found = entries.iter().filter(|(key, _)| is_in(key));
    let mut found: Vec<_> = found.map(|(key, value)| (key.clone(), value.clone())).collect();
    if range.is_reverse {
        found.reverse();
    }
    found
}

/// The objects of an area, in the order of the area.
pub fn objects(
    world: &World,
    tree: &Bytes,
    area: &Area,
) -> Option<Vec<(Bytes, BTreeMap<Bytes, Bytes>)>> {
    let mut spots: Vec<_> = world.trees.get(tree)?.iter().collect();
    match *area {
        Area::Window(window) => {
            let is_in = |x: f64, y: f64| {
                (window.min_x..=window.max_x).contains(&x)
                    && (window.min_y..=window.max_y).contains(&y)
            };
            spots.retain(|spot| is_in(spot.x, spot.y));
        }
        Area::Nearest(x, y) => spots.sort_by(|one, other| {
            let distance = |spot: &crate::world::Spot| (spot.x - x).powi(2) + (spot.y - y).powi(2);
            distance(one).total_cmp(&distance(other)).then_with(|| one.id.cmp(&other.id))
        }),
    }
    Some(spots.into_iter().map(|spot| (spot.id.clone(), spot.fields.clone())).collect())
}

/// A piece of the objects; some come twice.
fn piece_of(
    found: Vec<(Bytes, BTreeMap<Bytes, Bytes>)>,
    from: usize,
    piece: usize,
    wanted: &[Bytes],
    random: &mut Random,
) -> Given {
    let to = (from + piece).min(found.len());
    let from = if from > 0 && to > from && random.one_in(4) { from - 1 } else { from };
    let object = |(id, fields): &(Bytes, BTreeMap<Bytes, Bytes>)| {
        let fields = fields.iter().filter(|(name, _)| wanted.contains(name));
        let fields = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        Object { id: id.clone(), fields }
    };
    let next = (to < found.len()).then(|| to.to_string().into_bytes().into());
    Given::Objects { objects: found[from..to].iter().map(object).collect(), next }
}

fn shuffle<T>(list: &mut [T], random: &mut Random) {
    for at in (1..list.len()).rev() {
        list.swap(at, random.below(at + 1));
    }
}
