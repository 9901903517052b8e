//! What a plan means: an interpreter that takes it depth first, one row after the other, over the world
//! itself.

use crate::driver::{objects, of_range};
use crate::world::{Thing, World};
use remora_plan::{
    Area, Bytes, Column, Condition, Explain, Limit, Limits, Objects, Outcome, Plan, Range, Start,
    Step, Value,
};
use std::collections::BTreeSet;

/// Why the interpreter goes no further: a TAKE has its rows, or a limit is reached.
type Flow<T = ()> = Result<T, Option<Limit>>;

struct Oracle<'a> {
    world: &'a World,
    steps: &'a [Step],
    limits: Limits,
    explain: Explain,
    rows: Vec<Vec<Column>>,
    bytes: u64,
    /// For each step, rows that passed SKIP or TAKE.
    passed: Vec<u64>,
    /// For each step, keys that passed ONCE, and what they count.
    met: Vec<(BTreeSet<Bytes>, u64)>,
}

/// The item of a row, and whether its content has been visited.
#[derive(Clone)]
struct At {
    key: Bytes,
    visited: bool,
    /// Of the last walk.
    level: u32,
}

/// What the plan gives; of its counts all but the batches.
pub fn outcome(world: &World, plan: &Plan) -> Outcome {
    let mut oracle = Oracle {
        world,
        steps: plan.steps(),
        limits: *plan.limits(),
        explain: Explain::default(),
        rows: Vec::new(),
        bytes: 0,
        passed: vec![0; plan.steps().len()],
        met: vec![Default::default(); plan.steps().len()],
    };
    let limit = oracle.start(plan.start()).err().flatten();
    oracle.explain.rows = oracle.rows.len() as u64;
    Outcome { rows: oracle.rows, limit, explain: oracle.explain }
}

impl Oracle<'_> {
    fn start(&mut self, start: &Start) -> Flow {
        match start {
            Start::Keys(keys) => keys.iter().try_for_each(|key| self.key(0, &[], (key, 0))),
            Start::List { key, start, stop, by_key } => {
                let Some(elements) = self.list(key)? else { return Ok(()) };
                let length = elements.len() as i128;
                let index = |at: i64| if at < 0 { length + i128::from(at) } else { at.into() };
                let range = index(*start).max(0)..=index(*stop).min(length - 1);
                for at in range {
                    self.element(&elements[at as usize], *by_key, |oracle, key| {
                        oracle.key(0, &[], (&key, 0))
                    })?;
                }
                Ok(())
            }
            Start::Window { window, objects } => {
                self.objects(objects, Area::Window(*window), usize::MAX)
            }
            Start::Nearest { point: (x, y), count, objects } => {
                self.objects(objects, Area::Nearest(*x, *y), *count as usize)
            }
        }
    }

    fn objects(&mut self, of: &Objects, area: Area, mut left: usize) -> Flow {
        let Some(mut found) = objects(self.world, &of.tree, &area) else {
            self.explain.skipped.gone += 1;
            return Ok(());
        };
        if let Area::Window(_) = area {
            found.sort();
        }
        for (id, fields) in found {
            if left == 0 {
                break;
            }
            self.visit(|explain| &mut explain.objects)?;
            let value = |condition: &Condition| fields.get(&condition.field).map(|value| &**value);
            if of.conditions.iter().any(|condition| !condition.holds(value(condition))) {
                self.explain.skipped.filtered += 1;
                continue;
            }
            left -= 1;
            let mut key = of.prefix.to_vec();
            key.extend_from_slice(&id);
            self.key(0, &[], (&key.into(), 0))?;
        }
        Ok(())
    }

    fn visit(&mut self, count: fn(&mut Explain) -> &mut u64) -> Flow {
        *count(&mut self.explain) += 1;
        let is_within = self.explain.visits() <= self.limits.visits;
        if is_within { Ok(()) } else { Err(Some(Limit::Visits)) }
    }

    fn list(&mut self, key: &Bytes) -> Flow<Option<Vec<Value>>> {
        self.visit(|explain| &mut explain.lists)?;
        match self.world.things.get(key) {
            Some(Thing::List(elements)) => return Ok(Some(elements.clone())),
            Some(_) => self.explain.skipped.other_type += 1,
            None => self.explain.skipped.gone += 1,
        }
        Ok(None)
    }

    /// Entries of an ordered tree.
    fn entries(&mut self, key: &Bytes, range: &Range) -> Flow<Option<Vec<(Bytes, Value)>>> {
        self.visit(|explain| &mut explain.lists)?;
        match self.world.things.get(key) {
            Some(Thing::Ordered(entries)) => {
                let mut found = of_range(entries, &range.keys);
                found.truncate(usize::try_from(range.count).unwrap_or(usize::MAX));
                return Ok(Some(found));
            }
            Some(_) => self.explain.skipped.other_type += 1,
            None => self.explain.skipped.gone += 1,
        }
        Ok(None)
    }

    /// An item that is no list.
    fn content(&mut self, at: &At) -> Flow<Option<Thing>> {
        if !at.visited {
            self.visit(|explain| &mut explain.items)?;
        }
        match self.world.things.get(&at.key) {
            None => self.explain.skipped.gone += 1,
            Some(Thing::List(_) | Thing::Ordered(_)) => self.explain.skipped.other_type += 1,
            Some(thing) => return Ok(Some(thing.clone())),
        }
        Ok(None)
    }

    fn target(&mut self, value: &Value, by_key: bool) -> Option<Bytes> {
        if matches!(value, Value::Plain(_)) && !by_key {
            self.explain.skipped.not_a_link += 1;
            return None;
        }
        if value.text().len() > 65_536 {
            self.explain.skipped.not_a_key += 1;
            return None;
        }
        self.explain.hops += 1;
        Some(value.text().clone())
    }

    fn element(
        &mut self,
        value: &Value,
        by_key: bool,
        then: impl FnOnce(&mut Self, Bytes) -> Flow,
    ) -> Flow {
        self.visit(|explain| &mut explain.elements)?;
        self.target(value, by_key).map_or(Ok(()), |key| then(self, key))
    }

    /// A row that came to a key.
    fn key(&mut self, step: usize, columns: &[Column], (key, level): (&Bytes, u32)) -> Flow {
        self.row(step, columns, At { key: key.clone(), visited: false, level })
    }

    /// A row in front of a step.
    fn row(&mut self, number: usize, columns: &[Column], at: At) -> Flow {
        let steps = self.steps;
        let Some(step) = steps.get(number) else { return self.end(columns) };
        match step {
            Step::GetKey => {
                let columns = [columns, &[Column::Text(at.key.clone())]].concat();
                self.row(number + 1, &columns, at)
            }
            Step::Suffix(suffix) => {
                let key: Bytes = [&at.key[..], suffix].concat().into();
                if key.len() > 65_536 {
                    self.explain.skipped.not_a_key += 1;
                    return Ok(());
                }
                self.key(number + 1, columns, (&key, at.level))
            }
            Step::GetLevel => {
                let level = Column::Text(at.level.to_string().into_bytes().into());
                self.row(number + 1, &[columns, &[level]].concat(), at)
            }
            Step::Once => {
                let (met, count) = &mut self.met[number];
                if met.contains(&at.key) {
                    self.explain.skipped.met_before += 1;
                    return Ok(());
                }
                *count += weight(&at.key);
                if *count > self.limits.remembered {
                    return Err(Some(Limit::Remembered));
                }
                met.insert(at.key.clone());
                self.row(number + 1, columns, at)
            }
            Step::Skip(count) => {
                self.passed[number] += 1;
                let is_skipped = self.passed[number] <= *count;
                if is_skipped { Ok(()) } else { self.row(number + 1, columns, at) }
            }
            Step::Take(count) => {
                self.passed[number] += 1;
                self.row(number + 1, columns, at)?;
                if self.passed[number] == *count { Err(None) } else { Ok(()) }
            }
            Step::Each { by_key } => {
                let elements = self.list(&at.key)?.unwrap_or_default();
                elements.iter().try_for_each(|element| {
                    self.element(element, *by_key, |oracle, key| {
                        oracle.key(number + 1, columns, (&key, at.level))
                    })
                })
            }
            Step::Range(range) => {
                let entries = self.entries(&at.key, range)?.unwrap_or_default();
                entries.iter().try_for_each(|(key, value)| {
                    self.element(value, range.by_key, |oracle, target| {
                        let name = range.with_keys.then(|| Column::Text(key.clone()));
                        let columns: Vec<_> = columns.iter().cloned().chain(name).collect();
                        oracle.key(number + 1, &columns, (&target, at.level))
                    })
                })
            }
            Step::Find(_) => unreachable!("no generated plan has one"),
            Step::Walk { via, depth, once, by_key } => {
                self.walk(number, columns, at, (via, *depth, *once, *by_key))
            }
            Step::Fields { .. }
            | Step::Follow { .. }
            | Step::Where(_)
            | Step::Get(_)
            | Step::GetAll => self.content_step(number, columns, at),
        }
    }

    fn content_step(&mut self, number: usize, columns: &[Column], at: At) -> Flow {
        let Some(thing) = self.content(&at)? else { return Ok(()) };
        let at = At { visited: true, ..at };
        let field = |name: &Bytes| match &thing {
            Thing::Hash(fields) => fields.get(name).cloned(),
            _ => None,
        };
        let mut columns = columns.to_vec();
        let steps = self.steps;
        match &steps[number] {
            Step::Follow { field: name, by_key } => {
                let Some(value) = field(name) else {
                    self.explain.skipped.missing_field += 1;
                    return Ok(());
                };
                let target = self.target(&value, *by_key);
                return target
                    .map_or(Ok(()), |key| self.key(number + 1, &columns, (&key, at.level)));
            }
            Step::Fields { by_key } => {
                let Thing::Hash(fields) = no_text(thing) else { return Ok(()) };
                return fields.values().try_for_each(|value| {
                    self.element(value, *by_key, |oracle, key| {
                        oracle.key(number + 1, &columns, (&key, at.level))
                    })
                });
            }
            Step::Where(condition) => {
                let value = field(&condition.field);
                if !condition.holds(value.as_ref().map(|value| &**value.text())) {
                    self.explain.skipped.filtered += 1;
                    return Ok(());
                }
            }
            Step::Get(names) => columns.extend(names.iter().map(|name| {
                field(name).map_or(Column::Nil, |value| Column::Text(value.text().clone()))
            })),
            _ => columns.push(match &thing {
                Thing::Hash(fields) => Column::Fields(
                    fields
                        .iter()
                        .map(|(name, value)| (name.clone(), value.text().clone()))
                        .collect(),
                ),
                Thing::Text(text) => Column::Text(text.clone()),
                Thing::List(_) | Thing::Ordered(_) => unreachable!("it is an item"),
            }),
        }
        self.row(number + 1, &columns, at)
    }

    fn walk(
        &mut self,
        number: usize,
        columns: &[Column],
        at: At,
        (via, depth, once, by_key): (&Bytes, u32, bool, bool),
    ) -> Flow {
        let mut met = BTreeSet::from([at.key.clone()]);
        let (mut count, mut level) = (0, vec![at]);
        for depth_left in (0..depth).rev() {
            let mut next = Vec::new();
            for item in level {
                let Some(Thing::Hash(fields)) = self.content(&item)?.map(no_text) else { continue };
                let Some(value) = fields.get(via) else {
                    self.explain.skipped.missing_field += 1;
                    continue;
                };
                let Some(list) = self.target(value, by_key) else { continue };
                for element in self.list(&list)?.unwrap_or_default() {
                    self.element(&element, by_key, |oracle, key| {
                        if once && met.contains(&key) {
                            oracle.explain.skipped.met_before += 1;
                            return Ok(());
                        }
                        if once || depth_left > 0 {
                            count += weight(&key);
                        }
                        if count > oracle.limits.remembered {
                            return Err(Some(Limit::Remembered));
                        }
                        met.insert(key.clone());
                        let found = depth - depth_left;
                        next.push(At { key: key.clone(), visited: false, level: found });
                        oracle.key(number + 1, columns, (&key, found))
                    })?;
                }
            }
            level = next;
        }
        Ok(())
    }

    fn end(&mut self, columns: &[Column]) -> Flow {
        if self.rows.len() as u64 == self.limits.rows {
            return Err(Some(Limit::Rows));
        }
        let texts = |column: &Column| match column {
            Column::Nil => 0,
            Column::Text(text) => text.len(),
            Column::Fields(fields) => {
                fields.iter().map(|(one, other)| one.len() + other.len()).sum()
            }
        };
        let bytes = columns.iter().map(|column| 16 + texts(column)).sum::<usize>() + 16;
        if self.bytes + bytes as u64 > self.limits.bytes {
            return Err(Some(Limit::Bytes));
        }
        self.bytes += bytes as u64;
        self.rows.push(columns.to_vec());
        Ok(())
    }
}

/// A string has no fields.
fn no_text(thing: Thing) -> Thing {
    match thing {
        Thing::Text(_) => Thing::Hash(Default::default()),
        other => other,
    }
}

fn weight(key: &Bytes) -> u64 {
    1 + key.len() as u64 / 64
}
