//! Keys compare as the values do.

use crate::generate::{decimal, pair, value};
use crate::naive;
use crate::orders::raw;
use bson::raw::RawBsonRef;
use bson::{Bson, bson};
use proptest::prelude::*;
use remora_document::{Direction, Invalid, encode, encode_compound};

fn key(value: &Bson, direction: Direction) -> Vec<u8> {
    let mut key = Vec::new();
    encode(raw(value).as_raw_bson_ref(), direction, &mut key).expect("a valid value");
    key
}

fn ascending(value: &Bson) -> Vec<u8> {
    key(value, Direction::Ascending)
}

fn compound(values: &[(Bson, Direction)]) -> Vec<u8> {
    let raws: Vec<_> = values.iter().map(|(value, direction)| (raw(value), *direction)).collect();
    let mut key = Vec::new();
    let values = raws.iter().map(|(value, direction)| (value.as_raw_bson_ref(), *direction));
    encode_compound(values, &mut key).expect("valid values");
    key
}

#[test]
fn equal_numbers_have_one_key() {
    for all in [
        vec![bson!(1), bson!(1i64), bson!(1.0), decimal("1"), decimal("1.00")],
        vec![bson!(9007199254740993i64), decimal("9007199254740993")],
        vec![bson!(0), bson!(-0.0), decimal("-0E+9")],
        vec![bson!(0.5), decimal("0.50")],
    ] {
        for value in &all {
            assert_eq!(ascending(value), ascending(&all[0]), "{value}");
        }
    }
}

#[test]
fn the_bytes_are_those_of_the_text() {
    assert_eq!(ascending(&bson!(1)), [0x18, 4, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ascending(&bson!(0)), [0x18, 3]);
    assert_eq!(ascending(&bson!("a\0")), [0x20, b'a', 0, 0xff, 0, 1]);
    assert_eq!(ascending(&bson!({ "k": true })), [0x28, 0x48, b'k', 0, 1, 1, 0]);
    assert_eq!(ascending(&bson!([Bson::Null, []])), [0x30, 0x10, 0x30, 0, 0]);
    assert_eq!(key(&Bson::MaxKey, Direction::Descending), [0x0f]);
    assert_eq!(ascending(&decimal("0.1")).len(), 28);
}

#[test]
fn an_error_leaves_the_bytes() {
    let mut deep = bson!(1);
    for _ in 0..101 {
        deep = bson!([deep]);
    }
    let mut key = vec![7];
    let deep = raw(&deep);
    let values = [RawBsonRef::Null, deep.as_raw_bson_ref()];
    let values = values.map(|value| (value, Direction::Ascending));
    assert_eq!(encode_compound(values, &mut key), Err(Invalid::TooDeep));
    assert_eq!(key, [7]);
}

fn direction() -> impl Strategy<Value = Direction> {
    any::<bool>().prop_map(|up| if up { Direction::Ascending } else { Direction::Descending })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn keys_compare_as_values((left, right) in pair()) {
        let order = naive::compare(&left, &right);
        prop_assert_eq!(ascending(&left).cmp(&ascending(&right)), order);
        let descending = |value| key(value, Direction::Descending);
        prop_assert_eq!(descending(&left).cmp(&descending(&right)), order.reverse());
    }

    #[test]
    fn no_key_begins_another((left, right) in pair()) {
        let (left, right) = (ascending(&left), ascending(&right));
        prop_assert!(left == right || !left.starts_with(&right) && !right.starts_with(&left));
    }

    #[test]
    fn compounds_compare_as_lists(
        all in proptest::collection::vec((pair(), direction(), any::<bool>()), 1..4),
        rest in value(),
    ) {
        let mut order = std::cmp::Ordering::Equal;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for ((first, second), direction, is_same) in all {
            let second = if is_same { first.clone() } else { second };
            let own = naive::compare(&first, &second);
            let own = if direction == Direction::Descending { own.reverse() } else { own };
            order = order.then(own);
            left.push((first, direction));
            right.push((second, direction));
        }
        prop_assert_eq!(compound(&left).cmp(&compound(&right)), order);
        // A key with one more value is above, and begins with the key.
        let before = compound(&left);
        left.push((rest, Direction::Ascending));
        prop_assert!(compound(&left).starts_with(&before));
    }
}
