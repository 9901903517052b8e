//! The documents by MongoDB's wire protocol: a small client that sends one OP_MSG and takes its reply.

use super::store::{Answer, COLLECTION, Catalog, DATABASE, INDEX, Refused, Store, Written};
use crate::costs::Costs;
use anyhow::{Context, anyhow, bail, ensure};
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::rawdoc;
use remora_command_line::unavailable;
use remora_mongo::wire::{Body, Parsed, opcode, parse};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply that takes longer never comes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes that are taken from the socket at a time.
const READ_BYTES: usize = 64 << 10;
const SECTION_BODY: u8 = 0;
const SECTION_SEQUENCE: u8 = 1;
/// What MongoDB says of a collection that is not there.
const NAMESPACE_NOT_FOUND: i64 = 26;

/// A connection.
pub struct Mongo {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
    number: i32,
    costs: Costs,
}

impl Mongo {
    /// Connects, and greets as drivers do.
    pub fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let refused = |error| unavailable(format!("MongoDB's protocol at {address}: {error}"));
        let stream = TcpStream::connect(address).map_err(refused)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let (request, reply) = (Vec::new(), Vec::new());
        let mut connection = Self { stream, request, reply, number: 0, costs: Costs::default() };
        connection.done(&rawdoc! { "hello": 1, "$db": "admin" })?;
        connection.costs = Costs::default();
        Ok(connection)
    }

    /// The request: a command, and documents beside it in a section of their own, as drivers send them.
    fn write_request(&mut self, body: &RawDocument, documents: &[RawDocumentBuf]) {
        self.number = self.number.wrapping_add(1);
        let out = &mut self.request;
        out.clear();
        for word in [0, self.number, 0, opcode::MSG, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.push(SECTION_BODY);
        out.extend_from_slice(body.as_bytes());
        if !documents.is_empty() {
            const NAME: &[u8] = b"documents\0";
            let bytes: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
            out.push(SECTION_SEQUENCE);
            out.extend_from_slice(&((4 + NAME.len() + bytes) as i32).to_le_bytes());
            out.extend_from_slice(NAME);
            documents.iter().for_each(|document| out.extend_from_slice(document.as_bytes()));
        }
        let length = (out.len() as i32).to_le_bytes();
        out[..length.len()].copy_from_slice(&length);
    }

    /// Sends a command, and takes the reply.
    fn exchange(&mut self, body: &RawDocument, documents: &[RawDocumentBuf]) -> anyhow::Result<()> {
        self.write_request(body, documents);
        self.stream.write_all(&self.request)?;
        self.reply.clear();
        // Bounded: a message has a length.
        while let Parsed::Incomplete { need } = parse(&self.reply)? {
            let from = self.reply.len();
            self.reply.resize(need.max(from + READ_BYTES), 0);
            let read = self.stream.read(&mut self.reply[from..])?;
            self.reply.truncate(from + read);
            ensure!(read > 0, "the server has closed the connection");
        }
        self.costs.round_trips += 1;
        self.costs.asked += 1;
        self.costs.bytes += (self.request.len() + self.reply.len()) as u64;
        Ok(())
    }

    /// The document of the reply that was taken.
    fn reply(&self) -> anyhow::Result<&RawDocument> {
        let Parsed::Message { message, consumed } = parse(&self.reply)? else {
            bail!("a reply is not complete");
        };
        let Body::Msg(reply) = message.body else { bail!("a reply is no OP_MSG") };
        let is_its = message.header.response_to == self.number && consumed == self.reply.len();
        ensure!(is_its, "a reply is to another request");
        Ok(reply.body)
    }

    /// Sends a command, and gives the document of its reply.
    fn call(&mut self, body: &RawDocument, documents: &[RawDocumentBuf]) -> Answer<&RawDocument> {
        self.exchange(body, documents)?;
        Ok(judge(self.reply()?))
    }

    /// A command that has to succeed.
    fn done(&mut self, body: &RawDocument) -> anyhow::Result<RawDocumentBuf> {
        let reply = self.call(body, &[])?.map_err(|Refused(why)| anyhow!("{why}"))?;
        Ok(reply.to_owned())
    }

    fn find_by(
        &mut self,
        filter: RawDocumentBuf,
        see: &mut dyn FnMut(Option<&RawDocument>),
    ) -> Answer<()> {
        let command = rawdoc! {
            "find": COLLECTION,
            "filter": filter,
            "limit": 1,
            "singleBatch": true,
            "$db": DATABASE,
        };
        let reply = match self.call(&command, &[])? {
            Ok(reply) => reply,
            Err(refused) => return Ok(Err(refused)),
        };
        let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
        let found = batch.into_iter().next().transpose()?;
        let document = found.map(|of| of.as_document().context("a result is no document"));
        see(document.transpose()?);
        Ok(Ok(()))
    }
}

/// A number of any of BSON's types.
fn number(reply: &RawDocument, name: &str) -> Option<i64> {
    let value = reply.get(name).ok()??;
    let float = || value.as_f64().map(|of| of as i64);
    value.as_i32().map(i64::from).or_else(|| value.as_i64()).or_else(float)
}

/// A count of a reply, which has to be there.
fn count_of(reply: &RawDocument, name: &str) -> anyhow::Result<u64> {
    let count = number(reply, name).and_then(|of| u64::try_from(of).ok());
    count.with_context(|| format!("a reply has no {name}: {reply:?}"))
}

/// A reply that says that the command was done, or why it was not.
fn judge(reply: &RawDocument) -> Result<&RawDocument, Refused> {
    let is_done = number(reply, "ok") == Some(1);
    if is_done && matches!(reply.get("writeErrors"), Ok(None)) {
        return Ok(reply);
    }
    Err(Refused(format!("{reply:?}")))
}

impl Store for Mongo {
    fn insert(&mut self, documents: &[RawDocumentBuf]) -> Answer<()> {
        let command = rawdoc! { "insert": COLLECTION, "$db": DATABASE };
        let inserted = match self.call(&command, documents)? {
            Ok(reply) => count_of(reply, "n")?,
            Err(refused) => return Ok(Err(refused)),
        };
        ensure!(inserted == documents.len() as u64, "{inserted} documents were inserted");
        Ok(Ok(()))
    }

    fn find(&mut self, id: i64, see: &mut dyn FnMut(Option<&RawDocument>)) -> Answer<()> {
        self.find_by(rawdoc! { "_id": id }, see)
    }

    fn query(&mut self, code: i64, see: &mut dyn FnMut(Option<&RawDocument>)) -> Answer<()> {
        self.find_by(rawdoc! { "code": code }, see)
    }

    fn update(&mut self, id: i64, update: &RawDocument) -> Answer<Written> {
        let one = rawdoc! { "q": { "_id": id }, "u": update.to_owned() };
        let command = rawdoc! { "update": COLLECTION, "updates": [one], "$db": DATABASE };
        match self.call(&command, &[])? {
            Ok(reply) => Ok(Ok(Written {
                matched: count_of(reply, "n")?,
                modified: count_of(reply, "nModified")?,
            })),
            Err(refused) => Ok(Err(refused)),
        }
    }

    fn delete(&mut self, id: i64) -> Answer<u64> {
        let one = rawdoc! { "q": { "_id": id }, "limit": 1 };
        let command = rawdoc! { "delete": COLLECTION, "deletes": [one], "$db": DATABASE };
        match self.call(&command, &[])? {
            Ok(reply) => Ok(Ok(count_of(reply, "n")?)),
            Err(refused) => Ok(Err(refused)),
        }
    }

    fn costs(&self) -> Costs {
        self.costs
    }
}

impl Catalog for Mongo {
    fn remove(&mut self) -> anyhow::Result<()> {
        self.exchange(&rawdoc! { "drop": COLLECTION, "$db": DATABASE }, &[])?;
        let reply = self.reply()?;
        match judge(reply) {
            Err(Refused(why)) if number(reply, "code") != Some(NAMESPACE_NOT_FOUND) => {
                bail!("dropping the collection: {why}")
            }
            _ => Ok(()),
        }
    }

    fn make_index(&mut self) -> anyhow::Result<()> {
        let index = rawdoc! { "key": { "code": 1 }, "name": INDEX };
        let command = rawdoc! { "createIndexes": COLLECTION, "indexes": [index], "$db": DATABASE };
        self.done(&command).map(drop)
    }

    fn count(&mut self) -> anyhow::Result<u64> {
        let reply = self.done(&rawdoc! { "count": COLLECTION, "$db": DATABASE })?;
        count_of(&reply, "n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_without_success_is_refused() {
        assert!(judge(&rawdoc! { "ok": 1.0, "n": 1 }).is_ok());
        assert!(judge(&rawdoc! { "ok": 1 }).is_ok());
        assert!(judge(&rawdoc! { "n": 1 }).is_err());
        assert!(judge(&rawdoc! { "ok": 0.0, "code": 13 }).is_err());
        let errors = rawdoc! { "ok": 1.0, "n": 0, "writeErrors": [{ "index": 0, "code": 11000 }] };
        assert!(judge(&errors).is_err());
    }

    #[test]
    fn numbers_of_every_type_count_and_nothing_else_does() {
        let reply = rawdoc! { "a": 3, "b": 3_i64, "c": 3.0, "d": "3", "e": -1 };
        for name in ["a", "b", "c"] {
            assert_eq!(count_of(&reply, name).unwrap(), 3);
        }
        for name in ["d", "e", "f"] {
            assert!(count_of(&reply, name).is_err(), "{name}");
        }
    }
}
