//! The order of values.

use crate::generate::{decimal, pair, value};
use crate::naive;
use bson::{Bson, RawBson, bson};
use proptest::prelude::*;
use remora_document::compare;
use std::cmp::Ordering;

pub fn raw(value: &Bson) -> RawBson {
    value.clone().try_into().expect("a value without zero bytes in names")
}

fn order(left: &Bson, right: &Bson) -> Ordering {
    compare(raw(left).as_raw_bson_ref(), raw(right).as_raw_bson_ref())
}

#[test]
fn values_in_their_order() {
    let values = [
        Bson::MinKey,
        Bson::Undefined,
        Bson::Null,
        bson!(f64::NAN),
        bson!(f64::NEG_INFINITY),
        decimal("-1E+400"),
        bson!(i64::MIN),
        bson!(-1),
        decimal("-1E-400"),
        bson!(0),
        decimal("1E-400"),
        bson!(5e-324),
        decimal("0.1"),
        bson!(0.1),
        bson!(1),
        bson!(9007199254740992.0),
        bson!(9007199254740993i64),
        decimal("9007199254740993.5"),
        bson!(i64::MAX),
        bson!(9223372036854775808.0),
        bson!(f64::MAX),
        decimal("1.8E+308"),
        bson!(f64::INFINITY),
        bson!(""),
        bson!("a"),
        bson!("a\0"),
        bson!("b"),
        bson!({}),
        bson!({ "b": 0 }),
        bson!({ "b": 0, "a": 0 }),
        bson!({ "a": "" }),
        bson!([]),
        bson!([1]),
        bson!([1, 0]),
        bson!([2]),
        bson!(false),
        bson!(true),
        Bson::MaxKey,
    ];
    for (at, left) in values.iter().enumerate() {
        for (other_at, right) in values.iter().enumerate() {
            assert_eq!(order(left, right), at.cmp(&other_at), "{left} and {right}");
        }
    }
}

#[test]
fn equal_numbers_of_all_types() {
    let values = [bson!(12), bson!(12i64), bson!(12.0), decimal("12"), decimal("1.200E+1")];
    for left in &values {
        for right in &values {
            assert_eq!(order(left, right), Ordering::Equal, "{left} and {right}");
        }
    }
    assert_eq!(order(&bson!(-0.0), &decimal("0E-100")), Ordering::Equal);
    assert_eq!(order(&bson!(f64::NAN), &decimal("NaN")), Ordering::Equal);
    assert_eq!(order(&bson!(f64::INFINITY), &decimal("Infinity")), Ordering::Equal);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_order_is_the_naive_one((left, right) in pair()) {
        prop_assert_eq!(order(&left, &right), naive::compare(&left, &right));
        prop_assert_eq!(order(&right, &left), naive::compare(&left, &right).reverse());
    }

    #[test]
    fn a_value_equals_itself(value in value()) {
        prop_assert_eq!(order(&value, &value), Ordering::Equal);
    }
}
