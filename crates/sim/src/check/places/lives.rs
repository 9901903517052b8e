//! When each version of an object may have been current.

use super::{Act, Number, ObjectPart, Places, Register, Seen};
use std::collections::BTreeMap;

/// A version's life: it was current within these times only, or never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// The change that made it; `None`: it was so from the beginning.
    pub act: Option<Act>,
    /// `None`: there was nothing.
    pub number: Option<Number>,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// The versions of each object that was ever written.
pub(super) struct Lives(BTreeMap<Register, Vec<Life>>);

impl Lives {
    pub fn of(places: &Places) -> Self {
        let done_ns = places.done_by();
        let restarts_ns = places.restarts();
        let registers = places.changes.iter().map(|(&register, changes)| {
            let clears =
                places.clears.iter().filter(|(_, tree)| tree.is_none_or(|t| t == register.0));
            let clears = clears.map(|&(act, _)| (act, None));
            let changes = changes.iter().copied().chain(clears);
            let changes = changes.filter(|&(act, _)| !places.spans[act].is_refused);
            (register, places.lives(changes.collect(), &done_ns, &restarts_ns))
        });
        Self(registers.collect())
    }

    /// The versions of an object that may have been current at some moment
    /// between these times.
    pub fn between(
        &self,
        register: Register,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = &Life> + Clone {
        current(self.all(register), from_ns, to_ns)
    }

    /// The objects of a tree, each with the versions that may have been current
    /// between these times.
    pub fn objects(
        &self,
        tree: u32,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = (u64, impl Iterator<Item = &Life> + Clone)> {
        let of_tree =
            self.0.range((tree, 0, ObjectPart::Rect)..=(tree, u64::MAX, ObjectPart::Data));
        let rects = of_tree.filter(|((_, _, part), _)| *part == ObjectPart::Rect);
        rects.map(move |((_, id, _), all)| (*id, current(all, from_ns, to_ns)))
    }

    /// All versions of an object.
    pub fn all(&self, register: Register) -> &[Life] {
        self.0.get(&register).map_or(&[], Vec::as_slice)
    }
}

fn current(all: &[Life], from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Life> + Clone {
    let begun = all.iter().take_while(move |life| life.from_ns <= to_ns);
    begun.filter(move |life| life.to_ns >= from_ns)
}

impl Places {
    /// The time by which each change has certainly taken effect: when it was answered, or a client
    /// had seen its result; `u64::MAX` if that is not known.
    fn done_by(&self) -> Vec<u64> {
        let mut done_ns: Vec<u64> = self.spans.iter().map(|span| span.done_ns).collect();
        for look in &self.looks {
            let mut saw = |act: Act| done_ns[act] = done_ns[act].min(look.to_ns);
            let mut saw_rect = |id, rect| {
                let number = self.version_of(look.tree, id, rect);
                number.into_iter().for_each(|number| saw(self.versions[number as usize].act));
            };
            match &look.seen {
                Seen::Window { found, .. }
                | Seen::Refined { found, .. }
                | Seen::Nearest { found, .. } => {
                    found.iter().for_each(|(id, rect)| saw_rect(*id, rect));
                }
                Seen::Object { id, found: Some((rect, data)) } => {
                    saw_rect(*id, rect);
                    let version = data.and_then(|number| self.versions.get(number as usize));
                    version.into_iter().for_each(|version| saw(version.act));
                }
                Seen::Object { .. } | Seen::Count { .. } | Seen::Changed { .. } => {}
            }
        }
        done_ns
    }

    /// The lives of one object's versions, by their beginnings. A version ends at the latest when a
    /// later change has taken effect: one that was requested after this version's change had, or
    /// could have, taken effect.
    fn lives(
        &self,
        changes: Vec<(Act, Option<Number>)>,
        done_ns: &[u64],
        restarts_ns: &[u64],
    ) -> Vec<Life> {
        let mut changes: Vec<(Option<Act>, Option<Number>)> = std::iter::once((None, None))
            .chain(changes.into_iter().map(|(act, number)| (Some(act), number)))
            .collect();
        let asked_ns = |act: Option<Act>| act.map_or(0, |act| self.spans[act].asked_ns);
        let done_ns = |act: Option<Act>| act.map_or(0, |act| done_ns[act]);
        let bound_ns = |act: Option<Act>| act.map_or(0, |act| self.spans[act].bound_ns);
        // The initial state stays first.
        changes.sort_by_key(|&(act, _)| asked_ns(act));
        // The first of those from here on to have taken effect.
        let mut first_done_ns = vec![u64::MAX; changes.len() + 1];
        for (at, &(act, _)) in changes.iter().enumerate().rev() {
            first_done_ns[at] = first_done_ns[at + 1].min(done_ns(act));
        }
        let life = |&(act, number): &(Option<Act>, Option<Number>)| {
            let latest_ns = done_ns(act).min(bound_ns(act));
            let after = match act {
                Some(_) => changes.partition_point(|&(other, _)| asked_ns(other) <= latest_ns),
                None => 1,
            };
            let is_restart = act.is_some_and(|act| self.spans[act].is_restart);
            let next = restarts_ns.partition_point(|&restart_ns| restart_ns <= asked_ns(act));
            let restart_ns = restarts_ns.get(next).filter(|_| !is_restart);
            let to_ns = first_done_ns[after].min(restart_ns.copied().unwrap_or(u64::MAX));
            Life { act, number, from_ns: asked_ns(act), to_ns }
        };
        changes.iter().map(life).collect()
    }

    /// When each new server began to serve, in order.
    fn restarts(&self) -> Vec<u64> {
        let restarts = self.clears.iter().map(|&(act, _)| &self.spans[act]);
        restarts.filter(|span| span.is_restart).map(|span| span.done_ns).collect()
    }
}
