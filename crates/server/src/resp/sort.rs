//! SORT: the questions to shards that [`Sorting`] asks, and what becomes of its result.
//!
//! Invariant: the values of some elements are asked for by one job to each shard; the next questions come
//! once all of these are answered. A turn without a question is taken when the own shard has answered
//! nothing but a job: so other requests are served in between. Until the result is stored nothing changes, and
//! a closed connection ends the request.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::GoingOn;
use super::key_steps::encoded;
use super::sort_job::{Asked, SortJob, Values, take_values};
use remora_engine::moving::KeyAt;
use remora_engine::storing::{Parts, Storing};
use remora_frontend::{Each, Job, KeyBatch, Order, OwnedReply, Token, Waiting, WantedBytes};
use remora_layout::database::Database;
use remora_layout::limits::{MAX_COMMAND_ITEMS, STREAM_BYTES};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};
use remora_resp::request::{Sort, Stored};
use remora_resp::sorting::{SortStep, Sorting};
use std::sync::Arc;

impl<H: Host> RespExecutor<H> {
    /// Begins SORT.
    pub(super) fn sort(&mut self, responder: &mut Responder, sort: Sort<'_>) {
        let Sort { key, options, store, field, form, refused_in_cluster, error } = sort;
        let refused = refused_in_cluster.filter(|_| self.host.cluster().is_some());
        if let Some(error) = refused.or(error) {
            return responder.reply(|out, _| error.write(out));
        }
        let sorting = Sorting::new(options);
        let (start, stop) = sorting.range();
        // Later requests would wait for it anyway.
        responder.expect_large();
        let command = Command::Elements { key, start, stop };
        let asked = [self.submit(responder, self.route(key), 0, &command)];
        let job = SortJob {
            sorting,
            database: self.database,
            of_field: field,
            store: store.map(|(key, stored)| (key.into(), stored)),
            asked: Asked::Elements,
        };
        self.go_on_with(responder, 0, GoingOn::Sort(Box::new(job)));
        responder.wait(Waiting::all(form, asked));
    }

    /// Goes on after a shard's answer: the reply, or none if something is asked first.
    pub(super) fn sorted(
        &mut self,
        token: Token,
        mut job: Box<SortJob>,
        reply: OwnedReply,
    ) -> Option<OwnedReply> {
        match job.take(token.shard, reply) {
            Ok(true) => {}
            Ok(false) => {
                self.keep_going(token, GoingOn::Sort(job), 0);
                return None;
            }
            Err(reply) => return Some(reply),
        }
        match job.sorting.turn() {
            Err(status) => return Some(OwnedReply::status(status)),
            Ok(SortStep::Again) => self.another_turn(token, job),
            Ok(SortStep::Look { keys, field }) => self.look_up(token, job, &keys, field),
            Ok(SortStep::Done { items, count }) => match job.store.take() {
                Some(to) => self.store_sorted(token, job.database, to, (items, count)),
                None => {
                    let (number, value) = (count as i64, Some(items));
                    return Some(OwnedReply { number, value, ..OwnedReply::status(Status::Ok) });
                }
            },
        }
        None
    }

    fn another_turn(&mut self, token: Token, mut job: Box<SortJob>) {
        job.asked = Asked::Turn;
        let command = encoded(job.database, &Command::Count);
        self.ask_on(token, GoingOn::Sort(job), (self.host.home(), command));
    }

    /// Asks for values: one job to each shard that has some of the keys.
    fn look_up(
        &mut self,
        token: Token,
        mut job: Box<SortJob>,
        keys: &[Option<Box<[u8]>>],
        field: Option<Arc<[u8]>>,
    ) {
        let each = match field {
            Some(field) => Each::PartOf(field, job.of_field),
            None => Each::Key(|key| Command::Get { key }),
        };
        let wanted = WantedBytes::default();
        let mut batches: Vec<Option<Box<KeyBatch>>> = Vec::new();
        batches.resize_with(self.host.shards(), || None);
        let mut shards = Vec::with_capacity(keys.len());
        for key in keys {
            let at = key.as_ref().map(|key| (key, self.host.route(job.database, key)));
            shards.push(at.map(|(_, (_, shard))| shard));
            if let Some((key, (hash, shard))) = at {
                let new = || Box::new(KeyBatch::new(each.clone(), wanted.found()));
                batches[shard].get_or_insert_with(new).push(key, hash);
            }
        }
        let missing = batches.iter().flatten().count();
        let job_bytes = batches.iter().flatten().map(|batch| batch.bytes()).sum();
        let values = Values::new(shards, (missing, batches.len()), wanted);
        if missing == 0 {
            let taken = take_values(&mut job.sorting, &values);
            debug_assert_eq!(taken, Ok(()), "there is no value");
            return self.another_turn(token, job);
        }
        job.asked = Asked::Values(values);
        self.keep_going(token, GoingOn::Sort(job), job_bytes);
        for (shard, batch) in batches.into_iter().enumerate() {
            if let Some(batch) = batch {
                let token = Token { shard, ..token };
                self.host.hand(shard, Job::new(Order::ExecuteEach(batch), token));
            }
        }
    }

    /// A key gets the result.
    fn store_sorted(
        &mut self,
        token: Token,
        database: Database,
        (key, stored): (Box<[u8]>, Stored),
        (list, count): (Vec<u8>, u64),
    ) {
        let (_, shard) = self.host.route(database, &key);
        let Stored { kind, at_once, begin_piece } = stored;
        if let Some(items) = Items::parse(&list)
            .filter(|_| count <= MAX_COMMAND_ITEMS as u64 && list.len() <= STREAM_BYTES)
        {
            let command = Command::Of { key: &key, request: at_once(items) };
            return self.ask_last(token, (shard, encoded(database, &command)));
        }
        let parts = Parts { kind, list, first_bytes: Items::first_bytes, begin: begin_piece };
        self.store(token, Storing::new(KeyAt { key, database, shard }, parts));
    }
}
