//! Collections of documents, with two indexes: what a search by an index finds, and what the index counts, must
//! agree with a scan.
//!
//! A document's value here is `NUMBER TAG,TAG TEXT`. The number has an index of its own, and the tags one that
//! has several keys for a document.

use super::key_type::{KeyType, ask, draw_parts, parts};
use crate::state::{Change, HEAD, State};
use anyhow::{Context, bail};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::{Error, Session};
use remora_command_line::Connection;
use remora_resp::Value;
use serde_json::{Value as Json, json};

/// Enough that the trees of a collection have several nodes.
const DOCUMENTS: u32 = 300;
/// Numbers and tags are below: several documents have the same ones.
const NUMBERS: u32 = 8;
/// More than there are documents.
const LIMIT: &[u8] = b"1000";
/// Enough for records of several classes.
const MOST_TEXT_BYTES: usize = 600;

pub struct Collections;

/// The number, the tags and the text of a value.
fn split(value: &[u8]) -> (u32, Vec<u32>, String) {
    let value = String::from_utf8_lossy(value);
    let mut words = value.splitn(3, ' ');
    let mut word = || words.next().unwrap_or_default();
    let (number, tags, text) = (word(), word(), word());
    let parsed = |of: &str| of.parse().unwrap_or(0);
    (parsed(number), tags.split(',').map(parsed).collect(), text.to_owned())
}

/// The value of a document.
fn joined(document: &Json) -> Option<Vec<u8>> {
    let tags: Vec<String> = document["t"].as_array()?.iter().map(Json::to_string).collect();
    let text = document["s"].as_str()?;
    Some(format!("{} {} {text}", document["v"].as_u64()?, tags.join(",")).into_bytes())
}

/// The documents that match a filter, by their names.
fn find(resp: &mut Connection, key: &[u8], filter: &Json) -> anyhow::Result<State> {
    let filter = filter.to_string();
    let words: &[&[u8]] = &[b"DOC.FIND", key, filter.as_bytes(), b"LIMIT", LIMIT];
    let Value::Array(list) = ask(resp, words)? else {
        bail!("DOC.FIND is not answered by an array");
    };
    let mut state = State::default();
    for text in list {
        let Value::Bulk(text) = text else { bail!("DOC.FIND gives no document: {text:?}") };
        let document: Json = serde_json::from_slice(text).context("a document of DOC.FIND")?;
        let name = document["_id"].as_str().context("a document has no name")?.as_bytes();
        let value = joined(&document).with_context(|| format!("no document: {document}"))?;
        if state.parts.insert(name.to_vec(), value).is_some() {
            bail!("DOC.FIND gives a document twice: {document}");
        }
    }
    Ok(state)
}

/// What a search by an index, and a count of one, say against the scan; none if all of them agree.
fn disagreement(
    resp: &mut Connection,
    key: &[u8],
    (field, number): (&str, u32),
    scanned: &State,
) -> anyhow::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let has_it = |value: &[u8]| {
        let (of, tags, _) = split(value);
        if field == "v" { of == number } else { tags.contains(&number) }
    };
    let mut there = scanned.parts.clone();
    there.retain(|_, value| has_it(value));
    let filter = json!({ field: number });
    let found = find(resp, key, &filter)?.parts;
    let filter = filter.to_string().into_bytes();
    let counted = ask(resp, &[b"DOC.COUNT", key, &filter])?;
    if found == there && counted == Value::Integer(there.len() as i64) {
        return Ok(None);
    }
    let seen = format!("{} found, {counted:?} counted of {}", found.len(), there.len());
    Ok(Some((filter, seen.into_bytes())))
}

impl KeyType for Collections {
    fn name(&self) -> &'static str {
        "collection"
    }

    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change {
        // A collection stays when its last document goes, and an empty one is no state of the model.
        let change = draw_parts(state, rng, DOCUMENTS, |rng| {
            let number = rng.random_range(0..NUMBERS);
            let tags: Vec<String> = (0..rng.random_range(1..4))
                .map(|_| rng.random_range(0..NUMBERS).to_string())
                .collect();
            let most = if rng.random_ratio(1, 8) { MOST_TEXT_BYTES } else { 40 };
            let text: String =
                (0..rng.random_range(0..most)).map(|_| rng.random_range('a'..='z')).collect();
            format!("{number} {} {text}", tags.join(",")).into_bytes()
        });
        if matches!(change, Change::Take(_)) && state.parts.len() == 1 {
            return Change::Delete;
        }
        change
    }

    fn has_handle(&self) -> bool {
        false
    }

    fn follow_up(&self, key: &[u8], before: &State) -> Option<Vec<Vec<u8>>> {
        // The first document of a collection has no index, which is built from it. The second one finds it there.
        match before.parts.len() {
            0 => Some(parts(&[b"DOC.INDEX", key, br#"{"v":1}"#])),
            1 => Some(parts(&[b"DOC.INDEX", key, br#"{"t":1}"#])),
            _ => None,
        }
    }

    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
        let filter = |name: &[u8]| json!({ "_id": String::from_utf8_lossy(name) }).to_string();
        match change {
            Change::Put(documents) => {
                let (name, value) = &documents[0];
                let (number, tags, text) = split(value);
                let document = json!({ "v": number, "t": tags, "s": text }).to_string();
                let (filter, document) = (filter(name), document.as_bytes());
                parts(&[b"DOC.UPDATE", key, filter.as_bytes(), document, b"UPSERT"])
            }
            Change::Take(name) => parts(&[b"DOC.DEL", key, filter(name).as_bytes()]),
            other => unreachable!("no change of a collection: {other:?}"),
        }
    }

    fn change(&self, _: &mut Session, _: &[u8], _: &Change) -> Result<(), Error> {
        unreachable!("the client has no handle for collections")
    }

    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
        let scanned = find(resp, key, &json!({}))?;
        let mut state = scanned.clone();
        for field in ["v", "t"] {
            for number in 0..NUMBERS {
                state.parts.extend(disagreement(resp, key, (field, number), &scanned)?);
            }
        }
        // The count beside the nodes says the same.
        let (counted, there) = (ask(resp, &[b"DOC.COUNT", key])?, scanned.parts.len() as i64);
        if counted != Value::Integer(there) {
            state.parts.insert(b"count".to_vec(), format!("{counted:?} of {there}").into_bytes());
        }
        Ok(state)
    }

    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        let named = json!({ "_id": String::from_utf8_lossy(HEAD) });
        Ok(find(resp, key, &named)?.parts.remove(HEAD))
    }

    fn head_by_client(&self, _: &mut Session, _: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        unreachable!("the client has no handle for collections")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_document_and_comes_back() {
        for value in ["3 1,2 text", "0 7 ", "5 1,1,4 x"] {
            let command = Collections
                .command(b"k", &Change::Put(vec![(b"17".to_vec(), value.as_bytes().to_vec())]));
            let document: Json = serde_json::from_slice(&command[3]).unwrap();
            assert_eq!(joined(&document).as_deref(), Some(value.as_bytes()));
            assert_eq!(command[2], br#"{"_id":"17"}"#);
        }
    }
}
