//! One client's operations: one at a time, in batches, or in a pipeline.

use crate::meter::{Meter, SAMPLE_EVERY};
use crate::records::Records;
use crate::targets::target::{Request, Target};
use crate::workload::Op;
use anyhow::ensure;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Keys that are looked up together while warming up, and requests that are
/// outstanding while loading.
const WARM_BATCH: usize = 64;
/// A key is prefetched this many operations ahead: long enough for one access to memory even if the
/// operations between take only 50 ns each.
const OPS_AHEAD: usize = 8;

/// How operations are issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Keys of one lookup.
    pub batch: usize,
    /// Requests outstanding.
    pub pipeline: usize,
    /// Time after which a run ends; until then the operations are repeated.
    pub limit: Option<Duration>,
}

impl Shape {
    /// One operation after the other, all of them.
    pub const PLAIN: Self = Self { batch: 1, pipeline: 1, limit: None };
}

/// Sets every record; calls `progress` now and then with the number of records done.
pub fn load<T: Target>(
    target: &mut T,
    records: &impl Records,
    mut progress: impl FnMut(usize),
) -> anyhow::Result<()> {
    const STEP: usize = 16_384;
    let shape = Shape { pipeline: WARM_BATCH, ..Shape::PLAIN };
    let all: Vec<Op> = (0..records.count() as u32).map(Op::set).collect();
    for (step, ops) in all.chunks(STEP).enumerate() {
        drive(target, records, ops, shape)?;
        progress(step * STEP + ops.len());
    }
    Ok(())
}

/// Looks up every record once and compares every byte.
pub fn warm_up<T: Target>(target: &mut T, records: &impl Records) -> anyhow::Result<()> {
    let count = records.count() as u32;
    let mut keys: Vec<&[u8]> = Vec::with_capacity(WARM_BATCH);
    let mut buffer = Vec::new();
    let (mut seen, mut right) = (0u32, 0u32);
    for first in (0..count).step_by(WARM_BATCH) {
        keys.clear();
        keys.extend((first..count).take(WARM_BATCH).map(|index| records.key(index)));
        target.get_batch(&keys, &mut |position, value| {
            let index = first + position as u32;
            let is_right =
                value.is_some_and(|value| records.is_exactly_right(index, value, &mut buffer));
            seen += 1;
            right += u32::from(is_right);
        })?;
    }
    ensure!(seen == count, "warming up: {seen} of {count} keys were answered");
    ensure!(right == count, "warming up: {} of {count} values are wrong or missing", count - right);
    Ok(())
}

/// Does the operations and measures them.
pub fn drive<T: Target>(
    target: &mut T,
    records: &impl Records,
    ops: &[Op],
    shape: Shape,
) -> anyhow::Result<Meter> {
    let is_short = T::IS_SHORT;
    let mut meter = Meter::start(if is_short { SAMPLE_EVERY } else { 1 }, shape.limit)?;
    loop {
        let goes_on = if shape.pipeline > 1 {
            pipelined(target, records, ops, shape.pipeline, &mut meter)?
        } else if shape.batch > 1 {
            batched(target, records, ops, shape.batch, &mut meter)?
        } else {
            one_by_one(target, records, ops, &mut meter)?
        };
        if shape.limit.is_none() || !goes_on {
            return Ok(meter);
        }
    }
}

// Each way of issuing says at its end whether there is time left.

/// The operations in order; each one's key is prefetched into the cache some operations ahead. In a
/// real program a key is in the cache, because it has just come with a request, while here it lies
/// in a table far larger than the cache.
fn at_hand<'a, R: Records>(records: &'a R, ops: &'a [Op]) -> impl ExactSizeIterator<Item = &'a Op> {
    ops.iter().enumerate().map(move |(position, op)| {
        if let Some(later) = ops.get(position + OPS_AHEAD) {
            records.prefetch(later.index());
        }
        op
    })
}

fn one_by_one<T: Target>(
    target: &mut T,
    records: &impl Records,
    ops: &[Op],
    meter: &mut Meter,
) -> anyhow::Result<bool> {
    let mut buffer = Vec::new();
    for op in at_hand(records, ops) {
        let index = op.index();
        let goes_on = meter.measure(1, |tally| {
            if op.is_write() {
                return target.set(records.key(index), records.value(index, &mut buffer));
            }
            target.get(records.key(index), |value| tally.judge(records, index, value))
        })?;
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads are gathered into batches; a write is sent alone, at once.
fn batched<T: Target>(
    target: &mut T,
    records: &impl Records,
    ops: &[Op],
    batch: usize,
    meter: &mut Meter,
) -> anyhow::Result<bool> {
    let mut buffer = Vec::new();
    let mut indices: Vec<u32> = Vec::with_capacity(batch);
    let mut keys: Vec<&[u8]> = Vec::with_capacity(batch);
    for op in at_hand(records, ops) {
        let index = op.index();
        let goes_on = if op.is_write() {
            meter
                .measure(1, |_| target.set(records.key(index), records.value(index, &mut buffer)))?
        } else {
            indices.push(index);
            keys.push(records.key(index));
            if keys.len() < batch {
                continue;
            }
            let goes_on = look_up(target, records, &indices, &keys, meter)?;
            indices.clear();
            keys.clear();
            goes_on
        };
        if !goes_on {
            return Ok(false);
        }
    }
    if keys.is_empty() { Ok(true) } else { look_up(target, records, &indices, &keys, meter) }
}

/// One batch. `false`: time is up.
fn look_up<T: Target>(
    target: &mut T,
    records: &impl Records,
    indices: &[u32],
    keys: &[&[u8]],
    meter: &mut Meter,
) -> anyhow::Result<bool> {
    meter.measure(keys.len() as u64, |tally| {
        let mut answered = 0;
        target.get_batch(keys, &mut |position, value| {
            answered += 1;
            tally.judge(records, indices[position], value);
        })?;
        ensure!(answered == keys.len(), "a batch was not answered in full");
        Ok(())
    })
}

fn pipelined<T: Target>(
    target: &mut T,
    records: &impl Records,
    ops: &[Op],
    depth: usize,
    meter: &mut Meter,
) -> anyhow::Result<bool> {
    let mut buffer = Vec::new();
    let mut waiting: VecDeque<(Op, Option<Instant>)> = VecDeque::with_capacity(depth);
    let mut rest = at_hand(records, ops);
    let mut goes_on = true;
    loop {
        while goes_on && waiting.len() < depth {
            let Some(op) = rest.next() else { break };
            let key = records.key(op.index());
            let sent = meter.stamp();
            target.send(if op.is_write() {
                Request::Set(key, records.value(op.index(), &mut buffer))
            } else {
                Request::Get(key)
            })?;
            waiting.push_back((*op, sent));
        }
        if waiting.is_empty() {
            return Ok(goes_on);
        }
        target.flush()?;
        let is_last = !goes_on || rest.len() == 0;
        let kept = if is_last { 0 } else { T::kept_outstanding(depth) };
        while waiting.len() > kept {
            let Some((op, sent)) = waiting.pop_front() else { break };
            let tally = &mut meter.tally;
            target.receive(!op.is_write(), |value| tally.judge(records, op.index(), value))?;
            goes_on &= meter.arrived(sent);
        }
    }
}
