//! Plans: one question over many keys.

use crate::error::{CommandError, KEYS_ARE_INTEGERS, status_error};
use crate::form::PlanForm;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Group, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_plan::text::{Query, parse};
use remora_plan::{Column, Explain, Limit, OutcomeReader, Skipped};
use remora_protocol::message::Status;

const EXPLAIN: Argument = Argument::word("explain", "EXPLAIN").optional();
const START: Argument = Argument::new("start", Kind::String).after("FROM");
const STEPS: Argument = Argument::new("step", Kind::String).optional().multiple();

const PLAN_RUN: CommandSpec = CommandSpec {
    name: "plan.run",
    arity: -3,
    flags: &[Flag::ReadOnly],
    categories: &["hash", "list", "geo"],
    since: "0.1.0",
    group: Group::own("plan", "Plans"),
    summary: "Runs a plan: follows links and keys from a start, tests, and returns columns of the items.",
    complexity: "O(N) where N is the number of items, elements and objects that it visits",
    notes: "The words of starts, steps and limits are in docs/plans.md. The reply is an array of rows, each an \
array of columns. With EXPLAIN it is a map, which also has counts and the limit that was reached. Without EXPLAIN a plan \
that reaches a limit is an error, as rows are missing. The server runs it in turns; its keys may lie in any shard. In a \
cluster MOVED says where the key lies that it begins with, and it ends with CROSSSLOT where it comes to a key of another \
group.",
    arguments: &[EXPLAIN, START, STEPS],
    parse: plan_run,
    ..CommandSpec::PLAIN
};

fn plan_run(words: Words<'_>, _now_ms: u64) -> ParseResult<'_> {
    let plan: Vec<&[u8]> = (1..words.len()).map(|at| words.get(at)).collect();
    match parse(&plan) {
        Ok(Query { plan, explain }) => {
            let form = if explain { PlanForm::Explained } else { PlanForm::Rows };
            Ok(Request::Plan(Box::new(plan), form))
        }
        Err(error) => Err(CommandError::Plan(Box::new(error))),
    }
}

/// The outcome of a plan, written row by row.
#[derive(Debug)]
pub struct OutcomeReply {
    outcome: OutcomeReader,
    form: PlanForm,
    is_open: bool,
}

/// Bytes of rows that are written in one piece.
const PIECE_BYTES: usize = 64 << 10;

impl OutcomeReply {
    /// The reply to a plan with this outcome. None: it is an error ([`write_refused`]).
    pub fn new(value: &mut Option<Vec<u8>>, form: PlanForm) -> Option<Self> {
        // The first byte says whether there is a limit.
        let is_whole = form == PlanForm::Explained
            || value.as_ref().is_some_and(|value| value.first() == Some(&0));
        let outcome = OutcomeReader::new(value.take_if(|_| is_whole)?)?;
        Some(Self { outcome, form, is_open: false })
    }

    /// Bytes of its source.
    pub fn bytes(&self) -> usize {
        self.outcome.bytes()
    }

    /// Appends the next piece. Whether it was the last one.
    pub fn write_piece(&mut self, out: &mut Vec<u8>, version: RespVersion) -> bool {
        let Self { outcome, form, is_open } = self;
        if *form == PlanForm::Only {
            let row = outcome.next_row().unwrap_or_default();
            write_column(out, version, row.first().unwrap_or(&Column::Nil));
            return true;
        }
        if !std::mem::replace(is_open, true) {
            if *form == PlanForm::Explained {
                write_explain(out, version, outcome);
            }
            encode::array(out, outcome.rows());
        }
        let before = out.len();
        while out.len() - before < PIECE_BYTES {
            let Some(row) = outcome.next_row() else { return true };
            encode::array(out, row.len());
            row.iter().for_each(|column| write_column(out, version, column));
        }
        outcome.rows() == 0
    }
}

fn write_column(out: &mut Vec<u8>, version: RespVersion, column: &Column) {
    match column {
        Column::Nil => encode::null(out, version),
        Column::Text(text) => encode::bulk(out, text),
        Column::Fields(fields) => {
            encode::map(out, version, fields.len());
            for (name, value) in fields.iter() {
                encode::bulk(out, name);
                encode::bulk(out, value);
            }
        }
    }
}

/// Appends all of an explained reply but the rows.
fn write_explain(out: &mut Vec<u8>, version: RespVersion, outcome: &OutcomeReader) {
    let Explain { hops, items, lists, elements, objects, ref skipped, batches, .. } =
        *outcome.explain();
    let counts = [
        ("hops", hops),
        ("visits", outcome.explain().visits()),
        ("items", items),
        ("lists", lists),
        ("elements", elements),
        ("objects", objects),
        ("batches", batches),
    ];
    encode::map(out, version, counts.len() + 3);
    encode::bulk(out, b"limit");
    encode::bulk_or_null(out, version, outcome.limit().map(|limit| limit.name().as_bytes()));
    let count = |out: &mut Vec<u8>, (name, number): (&str, u64)| {
        encode::bulk(out, name.as_bytes());
        encode::integer(out, number as i64);
    };
    counts.into_iter().for_each(|of| count(out, of));
    encode::bulk(out, b"skipped");
    let Skipped { gone, other_type, missing_field, not_a_link, not_a_key, filtered, met_before } =
        *skipped;
    let skipped = [
        ("gone", gone),
        ("other_type", other_type),
        ("missing_field", missing_field),
        ("not_a_link", not_a_link),
        ("not_a_key", not_a_key),
        ("filtered", filtered),
        ("met_before", met_before),
    ];
    encode::map(out, version, skipped.len());
    skipped.into_iter().for_each(|of| count(out, of));
    encode::bulk(out, b"rows");
}

/// Appends the error of a plan that was not run, or, without EXPLAIN, not to its end.
pub fn write_refused(out: &mut Vec<u8>, answer: ShardAnswer<'_>) {
    let text = match answer.status {
        Status::TryAgain => "TRYAGAIN the role of the server changed while the plan ran".into(),
        Status::TooLarge => "ERR the values that the plan looks at are too long".into(),
        // A bound of RANGE: steps have no other keys that must be integers.
        Status::NotAnInteger => KEYS_ARE_INTEGERS.into(),
        // Not MOVED, which would have to say where: clients would send the plan there.
        Status::OtherGroup => {
            "CROSSSLOT the plan has come to a key of another group of the cluster".into()
        }
        Status::Ok => {
            let outcome = answer.value.and_then(|value| OutcomeReader::new(value.to_vec()));
            let rows = outcome.as_ref().map_or(0, OutcomeReader::rows);
            let limit = outcome.and_then(|outcome| outcome.limit());
            let name = limit.map_or("", Limit::name);
            let remedy = limit.map_or("", remedy);
            format!("ERR the plan reached its limit {name} behind {rows} rows: {remedy}").into()
        }
        status => {
            status_error(status, "plan.run").unwrap_or_else(|| "ERR the plan was not run".into())
        }
    };
    encode::error(out, &text);
}

/// What to do about a limit.
const fn remedy(limit: Limit) -> &'static str {
    match limit {
        Limit::Window => "ask for a smaller window",
        Limit::Nearest => {
            "ask for fewer objects, keep those that meet the conditions in a tree of their own, or say EXPLAIN to get these rows"
        }
        Limit::Visits | Limit::Rows | Limit::Bytes | Limit::Remembered | Limit::Time => {
            "raise it by LIMIT, or say EXPLAIN to get these rows"
        }
    }
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[PLAN_RUN];

#[cfg(test)]
mod tests {
    use super::*;
    use remora_plan::Outcome;

    fn refused(status: Status, limit: Option<Limit>) -> String {
        let rows = vec![vec![Column::Nil]];
        let outcome = Outcome { rows, limit, ..Outcome::default() }.to_bytes();
        let value = (status == Status::Ok).then_some(&*outcome);
        let mut out = Vec::new();
        write_refused(&mut out, ShardAnswer { status, number: 0, value });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_bound_that_is_no_key_of_a_tree_of_integers_says_which_keys_there_are() {
        let keys = "-ERR keys of this tree are integers from 0 to 18446744073709551615, in decimal";
        assert_eq!(refused(Status::NotAnInteger, None), format!("{keys}\r\n"));
    }

    #[test]
    fn a_limit_that_limit_cannot_raise_says_what_to_do() {
        let text = |limit| refused(Status::Ok, Some(limit));
        let begin = |name| format!("-ERR the plan reached its limit {name} behind 1 rows: ");
        for limit in [Limit::Visits, Limit::Rows, Limit::Bytes, Limit::Remembered, Limit::Time] {
            let raise = "raise it by LIMIT, or say EXPLAIN to get these rows\r\n";
            assert_eq!(text(limit), begin(limit.name()) + raise);
        }
        assert_eq!(text(Limit::Window), begin("WINDOW") + "ask for a smaller window\r\n");
        let nearest = text(Limit::Nearest);
        assert!(nearest.starts_with(&(begin("NEAREST") + "ask for fewer objects, ")), "{nearest}");
        assert!(!nearest.contains("by LIMIT"), "{nearest}");
    }

    #[test]
    fn a_key_of_another_group_is_no_redirection() {
        // A client of a cluster reads MOVED and ASK as a slot and an address.
        let text = refused(Status::OtherGroup, None);
        assert!(
            text.starts_with("-CROSSSLOT the plan has come to a key of another group"),
            "{text}"
        );
    }
}
