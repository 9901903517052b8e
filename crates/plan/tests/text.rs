//! The text form: each plan is said by words that make the same plan; errors name the word and what
//! would be right.

use crate::generator::Names;
use crate::runs::plan;
use crate::world::bytes;
use remora_plan::text::{Query, TextError, parse, print};
use remora_plan::{BadPlan, Bytes, KeyRange, Plan, Range, Start, Step};
use remora_testing::Random;
use std::ops::Bound;

#[test]
fn what_is_printed_parses_as_the_same_plan() {
    let mut random = Random::new(6);
    for number in 0..30_000 {
        let names = if number % 3 == 0 { Names::World } else { Names::Wild };
        let query = Query { plan: names.plan(&mut random), explain: random.one_in(2) };
        let words = print(&query);
        assert_eq!(parse(&words), Ok(query), "{words:?}");
    }
}

#[test]
fn any_words_parse_or_are_refused_and_what_parses_is_printed_alike() {
    let mut random = Random::new(7);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..30_000 {
        let mut words = print(&Query { plan: Names::Wild.plan(&mut random), explain: false });
        for _ in 0..random.within(1..3u8) {
            let (at, other) = (random.below(words.len()), random.below(words.len()));
            match random.below(4u8) {
                0 => words[at] = random.bytes_up_to(5).into(),
                1 => words.swap(at, other),
                2 => drop(words.remove(at)),
                _ => words.insert(at, words[other].clone()),
            }
            if words.is_empty() {
                break;
            }
        }
        match parse(&words) {
            Err(_) => bad += 1,
            Ok(query) => {
                good += 1;
                assert_eq!(parse(&print(&query)), Ok(query), "{words:?}");
            }
        }
    }
    assert!(good > 2_000 && bad > 2_000, "{good} {bad}");
}

fn error(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    match parse(&words) {
        Err(error) => error.to_string(),
        Ok(query) => panic!("{words:?} is a plan: {query:?}"),
    }
}

#[test]
fn errors_say_which_word_is_wrong_and_what_would_be_right() {
    let step = "a step (FOLLOW, PATH, EACH, FIELDS, RANGE, FIND, WALK, SUFFIX, WHERE, GET, GETKEY, GETALL, GETLEVEL, \
                ONCE, SKIP, TAKE) or LIMIT";
    let after = |word: &str, expected: &str| format!("{word}: expected {expected}");
    let cases = [
        ("", "the plan ends behind word 0", "FROM or EXPLAIN"),
        ("KEYS 1 a", "word 1, 'KEYS'", "FROM or EXPLAIN"),
        ("EXPLAIN KEYS", "word 2, 'KEYS'", "FROM"),
        ("FROM", "the plan ends behind word 1", "KEYS, LIST, WINDOW or NEAREST"),
        ("FROM TREE", "word 2, 'TREE'", "KEYS, LIST, WINDOW or NEAREST"),
        ("FROM KEYS a", "word 3, 'a'", "a whole number from 0"),
        ("FROM KEYS -1 a", "word 3, '-1'", "a whole number from 0"),
        ("FROM KEYS 2 a", "the plan ends behind word 4", "a key"),
        ("FROM KEYS 99999999 a", "the plan ends behind word 4", "a key"),
        ("FROM KEYS 1 a b", "word 5, 'b'", step),
        ("FROM LIST l 0", "the plan ends behind word 4", "a whole number"),
        ("FROM LIST l 0 x", "word 5, 'x'", "a whole number"),
        ("FROM NEAREST t 1 inf 5", "word 5, 'inf'", "a finite number"),
        ("FROM WINDOW t 1 2 3 KEY", "word 7, 'KEY'", "a finite number"),
        ("FROM WINDOW t 1 2 3 4 KEY", "the plan ends behind word 8", "a prefix of keys"),
        ("FROM KEYS 1 a FOLLOW", "the plan ends behind word 5", "a field"),
        ("FROM KEYS 1 a PATH a..b", "word 6, 'a..b'", "fields with a dot between two of them"),
        ("FROM KEYS 1 a RANGE", "the plan ends behind word 5", {
            "a smallest key (KEY, [KEY, (KEY or -)"
        }),
        ("FROM KEYS 1 a RANGE a", "the plan ends behind word 6", {
            "a greatest key (KEY, [KEY, (KEY or +)"
        }),
        ("FROM KEYS 1 a RANGE - + COUNT x", "word 9, 'x'", "a whole number from 0"),
        ("FROM KEYS 1 a RANGE - + KEY REV", "word 9, 'REV'", step),
        ("FROM KEYS 1 a WALK f x", "word 7, 'x'", "a whole number from 0"),
        ("FROM KEYS 1 a WHERE f ~ 3", "word 7, '~'", "EXISTS, MISSING, =, !=, <, <=, > or >="),
        ("FROM KEYS 1 a WHERE f =", "the plan ends behind word 7", "a value to compare with"),
        ("FROM KEYS 1 a GET", "the plan ends behind word 5", {
            "a field (one that is called like a step has a \\ in front)"
        }),
        ("FROM KEYS 1 a GET take 5", "word 6, 'take'", {
            "a field (one that is called like a step has a \\ in front)"
        }),
        ("FROM KEYS 1 a TAKE +1", "word 6, '+1'", "a whole number from 0"),
        ("FROM KEYS 1 a LIMIT x", "word 6, 'x'", "VISITS, ROWS, BYTES, REMEMBERED or MS"),
        ("FROM KEYS 1 a GETKEY \x01\u{fc}", "word 6, '\\x01\\xc3\\xbc'", step),
    ];
    for (words, word, expected) in cases {
        assert_eq!(error(words), after(word, expected), "{words}");
    }
    let long = format!("FROM KEYS 1 a {}", "x".repeat(70));
    assert!(error(&long).starts_with(&format!("word 5, '{}...'", "x".repeat(64))));
}

#[test]
fn bounds_are_named() {
    let cases = [
        ("FROM KEYS 0", BadPlan::Keys),
        ("FROM KEYS 1 a WALK f 65", BadPlan::Depth),
        ("FROM KEYS 1 a WALK f 9999999999", BadPlan::Depth),
        ("FROM NEAREST t 0 0 0", BadPlan::Count),
        ("FROM WINDOW t 2 0 1 1", BadPlan::Window),
        ("FROM KEYS 1 a RANGE - + COUNT 0", BadPlan::Entries),
        ("FROM KEYS 1 a TAKE 0", BadPlan::Take),
        ("FROM KEYS 1 a LIMIT MS 60001", BadPlan::Time),
    ];
    for (words, bad) in cases {
        let words: Vec<&str> = words.split(' ').collect();
        assert_eq!(parse(&words), Err(TextError::Bad(bad)), "{words:?}");
    }
    assert_eq!(error("FROM KEYS 1 a WALK f 65"), "WALK goes 1 to 64 levels deep");
}

#[test]
fn a_range_has_the_bounds_of_its_words() {
    let range = |words: &str| match plan(&format!("FROM KEYS 1 a RANGE {words}")).steps() {
        [Step::Range(range)] => range.clone(),
        other => panic!("{other:?}"),
    };
    let all = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded, is_reverse: false };
    let plain = Range { keys: all, count: u64::MAX, with_keys: false, by_key: false };
    assert_eq!(range("- +"), plain);
    let keys = KeyRange {
        from: Bound::Excluded(bytes("a")),
        to: Bound::Included(bytes("(b")),
        is_reverse: true,
    };
    let expected = Range { keys, count: 7, with_keys: true, by_key: true };
    assert_eq!(range("(a [(b rev count 7 withkeys key"), expected);
    // An end at the other end: nothing lies between, as for BTREE.RANGE.
    for nothing in ["+ -", "+ +", "- -", "a -", "+ a"] {
        assert_eq!(range(nothing), range("(0 (0"), "{nothing}");
    }
    let keys = |from: Bound<Bytes>, to| KeyRange { from, to, is_reverse: false };
    let ends = [("", ""), ("-x", "+x"), ("[-", "[+")];
    for (from, to) in ends {
        let key = |word: &str| Bound::Included(bytes(word.trim_start_matches('[')));
        let words = ["FROM", "KEYS", "1", "a", "RANGE", from, to];
        let plan = parse(&words).unwrap().plan;
        let expected = Range { keys: keys(key(from), key(to)), ..plain.clone() };
        assert_eq!(plan.steps(), [Step::Range(expected)]);
    }
}

#[test]
fn a_find_has_a_filter_and_perhaps_a_number_of_documents() {
    let words = |words: &str| -> Vec<String> { words.split(' ').map(str::to_owned).collect() };
    for (text, count) in [("FIND {\"a\":1} COUNT 7", 7), ("FIND {\"a\":1}", u64::MAX)] {
        let asked = words(&format!("FROM KEYS 1 c {text} GET a"));
        let query = Query { plan: parse(&asked).unwrap().plan, explain: false };
        let Step::Find(find) = &query.plan.steps()[0] else { panic!("{text}") };
        assert_eq!((&*find.filter, find.count), (&b"{\"a\":1}"[..], count));
        let printed = print(&query).into_iter().map(|word| String::from_utf8(word.to_vec()));
        assert_eq!(printed.map(Result::unwrap).collect::<Vec<_>>(), asked);
        let form = remora_plan::bytes::encode(&query.plan);
        assert_eq!(remora_plan::bytes::decode(&form), Some(query.plan));
    }
    let none = words("FROM KEYS 1 c FIND {} COUNT 0");
    assert_eq!(parse(&none), Err(TextError::Bad(BadPlan::Documents)));
}

#[test]
fn case_does_not_matter_and_a_path_is_its_fields() {
    let one = plan("from keys 1 a path boss.zone key where n exists limit rows 5");
    let other = plan("FROM KEYS 1 a FOLLOW boss KEY FOLLOW zone KEY WHERE n EXISTS LIMIT ROWS 5");
    assert_eq!(one, other);
}

#[test]
fn conditions_belong_to_objects_until_the_prefix() {
    let parts = |plan: Plan| {
        let Start::Nearest { objects, .. } = plan.start() else { panic!("{plan:?}") };
        (objects.conditions.len(), objects.prefix.len(), plan.steps().len())
    };
    let start = "FROM NEAREST t 0 0 5 WHERE a = 1 WHERE b EXISTS";
    assert_eq!(parts(plan(start)), (2, 0, 0));
    assert_eq!(parts(plan(&format!("{start} KEY c: WHERE c < 3"))), (2, 2, 1));
    assert_eq!(parts(plan(&format!("{start} GETKEY WHERE c < 3"))), (2, 0, 2));
    let query = |words: &[&str]| parts(parse(words).unwrap().plan);
    assert_eq!(
        query(&["FROM", "NEAREST", "t", "0", "0", "5", "KEY", "", "WHERE", "c", "MISSING"]),
        (0, 0, 1)
    );
}

#[test]
fn a_field_called_like_a_step_has_a_backslash() {
    let plan = plan("FROM KEYS 1 a GET name \\GET \\\\x key TAKE 5");
    let Step::Get(fields) = &plan.steps()[0] else { panic!("{plan:?}") };
    let names: Vec<_> = fields.iter().map(|field| str::from_utf8(field).unwrap()).collect();
    assert_eq!(names, ["name", "GET", "\\x", "key"]);
}
