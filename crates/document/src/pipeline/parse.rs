//! From an array of stages to a pipeline.

use super::facet::Facet;
use super::graph_lookup::GraphLookup;
use super::group::Group;
use super::lookup::Lookup;
use super::redact::Redact;
use super::sink::Sink;
use super::source::{Source, both};
use super::stage::{Node, Pipeline, Sample, Stage};
use super::union_with::UnionWith;
use super::unwind::Unwind;
use crate::error::{
    COMMAND_NOT_SUPPORTED, DocumentError, FAILED_TO_PARSE, SUB_PIPELINE_DEPTH, TYPE_MISMATCH,
};
use crate::expression::Expression;
use crate::filter::{Filter, name_of_type};
use crate::geo::GeoNear;
use crate::number::Number;
use crate::projection::Shape;
use crate::raw::{append, elements, fields};
use crate::sort::SortKeys;
use crate::sorter::Sorter;
use crate::validate::value_at;
use crate::variables::Variables;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use remora_layout::limits::{MAX_PIPELINE_STAGES, MAX_SUB_PIPELINES};
use std::collections::VecDeque;
use std::sync::Arc;

impl Pipeline {
    /// Parses the stages of a pipeline.
    ///
    /// # Errors
    /// As MongoDB: an unknown stage, a stage at a wrong place, a wrong argument.
    pub fn parse(stages: &RawArray, variables: &Variables) -> Result<Pipeline, DocumentError> {
        pipeline(stages, variables, Place::Top)
    }
}

type Parsed<T> = Result<T, DocumentError>;

fn fail<T>(code: i32, text: impl Into<String>) -> Parsed<T> {
    Err(DocumentError::new(code, text))
}

/// Where a pipeline stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the command's.
    Top,
    /// It is a stage's, so many pipelines deep.
    Inside(usize),
    /// It is one of `$facet`.
    Facet(usize),
}

impl Place {
    fn depth(self) -> usize {
        match self {
            Place::Top => 0,
            Place::Inside(depth) | Place::Facet(depth) => depth,
        }
    }
}

/// Parses the stages of a pipeline. [`MAX_SUB_PIPELINES`] bounds the recursion.
pub(super) fn pipeline(stages: &RawArray, variables: &Variables, place: Place) -> Parsed<Pipeline> {
    if place == Place::Top {
        value_at(RawBsonRef::Array(stages), 0).map_err(DocumentError::malformed)?;
    }
    if place.depth() > MAX_SUB_PIPELINES {
        let text = format!(
            "Maximum number of nested sub-pipelines exceeded. Limit is {MAX_SUB_PIPELINES}"
        );
        return fail(SUB_PIPELINE_DEPTH, text);
    }
    let mut parser = Parser {
        variables,
        place,
        source: Source::default(),
        nodes: Vec::new(),
        sink: None,
        pushes_down: !matches!(place, Place::Facet(_)),
        follows_near: false,
    };
    for (at, stage) in elements(stages).enumerate() {
        if at == MAX_PIPELINE_STAGES {
            let text =
                format!("Pipeline length must be no longer than {MAX_PIPELINE_STAGES} stages.");
            return fail(FAILED_TO_PARSE, text);
        }
        let RawBsonRef::Document(stage) = stage else {
            let text = "Each element of the 'pipeline' array must be an object";
            return fail(TYPE_MISMATCH, text);
        };
        let mut parts = fields(stage);
        let (Some((name, argument)), None) = (parts.next(), parts.next()) else {
            let text = "A pipeline stage specification object must contain exactly one field.";
            return fail(40323, text);
        };
        if let Some(sink) = &parser.sink {
            let name = if matches!(sink, Sink::Out { .. }) { "$out" } else { "$merge" };
            return fail(40601, format!("{name} can only be the final stage in the pipeline"));
        }
        parser.stage(name, argument, at == 0)?;
    }
    Ok(Pipeline {
        source: parser.source,
        at: parser.nodes.len().saturating_sub(1),
        nodes: parser.nodes,
        sink: parser.sink,
        variables: Arc::new(variables.clone()),
        inbox: VecDeque::new(),
        has_ended: false,
        asking: Vec::new(),
    })
}

/// The stages that make one document of each.
const ALLOWED: [&str; 6] =
    ["$addFields", "$project", "$replaceRoot", "$replaceWith", "$set", "$unset"];

/// Parses stages that make one document of each, as updates have them.
pub(super) fn document_stages(stages: &RawArray, variables: &Variables) -> Parsed<Pipeline> {
    for stage in elements(stages) {
        let RawBsonRef::Document(stage) = stage else {
            let text = "Each element of the 'pipeline' array must be an object";
            return Err(DocumentError::new(TYPE_MISMATCH, text));
        };
        if let Some((name, _)) = fields(stage).next()
            && name.starts_with('$')
            && !ALLOWED.contains(&name)
        {
            // What is no stage at all has an error of its own.
            pipeline(stages, variables, Place::Top)?;
            let text = format!("{name} is not allowed to be used within an update");
            return Err(DocumentError::new(FAILED_TO_PARSE, text));
        }
    }
    pipeline(stages, variables, Place::Top)
}

struct Parser<'v> {
    variables: &'v Variables,
    place: Place,
    source: Source,
    nodes: Vec<Node>,
    sink: Option<Sink>,
    /// Whether all stages so far are the source's.
    pushes_down: bool,
    /// Whether all stages so far are `$geoNear`, `$skip` and `$limit`: the source does these too.
    follows_near: bool,
}

impl Parser<'_> {
    fn add(&mut self, stage: Stage) {
        (self.pushes_down, self.follows_near) = (false, false);
        self.nodes.push(Node::new(stage));
    }

    fn stage(&mut self, name: &str, argument: RawBsonRef<'_>, is_first: bool) -> Parsed<()> {
        let variables = self.variables;
        match name {
            "$match" => self.filter(argument)?,
            "$sort" => self.sort(argument)?,
            "$limit" => self.limit(argument)?,
            "$skip" => self.skip(argument)?,
            "$project" => {
                let text = "$project specification must be an object";
                let shape = Shape::project(object(argument, 15969, text)?, variables)?;
                self.add(Stage::Shape(Arc::new(shape)));
            }
            "$addFields" | "$set" => {
                let text = format!("{name} specification stage must be an object");
                let shape = Shape::add_fields(object(argument, 40272, &text)?, variables)?;
                self.add(Stage::Shape(Arc::new(shape)));
            }
            "$unset" => self.unset(argument)?,
            "$replaceRoot" => {
                let text = format!(
                    "expected an object as specification for $replaceRoot stage, got {}",
                    name_of_type(argument.element_type())
                );
                let root = object(argument, 40229, &text)?;
                self.replace_root(root)?;
            }
            "$replaceWith" => {
                let root = Expression::parse(argument, variables)?;
                self.add(Stage::ReplaceRoot(root));
            }
            "$redact" => self.add(Stage::Redact(Redact::parse(argument, variables)?)),
            "$group" => self.add(Stage::Group(Box::new(Group::parse(argument, variables)?))),
            "$bucket" => self.bucket(argument)?,
            "$sortByCount" => self.sort_by_count(argument)?,
            "$count" => self.count(argument)?,
            "$sample" => self.sample(argument)?,
            "$unwind" => self.add(Stage::Unwind(Unwind::parse(argument)?)),
            _ => self.other(name, argument, is_first)?,
        }
        Ok(())
    }

    /// Stages with collections and pipelines, and those that are errors.
    fn other(&mut self, name: &str, argument: RawBsonRef<'_>, is_first: bool) -> Parsed<()> {
        let (variables, depth) = (self.variables, self.place.depth());
        if matches!(self.place, Place::Facet(_))
            && matches!(name, "$facet" | "$geoNear" | "$out" | "$merge" | "$documents")
        {
            return fail(40600, format!("{name} is not allowed to be used within a $facet stage"));
        }
        let inside = |stages: &RawArray, variables: &Variables| {
            pipeline(stages, variables, Place::Inside(depth + 1))
        };
        let of_facet = |stages: &RawArray, variables: &Variables| {
            pipeline(stages, variables, Place::Facet(depth + 1))
        };
        match name {
            "$lookup" => {
                let lookup = Lookup::parse(argument, variables, &inside)?;
                self.add(Stage::Lookup(Box::new(lookup)));
            }
            "$graphLookup" => {
                let lookup = GraphLookup::parse(argument, variables)?;
                self.add(Stage::GraphLookup(Box::new(lookup)));
            }
            "$unionWith" => {
                let union = UnionWith::parse(argument, variables, &inside)?;
                self.add(Stage::UnionWith(Box::new(union)));
            }
            "$facet" => self.add(Stage::Facet(Facet::parse(argument, variables, &of_facet)?)),
            "$documents" | "$geoNear" if !is_first => {
                return fail(
                    40602,
                    format!("{name} is only valid as the first stage in a pipeline."),
                );
            }
            "$documents" => {
                self.source.reads_collection = false;
                let values = Expression::parse(argument, variables)?;
                self.add(Stage::Documents { values, made: None });
            }
            "$geoNear" if self.place == Place::Top => {
                let text = "the $geoNear stage specification must be an object";
                self.source.geo_near = Some(GeoNear::parse(object(argument, 10065, text)?)?);
                // What follows sees the distances, but for a range.
                (self.pushes_down, self.follows_near) = (false, true);
            }
            "$out" | "$merge" if self.place != Place::Top => {
                return fail(
                    51047,
                    format!("{name} is not allowed within a pipeline of another stage"),
                );
            }
            "$out" => self.sink = Some(Sink::out(argument)?),
            "$merge" => {
                self.sink = Some(Sink::merge(argument, variables, &|stages, variables| {
                    document_stages(stages, variables).map(drop)
                })?)
            }
            _ if UNSUPPORTED.contains(&name) => {
                let text = format!("the stage {name} is not supported");
                return fail(COMMAND_NOT_SUPPORTED, text);
            }
            _ => {
                return fail(40324, format!("Unrecognized pipeline stage name: '{name}'"));
            }
        }
        Ok(())
    }

    fn filter(&mut self, argument: RawBsonRef<'_>) -> Parsed<()> {
        let text = "the match filter must be an expression in an object";
        let argument = object(argument, 15959, text)?;
        let filter = Filter::parse_with(argument, self.variables)?;
        if filter.near().is_some() {
            let text = "$geoNear, $near, and $nearSphere are not allowed in this context";
            return fail(NEAR_IN_MATCH, text);
        }
        // What matches does not depend on the order.
        let is_plain = self.pushes_down && self.source.skip == 0 && self.source.limit.is_none();
        // A search in another collection knows no variables, but the command's own does.
        let knows_variables = self.place == Place::Top || !filter.has_expression();
        if !is_plain {
            self.add(Stage::Match(Arc::new(filter)));
            return Ok(());
        }
        if knows_variables {
            self.source.filter = both(&self.source.filter, argument)?;
            return Ok(());
        }
        let mut rest = RawDocumentBuf::new();
        for (name, value) in fields(argument) {
            let mut part = RawDocumentBuf::new();
            append(&mut part, name, value)?;
            if !Filter::parse_with(&part, self.variables)?.has_expression() {
                append(&mut rest, name, value)?;
            }
        }
        self.source.filter = both(&self.source.filter, &rest)?;
        self.add(Stage::Match(Arc::new(filter)));
        Ok(())
    }

    fn sort(&mut self, argument: RawBsonRef<'_>) -> Parsed<()> {
        let text = "the $sort key specification must be an object";
        let argument = object(argument, 15973, text)?;
        let keys = SortKeys::parse(argument)?;
        let has_range = self.source.skip > 0 || self.source.limit.is_some();
        if self.pushes_down && !has_range {
            // A later sort decides.
            self.source.sort = Some(argument.to_owned());
            return Ok(());
        }
        self.add(Stage::Sort(Box::new(Sorter::new(keys, 0, None))));
        Ok(())
    }

    fn limit(&mut self, argument: RawBsonRef<'_>) -> Parsed<()> {
        let limit = number("$limit", 5_107_201, argument)?;
        if limit == 0 {
            return fail(15958, "the limit must be positive");
        }
        if self.pushes_down || self.follows_near {
            self.source.limit = Some(self.source.limit.map_or(limit, |known| known.min(limit)));
            return Ok(());
        }
        if let Some(Stage::Sort(sorter)) = self.nodes.last_mut().map(Node::stage_mut) {
            sorter.limit_to(limit);
            return Ok(());
        }
        self.add(Stage::Limit(limit));
        Ok(())
    }

    fn skip(&mut self, argument: RawBsonRef<'_>) -> Parsed<()> {
        let skip = number("$skip", 5_107_200, argument)?;
        if self.pushes_down || self.follows_near {
            self.source.skip = self.source.skip.saturating_add(skip);
            self.source.limit = self.source.limit.map(|limit| limit.saturating_sub(skip));
            return Ok(());
        }
        if let Some(Stage::Sort(sorter)) = self.nodes.last_mut().map(Node::stage_mut) {
            sorter.skip_more(skip);
            return Ok(());
        }
        self.add(Stage::Skip(skip));
        Ok(())
    }

    fn unset(&mut self, argument: RawBsonRef<'_>) -> Parsed<()> {
        let text = "$unset specification must be a string or an array";
        let wrong = || DocumentError::new(31002, text);
        let paths: Vec<&str> = match argument {
            RawBsonRef::String(path) => vec![path],
            RawBsonRef::Array(paths) if !paths.is_empty() => elements(paths)
                .map(|path| path.as_str())
                .collect::<Option<_>>()
                .ok_or_else(|| {
                    let text = "$unset specification must be a string or an array containing only string values";
                    DocumentError::new(31120, text)
                })?,
            _ => return Err(wrong()),
        };
        self.add(Stage::Shape(Arc::new(Shape::unset(&paths)?)));
        Ok(())
    }

    fn replace_root(&mut self, argument: &RawDocument) -> Parsed<()> {
        let mut root = None;
        for (name, value) in fields(argument) {
            match name {
                "newRoot" => root = Some(Expression::parse(value, self.variables)?),
                _ => {
                    let text = format!(
                        "unrecognized option to $replaceRoot stage: {name}, only valid option is 'newRoot'."
                    );
                    return fail(40230, text);
                }
            }
        }
        match root {
            Some(root) => {
                self.add(Stage::ReplaceRoot(root));
                Ok(())
            }
            None => fail(40231, "no newRoot specified for the $replaceRoot stage"),
        }
    }

    fn count(&mut self, argument: RawBsonRef<'_>) -> Parsed<()> {
        let name = match argument {
            RawBsonRef::String(name) if !name.is_empty() => name,
            _ => return fail(40156, "the count field must be a non-empty string"),
        };
        if name.starts_with('$') {
            return fail(40158, "the count field cannot be a $-prefixed path");
        }
        if name.contains('\0') {
            return fail(40159, "the count field cannot contain a null byte");
        }
        if name.contains('.') {
            return fail(40160, "the count field cannot contain '.'");
        }
        self.add(Stage::Count { name: name.to_owned(), count: 0 });
        Ok(())
    }

    fn sample(&mut self, argument: RawBsonRef<'_>) -> Parsed<()> {
        let text = "the $sample stage specification must be an object";
        let mut size = None;
        for (name, value) in fields(object(argument, 28745, text)?) {
            if name != "size" {
                return fail(28748, format!("unrecognized option to $sample: {name}"));
            }
            size = match Number::of(value).and_then(Number::integer_part) {
                Some((size @ 0.., _)) => Some(size.unsigned_abs()),
                Some(_) => return fail(28747, "size argument to $sample must not be negative"),
                None => return fail(28746, "size argument to $sample must be a number"),
            };
        }
        match size {
            Some(size) => {
                self.add(Stage::Sample(Sample::new(size)));
                Ok(())
            }
            None => fail(28749, "$sample stage must specify a size"),
        }
    }

    /// `$sortByCount` is a group and a sort.
    fn sort_by_count(&mut self, argument: RawBsonRef<'_>) -> Parsed<()> {
        let is_expression = match argument {
            RawBsonRef::String(text) => text.starts_with('$'),
            RawBsonRef::Document(document) => {
                fields(document).next().is_some_and(|(name, _)| name.starts_with('$'))
            }
            _ => false,
        };
        if !is_expression {
            return fail(
                40149,
                "the sortByCount field must be specified as a string or as an object that is an expression",
            );
        }
        let mut sum = RawDocumentBuf::new();
        sum.append(cstr!("$sum"), 1i32);
        let mut group = RawDocumentBuf::new();
        group.append(cstr!("_id"), argument);
        group.append(cstr!("count"), sum);
        self.stage("$group", RawBsonRef::Document(&group), false)?;
        let mut sort = RawDocumentBuf::new();
        sort.append(cstr!("count"), -1i32);
        self.stage("$sort", RawBsonRef::Document(&sort), false)
    }

    /// `$bucket` is a group by `$switch`, and a sort.
    fn bucket(&mut self, argument: RawBsonRef<'_>) -> Parsed<()> {
        let argument = object(argument, 40201, "the argument to $bucket must be an object")?;
        let (mut by, mut bounds, mut default, mut output) = (None, None, None, None);
        for (name, value) in fields(argument) {
            match (name, value) {
                ("groupBy", value) => by = Some(value),
                ("boundaries", RawBsonRef::Array(value)) => bounds = Some(value),
                ("boundaries", _) => {
                    return fail(40200, "the $bucket 'boundaries' field must be an array");
                }
                ("default", value) => default = Some(value),
                ("output", RawBsonRef::Document(value)) => output = Some(value),
                ("output", _) => {
                    return fail(40196, "The $bucket 'output' field must be an object");
                }
                _ => return fail(40197, format!("unrecognized option to $bucket: {name}.")),
            }
        }
        let (Some(by), Some(bounds)) = (by, bounds) else {
            return fail(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.");
        };
        let bounds: Vec<RawBsonRef<'_>> = elements(bounds).collect();
        let is_sorted = bounds.windows(2).all(|pair| crate::compare(pair[0], pair[1]).is_lt());
        if bounds.len() < 2 || !is_sorted {
            return fail(
                40194,
                "The $bucket 'boundaries' field must have at least 2 values, each less than the next",
            );
        }
        let mut group = RawDocumentBuf::new();
        group.append(cstr!("_id"), bucket_id(by, &bounds, default));
        match output {
            Some(output) => {
                for (name, value) in fields(output) {
                    append(&mut group, name, value)?;
                }
            }
            None => group.append(cstr!("count"), bson::rawdoc! { "$sum": 1 }),
        }
        self.stage("$group", RawBsonRef::Document(&group), false)?;
        let sort = bson::rawdoc! { "_id": 1 };
        self.stage("$sort", RawBsonRef::Document(&sort), false)
    }
}

/// The lower bound of the bucket of a value.
fn bucket_id(
    by: RawBsonRef<'_>,
    bounds: &[RawBsonRef<'_>],
    default: Option<RawBsonRef<'_>>,
) -> RawDocumentBuf {
    let literal = |value: RawBsonRef<'_>| {
        let mut made = RawDocumentBuf::new();
        made.append(cstr!("$literal"), value);
        made
    };
    let test = |operator: &bson::raw::CStr, bound: RawBsonRef<'_>| {
        let mut both = RawArrayBuf::new();
        both.push(by);
        both.push(literal(bound));
        let mut made = RawDocumentBuf::new();
        made.append(operator, both);
        made
    };
    let mut branches = RawArrayBuf::new();
    for pair in bounds.windows(2) {
        let mut both = RawArrayBuf::new();
        both.push(test(cstr!("$gte"), pair[0]));
        both.push(test(cstr!("$lt"), pair[1]));
        let mut case = RawDocumentBuf::new();
        case.append(cstr!("$and"), both);
        let mut branch = RawDocumentBuf::new();
        branch.append(cstr!("case"), case);
        branch.append(cstr!("then"), literal(pair[0]));
        branches.push(branch);
    }
    let mut switch = RawDocumentBuf::new();
    switch.append(cstr!("branches"), branches);
    if let Some(default) = default {
        switch.append(cstr!("default"), literal(default));
    }
    let mut made = RawDocumentBuf::new();
    made.append(cstr!("$switch"), switch);
    made
}

/// MongoDB's code of `$near` in `$match`.
const NEAR_IN_MATCH: i32 = 5_626_500;

/// Stages of MongoDB that are errors here.
const UNSUPPORTED: &[&str] = &[
    "$bucketAuto",
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$collStats",
    "$currentOp",
    "$densify",
    "$fill",
    "$indexStats",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
    "$search",
    "$searchMeta",
    "$setWindowFields",
    "$shardedDataDistribution",
    "$vectorSearch",
    "$geoNear",
];

fn object<'d>(value: RawBsonRef<'d>, code: i32, text: &str) -> Parsed<&'d RawDocument> {
    value.as_document().ok_or_else(|| DocumentError::new(code, text))
}

/// The number of `$limit` or `$skip`.
fn number(stage: &str, code: i32, value: RawBsonRef<'_>) -> Parsed<u64> {
    let wrong = |text: String| fail(code, format!("invalid argument to {stage} stage: {text}"));
    let shown = crate::value::shown(value);
    match Number::of(value) {
        None => wrong(format!("Expected a number in: {stage}: {shown}")),
        Some(number) => match number.whole() {
            Some(whole) => match u64::try_from(whole) {
                Ok(whole) => Ok(whole),
                Err(_) => wrong(format!("Expected a non-negative number in: {stage}: {shown}")),
            },
            None => wrong(format!("Expected an integer: {stage}: {shown}")),
        },
    }
}
