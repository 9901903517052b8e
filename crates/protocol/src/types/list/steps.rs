//! Operations on several lists: LMOVE and LMPOP.
//!
//! Within a shard LMOVE is one step. Between shards the element leaves one list, then it is added to
//! the other one: for a moment it is in neither. If it cannot be added, it goes back.

use super::{ListCommand, Side};
use crate::items::Items;
use crate::message::Status;
use crate::reply::Reply;
use crate::steps::{AskKey, Step, Steps, StepsReply};

fn side(argument: i64) -> Side {
    if argument == 0 { Side::Left } else { Side::Right }
}

fn pushed(steps: &Steps, key: usize, side: Side, ask: AskKey<'_>) {
    let list = steps.carried.as_ref().and_then(|carried| carried.value.as_deref());
    if let Some(items) = list.and_then(Items::parse) {
        ask(key, ListCommand::Push { side, if_there: false, items }.request());
    }
}

/// Moves an element from one end of the list of a key to an end of that of another one. The value is
/// the element, `NotFound` without the first list.
pub fn move_element(from: &[u8], to: &[u8], (from_side, to_side): (Side, Side)) -> Steps {
    let keys = vec![from.into(), to.into()];
    Steps::new(keys, [from_side as i64, to_side as i64, 0], next_of_move)
}

fn next_of_move(steps: &mut Steps, answer: Option<&Reply<'_>>, ask: AskKey<'_>) -> Step {
    let (from, to) = (side(steps.arguments[0]), side(steps.arguments[1]));
    let done = |status| Step::Done(StepsReply::status(status));
    steps.at += 1;
    match (steps.at, answer) {
        (1, _) if steps.is_one_shard => {
            let other = steps.keys[1].clone();
            ask(0, ListCommand::Move { from, to, other: &other }.request());
            Step::AskedLast
        }
        // Whether there is anything to move, before the other key's type counts.
        (1, _) => {
            ask(0, ListCommand::Length.request());
            Step::Asked
        }
        (2, Some(answer)) if answer.status != Status::Ok => done(answer.status),
        (2, Some(answer)) if answer.number == 0 => done(Status::NotFound),
        (2, _) => {
            ask(1, ListCommand::Length.request());
            Step::Asked
        }
        (3, Some(answer)) if answer.status != Status::Ok => done(answer.status),
        (3, _) => {
            ask(0, ListCommand::Pop { side: from, count: 1, fits_frame: false }.request());
            Step::Asked
        }
        (4, Some(answer)) if answer.status == Status::Ok => {
            steps.carried = Some(answer.into());
            pushed(steps, 1, to, ask);
            Step::Asked
        }
        (4, answer) => done(answer.map_or(Status::Malformed, |answer| answer.status)),
        (5, Some(answer)) if answer.status == Status::Ok => {
            let list = steps.carried.take().and_then(|carried| carried.value).unwrap_or_default();
            let element = Items::split(&list).and_then(|(item, _)| item).map(<[u8]>::to_vec);
            Step::Done(StepsReply { value: element, ..StepsReply::status(Status::Ok) })
        }
        // It goes back to where it was.
        (5, answer) => {
            steps.arguments[2] = answer.map_or(Status::Malformed, |of| of.status) as i64;
            pushed(steps, 0, from, ask);
            Step::Asked
        }
        _ => done(Status::from_number(steps.arguments[2] as u8).unwrap_or(Status::Malformed)),
    }
}

/// Removes up to `count` elements from the first of these keys that has a list. The value is the key
/// and the elements, as [`Items`]; `number` counts them; `NotFound` without a list.
pub fn pop_first(keys: Vec<Box<[u8]>>, side: Side, count: u64) -> Steps {
    Steps::new(keys, [side as i64, count as i64, 0], next_of_pop)
}

fn next_of_pop(steps: &mut Steps, answer: Option<&Reply<'_>>, ask: AskKey<'_>) -> Step {
    match answer {
        Some(answer) if answer.status == Status::Ok => {
            let mut list = Vec::new();
            Items::push(&mut list, &steps.keys[steps.at - 1]);
            list.extend_from_slice(answer.value.unwrap_or_default());
            let number = answer.number + 1;
            return Step::Done(StepsReply { status: Status::Ok, number, value: Some(list) });
        }
        Some(answer) if answer.status != Status::NotFound => {
            return Step::Done(StepsReply::status(answer.status));
        }
        _ if steps.at == steps.keys.len() => {
            return Step::Done(StepsReply::status(Status::NotFound));
        }
        _ => {}
    }
    let (side, count) = (side(steps.arguments[0]), steps.arguments[1] as u64);
    ask(steps.at, ListCommand::Pop { side, count, fits_frame: false }.request());
    steps.at += 1;
    Step::Asked
}
