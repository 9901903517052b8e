//! A plan as words, up to the end of the line, and any answers to what its run wants: READs of other processes'
//! memory and other servers' replies come to it as they are. The run ends within its limits, and its outcome
//! has one form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_plan::limits::{BATCH_WANTS, RESULT_PART_BYTES};
use remora_plan::{Bytes, Column, Fields, Given, Object, Outcome, Run, Value, Want, text};

/// Bytes that answers are made of. Where there are no more, keys hold nothing: so each run ends.
struct Answers<'a>(&'a [u8]);

impl Answers<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    /// A short text, or the next bytes up to a length that they say.
    fn text(&mut self) -> Bytes {
        let length = usize::from(self.byte()).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        text.into()
    }

    /// One of these names, or another one.
    fn name(&mut self, names: &[Bytes]) -> Bytes {
        match names.get(usize::from(self.byte())) {
            Some(name) => name.clone(),
            None => self.text(),
        }
    }

    fn value(&mut self) -> Value {
        match self.byte() % 3 {
            0 => Value::Plain(self.text()),
            1 => Value::Link { key: self.text(), hint: None },
            _ => Value::Link { key: self.text(), hint: Some(self.byte().into()) },
        }
    }

    /// An answer, which need not fit the want.
    fn given(&mut self, want: &Want) -> Given {
        let names = match want {
            Want::Item { fields: Fields::Some(names), .. }
            | Want::Objects { fields: names, .. } => names.clone(),
            _ => [].into(),
        };
        match self.byte() % 8 {
            0 => Given::Gone,
            1 => Given::OtherType,
            2 => Given::Text(self.text()),
            3 => Given::Hash((0..self.byte()).map(|_| (self.name(&names), self.value())).collect()),
            4 => {
                let elements = (0..self.byte()).map(|_| self.value()).collect();
                Given::List { elements, total: u64::from(self.byte()) << (self.byte() % 64) }
            }
            5 => {
                let entries = (0..self.byte()).map(|_| (self.text(), self.value())).collect();
                Given::Entries { entries, goes_on: self.byte() % 2 == 1 }
            }
            6 => {
                let field = |of: &mut Self| (of.text(), of.value());
                let document = |of: &mut Self| (0..of.byte() % 4).map(|_| field(of)).collect();
                let documents = (0..self.byte()).map(|_| document(self)).collect();
                Given::Documents { documents, next: (self.byte() > 0).then(|| self.text()) }
            }
            _ => {
                let object = |of: &mut Self| Object {
                    id: of.text(),
                    fields: (0..of.byte() % 4).map(|_| (of.name(&names), of.text())).collect(),
                };
                let objects = (0..self.byte()).map(|_| object(self)).collect();
                Given::Objects { objects, next: (self.byte() > 0).then(|| self.text()) }
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let line = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (line, answers) = input.split_at(line);
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let Ok(text::Query { plan, .. }) = text::parse(&words) else { return };
    let limits = *plan.limits();
    let (mut run, mut answers) = (Run::new(plan, 0, 1), Answers(answers));
    while run.outcome().is_none() {
        let wants = run.wants().to_vec();
        assert!((1..=BATCH_WANTS).contains(&wants.len()), "{}", wants.len());
        let is_turned = answers.byte() % 2 == 1;
        for at in 0..wants.len() {
            let number = if is_turned { wants.len() - 1 - at } else { at };
            assert!(
                run.give(number, answers.given(&wants[number])),
                "{number} waits for its answer"
            );
        }
    }
    assert!(run.wants().is_empty(), "an ended run wants nothing");
    let outcome = run.into_outcome().expect("it has ended");
    let columns = |row: &Vec<Column>| row.iter().map(Column::bytes).sum::<u64>();
    let bytes: u64 = outcome.rows.iter().map(|row| RESULT_PART_BYTES + columns(row)).sum();
    assert!(outcome.rows.len() as u64 <= limits.rows && bytes <= limits.bytes, "{limits:?}");
    assert_eq!(Outcome::from_bytes(&outcome.to_bytes()), Some(outcome));
});
