//! Elements in, questions and results out.

use super::*;

fn items(texts: &[&str]) -> Vec<u8> {
    let mut list = Vec::new();
    texts.iter().for_each(|text| Items::push(&mut list, text.as_bytes()));
    list
}

fn elements(texts: &[&str], is_ordered: bool) -> OwnedReply {
    let number = 2 * texts.len() as i64 + i64::from(is_ordered);
    OwnedReply { number, value: Some(items(texts)), ..OwnedReply::status(Status::Ok) }
}

/// Goes on to the result, or the error. The value of a key is `value_of` it and the field.
fn run(
    options: SortOptions,
    reply: OwnedReply,
    value_of: impl Fn(&str, Option<&str>) -> Option<String>,
) -> Result<Vec<Option<String>>, Status> {
    let mut sorting = Sorting::new(options);
    sorting.take_elements(reply).map_err(|reply| reply.status)?;
    loop {
        match sorting.turn()? {
            SortStep::Again => {}
            SortStep::Look { keys, field } => {
                assert!(!keys.is_empty() && keys.len() <= CONNECTION_KEYS_PER_TURN);
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let field = field.as_deref().map(text);
                let values: Vec<Option<String>> = keys
                    .iter()
                    .map(|key| value_of(&text(key.as_deref()?), field.as_deref()))
                    .collect();
                let values = values.iter().map(|value| value.as_deref().map(str::as_bytes));
                sorting.take_values(values)?;
            }
            SortStep::Done { items, count } => {
                let list = Items::parse(&items).unwrap();
                let told: Vec<_> = list
                    .iter()
                    .map(|item| item.map(|item| String::from_utf8(item.to_vec()).unwrap()))
                    .collect();
                assert_eq!(told.len() as u64, count);
                return Ok(told);
            }
        }
    }
}

/// The result where no other keys are named; nothing stands for null.
fn told(options: SortOptions, reply: OwnedReply) -> Result<Vec<String>, Status> {
    let told = run(options, reply, |_, _| None)?;
    Ok(told.into_iter().map(Option::unwrap_or_default).collect())
}

fn pattern(word: &str) -> Pattern {
    Pattern::parse(word.as_bytes()).expect("it has a star")
}

#[test]
fn patterns_have_a_star_and_perhaps_a_field() {
    let parts = |word: &str| {
        let Pattern { before, behind, field } = Pattern::parse(word.as_bytes())?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Some((text(&before), text(&behind), field.map(|field| text(&field))))
    };
    let of = |before: &str, behind: &str, field: Option<&str>| {
        Some((before.to_owned(), behind.to_owned(), field.map(str::to_owned)))
    };
    assert_eq!(parts("nothing->here"), None);
    assert_eq!(parts("w_*"), of("w_", "", None));
    assert_eq!(parts("a*b*"), of("a", "b*", None));
    assert_eq!(parts("h*s->f->g"), of("h", "s", Some("f->g")));
    assert_eq!(parts("a->b*->"), of("a->b", "->", None));
    // Keys and fields that are longer than any have no values.
    let long = "x".repeat(MAX_KEY_BYTES);
    assert!(pattern("*").key(long.as_bytes()).is_some());
    assert!(pattern("w*").key(long.as_bytes()).is_none());
    assert!(pattern(&format!("*->{long}x")).key(b"e").is_none());
}

#[test]
fn numbers_text_and_both_directions() {
    let list = ["10", "9", "1e1", "-1", "9"];
    let sorted = |options| told(options, elements(&list, true)).unwrap();
    let plain = SortOptions::default;
    // Of equal numbers the text decides.
    assert_eq!(sorted(plain()), ["-1", "9", "9", "10", "1e1"]);
    let down = SortOptions { is_descending: true, ..plain() };
    assert_eq!(sorted(down.clone()), ["1e1", "10", "9", "9", "-1"]);
    let text = SortOptions { is_alpha: true, ..plain() };
    assert_eq!(sorted(text), ["-1", "10", "1e1", "9", "9"]);
    let part = SortOptions { limit: (1, 2), ..down };
    assert_eq!(sorted(part), ["10", "9"]);
    let behind = SortOptions { limit: (5, 9), ..plain() };
    assert!(sorted(behind).is_empty());
    let none = told(plain(), elements(&["1", "x"], true));
    assert_eq!(none, Err(Status::NotAnInteger));
}

#[test]
fn what_is_not_sorted_keeps_its_order_or_gets_one_before_it_is_stored() {
    let nothing = SortOptions { by: By::Nothing, ..SortOptions::default() };
    let range = |limit, is_descending| {
        Sorting::new(SortOptions { limit, is_descending, ..nothing.clone() }).range()
    };
    assert_eq!(
        Sorting::new(SortOptions { limit: (1, 2), ..SortOptions::default() }).range(),
        (0, -1)
    );
    assert_eq!(range((0, -1), false), (0, -1));
    assert_eq!(range((2, 3), false), (2, 4));
    assert_eq!(range((-5, 3), false), (0, 2));
    assert_eq!(range((0, 0), false), (1, 0));
    assert_eq!(range((2, 3), true), (-5, -3));
    assert_eq!(range((2, -1), true), (0, -3));
    assert_eq!(range((i64::MAX, i64::MAX), false), (i64::MAX, i64::MAX - 1));
    assert_eq!(range((i64::MAX, i64::MAX), true), (-i64::MAX, i64::MIN));
    let down = SortOptions { is_descending: true, limit: (7, 2), ..nothing.clone() };
    // Of an order of their own only the range came.
    assert_eq!(told(down.clone(), elements(&["b", "a"], true)).unwrap(), ["a", "b"]);
    // Without one LIMIT is still to be carried out.
    let some = SortOptions { limit: (1, 1), is_descending: true, ..nothing.clone() };
    assert_eq!(told(some, elements(&["b", "c", "a"], false)).unwrap(), ["c"]);
    let stored = SortOptions { is_stored: true, ..nothing };
    assert_eq!(told(stored.clone(), elements(&["b", "a"], false)).unwrap(), ["a", "b"]);
    assert_eq!(told(stored, elements(&["b", "a"], true)).unwrap(), ["b", "a"]);
}

#[test]
fn elements_are_sorted_by_values_and_values_are_told() {
    let values = |key: &str, field: Option<&str>| match (key, field) {
        ("w1", None) => Some("3".to_owned()),
        ("w2", None) => Some("1".to_owned()),
        ("h1", Some("f")) => Some("field".to_owned()),
        _ => None,
    };
    let by = By::Pattern(pattern("w*"));
    let gets = vec![
        Get::Element,
        Get::Pattern(pattern("h*->f")),
        Get::Nothing,
        Get::Pattern(pattern("w*")),
    ];
    let options = SortOptions { by, gets, ..SortOptions::default() };
    let list = || elements(&["1", "2", "3"], true);
    let some = |texts: &[&str]| -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned()).filter(|text| text != "-")).collect()
    };
    // What has no value weighs 0.
    let expected = some(&["3", "-", "-", "-", "2", "-", "-", "1", "1", "field", "-", "3"]);
    assert_eq!(run(options.clone(), list(), values).unwrap(), expected);
    let stored = SortOptions { is_stored: true, limit: (0, 1), ..options.clone() };
    assert_eq!(run(stored, list(), values).unwrap(), some(&["3", "", "", ""]));
    let text = SortOptions { is_alpha: true, is_descending: true, gets: Vec::new(), ..options };
    assert_eq!(run(text.clone(), list(), values).unwrap(), some(&["1", "2", "3"]));
    // As text it comes before the empty one.
    let empty = |key: &str, _: Option<&str>| Some(String::new()).filter(|_| key == "w1");
    let up = SortOptions { is_descending: false, ..text.clone() };
    assert_eq!(run(up, list(), empty).unwrap(), some(&["2", "3", "1"]));
    let number = SortOptions { is_alpha: false, ..text };
    let bad = run(number, list(), |_, _| Some("x".into()));
    assert_eq!(bad, Err(Status::NotAnInteger));
}

#[test]
fn many_elements_go_in_bounded_turns() {
    let texts: Vec<String> = (0..20_000).map(|at| ((at * 7_919) % 20_011).to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut expected: Vec<u32> = texts.iter().map(|text| text.parse().unwrap()).collect();
    expected.sort_unstable();
    let expected: Vec<Option<String>> = expected.iter().map(|at| Some(format!("v{at}"))).collect();
    for by in [By::Element, By::Pattern(pattern("w:*"))] {
        let gets = vec![Get::Pattern(pattern("v:*"))];
        let options = SortOptions { by, gets, ..SortOptions::default() };
        let sorted = run(options, elements(&texts, false), |key, _| {
            Some(key.replace("w:", "").replace("v:", "v"))
        });
        assert_eq!(sorted.unwrap(), expected);
    }
}

#[test]
fn too_much_is_refused() {
    let mut many = elements(&["1"], true);
    many.number = 2 * (MAX_SORT_ELEMENTS as i64 + 1);
    assert_eq!(told(SortOptions::default(), many), Err(Status::TooLarge));
    let options = |by, is_alpha| SortOptions { by, is_alpha, ..SortOptions::default() };
    let long = "x".repeat(MAX_REPLY_BYTES / 2);
    let list = || elements(&["1", "2", "3"], true);
    let by_long = run(options(By::Pattern(pattern("*")), true), list(), |_, _| Some(long.clone()));
    assert_eq!(by_long, Err(Status::TooLarge));
    let gets = vec![Get::Pattern(pattern("*"))];
    let got = SortOptions { gets, ..SortOptions::default() };
    assert_eq!(run(got, list(), |_, _| Some(long.clone())), Err(Status::TooLarge));
    let refused = told(SortOptions::default(), OwnedReply::status(Status::WrongType));
    assert_eq!(refused, Err(Status::WrongType));
}
