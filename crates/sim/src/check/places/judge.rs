//! Whether the observations agree with the versions that may have been current.

use super::lives::{Life, Lives};
use super::{Act, Look, Number, ObjectPart, Places, Seen};
use crate::history::Violation;
use crate::places::{has_name, may_expire, refine_of, refined_holds};
use remora_client_core::{Predicate, Rect};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Violations reported for one world: more of them add no information.
const TOLD: usize = 3;

const ONCE: &str = "a search shows a place once";
const SHOWN: &str = "a place that is shown was there";
const MISSED: &str = "a search shows every place that was there all the time";
const COUNTED: &str = "a count is one of what was there";
const ORDERED: &str = "the nearest places come in order";
const WHOLE: &str = "a tree that goes to another key is seen whole or not at all";
const CHANGED: &str = "a change says truly whether a place was there";

/// Whether an object certainly comes after another one that is equally near: the
/// lesser word comes first, and surrogates are greater than integers.
fn is_after(one: u64, other: u64) -> bool {
    match (has_name(one) || may_expire(one), has_name(other) || may_expire(other)) {
        (false, false) => one > other,
        (true, false) => has_name(one),
        _ => false,
    }
}

impl Places {
    /// The impossible observations.
    pub fn judge(&self) -> Vec<Violation> {
        let lives = Lives::of(self);
        let wrong = self.looks.iter().filter_map(|look| {
            let (promise, why) = self.judge_one(look, &lives)?;
            let Look { tree, from_ns, to_ns, .. } = look;
            let seen = format!("tree {tree}, {from_ns}..{to_ns}: {why}");
            Some(Violation { promise, seen })
        });
        wrong.take(TOLD).collect()
    }

    fn judge_one(&self, look: &Look, lives: &Lives) -> Option<(&'static str, String)> {
        match &look.seen {
            Seen::Window { window, predicate, found } => {
                let holds = |rect: &Rect| predicate.holds(rect, window);
                self.judge_window(look, lives, found, &holds)
                    .map(|(promise, why)| (promise, format!("{predicate:?} {window:?}: {why}")))
            }
            Seen::Refined { window, found } => {
                let refine = refine_of(window);
                let holds = |rect: &Rect| refined_holds(&refine, rect);
                self.judge_window(look, lives, found, &holds)
                    .map(|(promise, why)| (promise, format!("geometries {window:?}: {why}")))
            }
            Seen::Count { window, predicate, count } => {
                self.judge_count(look, lives, (window, *predicate), *count)
            }
            Seen::Nearest { point, wanted, found } => {
                self.judge_nearest(look, lives, *point, *wanted, found)
            }
            Seen::Object { id, found } => self.judge_object(look, lives, *id, *found),
            Seen::Changed { act, id, was_there } => {
                let register = (look.tree, *id, ObjectPart::Rect);
                let mut others = lives
                    .between(register, look.from_ns, look.to_ns)
                    .filter(|life| life.act != Some(*act));
                if others.any(|life| life.number.is_some() == *was_there) {
                    return None;
                }
                let why = format!("was there: {was_there}\n{}", self.tell(look, lives, *id));
                Some((CHANGED, why))
            }
        }
    }

    /// The found objects, if each was a version that may have been current, and is shown once.
    fn judge_shown(
        &self,
        look: &Look,
        lives: &Lives,
        found: &[(u64, Rect)],
    ) -> Result<BTreeMap<u64, Number>, (&'static str, String)> {
        let mut numbers = BTreeMap::new();
        for (id, rect) in found {
            let shown = |promise| {
                (promise, format!("object {id} at {rect:?}\n{}", self.tell(look, lives, *id)))
            };
            let number = self.version_of(look.tree, *id, rect);
            let mut may =
                lives.between((look.tree, *id, ObjectPart::Rect), look.from_ns, look.to_ns);
            let Some(number) = number.filter(|_| may.any(|life| life.number == number)) else {
                return Err(shown(SHOWN));
            };
            if numbers.insert(*id, number).is_some() {
                return Err(shown(ONCE));
            }
        }
        Ok(numbers)
    }

    fn judge_window(
        &self,
        look: &Look,
        lives: &Lives,
        found: &[(u64, Rect)],
        holds: &dyn Fn(&Rect) -> bool,
    ) -> Option<(&'static str, String)> {
        let numbers = match self.judge_shown(look, lives, found) {
            Ok(numbers) => numbers,
            Err(wrong) => return Some(wrong),
        };
        if let Some((id, rect)) = found.iter().find(|(_, rect)| !holds(rect)) {
            return Some((SHOWN, format!("object {id} at {rect:?} is not what was searched for")));
        }
        let missed = lives
            .objects(look.tree, look.from_ns, look.to_ns)
            .filter(|(id, _)| !numbers.contains_key(id))
            .find(|(_, versions)| versions.clone().all(|life| self.is_one(life, holds)));
        if let Some((id, _)) = missed {
            return Some((MISSED, format!("object {id}\n{}", self.tell(look, lives, id))));
        }
        let acts = self.whole.get(&look.tree).into_iter().flatten();
        acts.filter_map(|&act| self.judge_whole(look, lives, &numbers, holds, act)).next()
    }

    /// Whether some objects were seen as this change found them, and others as it left
    /// them.
    fn judge_whole(
        &self,
        look: &Look,
        lives: &Lives,
        numbers: &BTreeMap<u64, Number>,
        holds: &dyn Fn(&Rect) -> bool,
        act: Act,
    ) -> Option<(&'static str, String)> {
        let asked_ns = self.spans[act].asked_ns;
        let (mut found, mut left) = (None, None);
        for (id, versions) in lives.objects(look.tree, look.from_ns, look.to_ns) {
            let shown = numbers.get(&id).copied();
            let is_shown = |life: &&Life| match shown {
                Some(_) => life.number == shown,
                None => !self.is_one(life, holds),
            };
            let is_left = |life: &Life| life.from_ns >= asked_ns;
            let mut may = versions.filter(is_shown);
            // It may be either.
            let Some(first) = may.next().map(is_left) else { continue };
            if may.all(|life| is_left(life) == first) {
                *if first { &mut left } else { &mut found } = Some(id);
            }
        }
        let (found, left) = (found?, left?);
        let seen = [("before", found), ("after", left)]
            .map(|(when, id)| format!("object {id} {when} it\n{}", self.tell(look, lives, id)));
        Some((WHOLE, format!("asked for {asked_ns}: {}", seen.concat())))
    }

    /// Whether a version is one that is searched for.
    fn is_one(&self, life: &Life, holds: &dyn Fn(&Rect) -> bool) -> bool {
        life.number.is_some_and(|number| holds(&self.versions[number as usize].rect))
    }

    fn judge_count(
        &self,
        look: &Look,
        lives: &Lives,
        (window, predicate): (&Rect, Predicate),
        count: u64,
    ) -> Option<(&'static str, String)> {
        let holds = |rect: &Rect| predicate.holds(rect, window);
        let (mut least, mut most) = (0, 0);
        for (_, versions) in lives.objects(look.tree, look.from_ns, look.to_ns) {
            least += versions.clone().all(|life| self.is_one(life, &holds)) as u64;
            most += { versions }.any(|life| self.is_one(life, &holds)) as u64;
        }
        let is_right = (least..=most).contains(&count);
        (!is_right)
            .then(|| (COUNTED, format!("{predicate:?} {window:?}: {count}, not {least} to {most}")))
    }

    fn judge_nearest(
        &self,
        look: &Look,
        lives: &Lives,
        (x, y): (f64, f64),
        wanted: usize,
        found: &[(u64, Rect)],
    ) -> Option<(&'static str, String)> {
        if let Err(wrong) = self.judge_shown(look, lives, found) {
            return Some(wrong);
        }
        if found.len() > wanted {
            return Some((ORDERED, format!("{} places, not {wanted}", found.len())));
        }
        let distance = |rect: &Rect| rect.distance_squared(x, y);
        for (id, mut versions) in lives.objects(look.tree, look.from_ns, look.to_ns) {
            let (only, other) = (versions.next(), versions.next());
            let Some((number, None)) = only.and_then(|life| life.number).map(|n| (n, other)) else {
                continue;
            };
            let stable = distance(&self.versions[number as usize].rect);
            let is_behind = |other: u64, rect: &Rect| {
                let far = distance(rect);
                far > stable || (far == stable && is_after(other, id))
            };
            let at = found.iter().position(|(other, _)| *other == id);
            let before = &found[..at.unwrap_or(found.len())];
            let is_cut = at.is_none() && found.len() < wanted;
            if is_cut || before.iter().any(|(other, rect)| is_behind(*other, rect)) {
                let why = format!("object {id} of {found:?} to ({x}, {y}), {wanted} wanted");
                return Some((ORDERED, format!("{why}\n{}", self.tell(look, lives, id))));
            }
        }
        None
    }

    fn judge_object(
        &self,
        look: &Look,
        lives: &Lives,
        id: u64,
        found: Option<(Rect, Option<Number>)>,
    ) -> Option<(&'static str, String)> {
        let may_be = |part, number: Option<Number>| {
            let mut may = lives.between((look.tree, id, part), look.from_ns, look.to_ns);
            may.any(|life| life.number == number)
        };
        // An object that was never written is absent.
        let is_unknown = |part| lives.all((look.tree, id, part)).is_empty();
        let agrees = |part, number: Option<Number>| match number {
            None => is_unknown(part) || may_be(part, None),
            number => may_be(part, number),
        };
        let is_right = match found {
            None => agrees(ObjectPart::Rect, None) && agrees(ObjectPart::Data, None),
            Some((rect, data)) => {
                let number = self.version_of(look.tree, id, &rect);
                number.is_some()
                    && agrees(ObjectPart::Rect, number)
                    && agrees(ObjectPart::Data, data)
            }
        };
        (!is_right)
            .then(|| (SHOWN, format!("object {id}: {found:?}\n{}", self.tell(look, lives, id))))
    }

    /// The versions of an object around a look.
    fn tell(&self, look: &Look, lives: &Lives, id: u64) -> String {
        let mut text = String::new();
        for part in [ObjectPart::Rect, ObjectPart::Data] {
            for life in lives.all((look.tree, id, part)) {
                let Life { act, number, from_ns, to_ns } = *life;
                let near = from_ns <= look.to_ns.saturating_add(1_000_000)
                    && to_ns.saturating_add(1_000_000) >= look.from_ns;
                if !near {
                    continue;
                }
                let rect = number.filter(|_| part == ObjectPart::Rect);
                let rect = rect.map(|number| self.versions[number as usize].rect);
                let done = act.map(|act| self.spans[act].done_ns);
                let _ = write!(text, "\n  {part:?} {number:?} {rect:?} asked for {from_ns}, ");
                let _ = match done.filter(|&done| done < u64::MAX) {
                    Some(done) => write!(text, "done {done}, "),
                    None => write!(text, "done at an unknown time, "),
                };
                let _ = match to_ns {
                    u64::MAX => write!(text, "may be current"),
                    to_ns => write!(text, "not current after {to_ns}"),
                };
            }
        }
        text
    }
}
