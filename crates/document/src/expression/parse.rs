//! From a value to an expression.

use super::field_path::Path;
use super::node::{Call, Node, Variable};
use super::operators::{Operator, Shape, find};
use crate::error::{DocumentError, FAILED_TO_PARSE, INVALID_PIPELINE_OPERATOR};
use crate::raw::{elements, fields};
use crate::validate::value_at;
use crate::value::shown;
use crate::variables::{Variables, check_name};
use bson::RawBson;
use bson::raw::{RawBsonRef, RawDocument};
use remora_layout::limits::{MAX_EXPRESSION_DEPTH, MAX_EXPRESSION_PARTS, MAX_PATH_PARTS};

type Parsed<T> = Result<T, DocumentError>;

/// Divides the path of a field at its dots.
///
/// # Errors
/// As MongoDB: an empty name, one that begins with `$`, too many names.
pub(crate) fn parse_path(text: &str) -> Parsed<Vec<String>> {
    let bad = |code: i32, text: &str| Err(DocumentError::new(code, text));
    if text.is_empty() {
        return bad(40352, "FieldPath cannot be constructed with empty string");
    }
    if text.ends_with('.') {
        return bad(40353, "FieldPath must not end with a '.'.");
    }
    let mut names = Vec::new();
    for name in text.split('.') {
        if name.is_empty() {
            return bad(15998, "FieldPath field names may not be empty strings.");
        }
        if name.starts_with('$') {
            return bad(
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            );
        }
        if name.contains('\0') {
            return bad(16411, "FieldPath field names may not contain '\\0'.");
        }
        if names.len() == MAX_PATH_PARTS {
            return bad(crate::error::OVERFLOW, "FieldPath is too long");
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Parses an expression with variables of the command, and of the operator around.
pub(super) fn expression(
    value: RawBsonRef<'_>,
    variables: &Variables,
    more: &[&str],
) -> Parsed<Node> {
    value_at(value, 0).map_err(DocumentError::malformed)?;
    let mut locals = Vec::new();
    if !more.is_empty() {
        locals.push(more.iter().map(|name| (*name).to_owned()).collect());
    }
    Parser { variables, locals, parts: 0, depth: 0 }.value(value)
}

struct Parser<'v> {
    variables: &'v Variables,
    /// Names of the variables of each operator around.
    locals: Vec<Vec<String>>,
    parts: usize,
    depth: usize,
}

impl Parser<'_> {
    fn value(&mut self, value: RawBsonRef<'_>) -> Parsed<Node> {
        self.parts += 1;
        if self.parts > MAX_EXPRESSION_PARTS {
            let text = format!("an expression has more than {MAX_EXPRESSION_PARTS} parts");
            return Err(DocumentError::bad_value(text));
        }
        if self.depth == MAX_EXPRESSION_DEPTH {
            return Err(DocumentError::bad_value("exceeded maximum expression depth"));
        }
        self.depth += 1;
        let node = match value {
            RawBsonRef::String(text) if text.starts_with('$') => self.path(text)?,
            RawBsonRef::Document(document) => self.document(document)?,
            RawBsonRef::Array(array) => {
                let parts = elements(array).map(|part| self.value(part));
                let parts = parts.collect::<Parsed<Vec<Node>>>()?;
                match parts.iter().all(|part| matches!(part, Node::Literal(_))) {
                    true => Node::Literal(value_of_parts(parts)),
                    false => Node::Array(parts),
                }
            }
            value => Node::Literal(value.into()),
        };
        self.depth -= 1;
        Ok(node)
    }

    /// `$a.b`, `$$name` or `$$name.a.b`.
    fn path(&self, text: &str) -> Parsed<Node> {
        let Some(text) = text.strip_prefix("$$") else {
            let text = &text[1..];
            if text.is_empty() {
                return Err(DocumentError::new(16872, "'$' by itself is not a valid FieldPath"));
            }
            let start = self.local("CURRENT").unwrap_or(Variable::Root);
            return Ok(Node::Variable(start, Path(parse_path(text)?)));
        };
        let (name, rest) = match text.split_once('.') {
            Some((name, rest)) => (name, parse_path(rest)?),
            None => (text, Vec::new()),
        };
        if name.is_empty() {
            return Err(DocumentError::new(
                FAILED_TO_PARSE,
                "empty variable names are not allowed",
            ));
        }
        Ok(Node::Variable(self.variable(name)?, Path(rest)))
    }

    fn local(&self, name: &str) -> Option<Variable> {
        let all = self.locals.iter().rev().enumerate();
        all.filter_map(|(out, names)| Some((out, names.iter().rposition(|known| known == name)?)))
            .map(|(out, at)| Variable::Local { out, at })
            .next()
    }

    fn variable(&self, name: &str) -> Parsed<Variable> {
        if let Some(local) = self.local(name) {
            return Ok(local);
        }
        if let Some(at) = self.variables.position(name) {
            return Ok(Variable::User(at));
        }
        match name {
            "ROOT" | "CURRENT" => Ok(Variable::Root),
            "NOW" => Ok(Variable::Now),
            "REMOVE" => Ok(Variable::Remove),
            "CLUSTER_TIME" | "JS_SCOPE" | "SEARCH_META" | "USER_ROLES" => Err(DocumentError::new(
                51144,
                format!("Builtin variable '$${name}' is not available"),
            )),
            _ => Err(DocumentError::new(17276, format!("Use of undefined variable: {name}"))),
        }
    }

    fn document(&mut self, document: &RawDocument) -> Parsed<Node> {
        let mut all = fields(document);
        if let Some((name, argument)) = all.next()
            && name.starts_with('$')
        {
            if all.next().is_some() {
                let text = format!(
                    "an expression specification must contain exactly one field, the name of the expression. Found {} fields in {}",
                    fields(document).count(),
                    shown(RawBsonRef::Document(document))
                );
                return Err(DocumentError::new(15983, text));
            }
            return self.operator(name, argument);
        }
        let (mut parts, mut names) = (Vec::new(), std::collections::HashSet::new());
        for (name, value) in fields(document) {
            if name.contains('.') {
                let text = "FieldPath field names may not contain '.'. Consider using $getField or $setField.";
                return Err(DocumentError::new(16412, text));
            }
            if !name.is_empty() {
                parse_path(name)?;
            }
            if !names.insert(name) {
                let text = format!("duplicate field name specified in object literal: {name}");
                return Err(DocumentError::new(16406, text));
            }
            parts.push((name.to_owned(), self.value(value)?));
        }
        Ok(match parts.iter().all(|(_, part)| matches!(part, Node::Literal(_))) {
            true => Node::Literal(RawBson::Document(literal_document(parts))),
            false => Node::Object(parts),
        })
    }

    fn operator(&mut self, name: &str, argument: RawBsonRef<'_>) -> Parsed<Node> {
        match name {
            "$literal" | "$const" => Ok(Node::Literal(argument.into())),
            "$and" => Ok(Node::And(self.list(argument)?)),
            "$or" => Ok(Node::Or(self.list(argument)?)),
            "$ifNull" => {
                let parts = self.list(argument)?;
                match parts.len() {
                    0 | 1 => Err(DocumentError::new(
                        1_257_300,
                        format!("$ifNull needs at least two arguments, had: {}", parts.len()),
                    )),
                    _ => Ok(Node::IfNull(parts)),
                }
            }
            "$cond" => self.cond(argument),
            "$switch" => self.switch(argument),
            "$let" => self.bind(argument),
            "$map" => self.map(argument),
            "$filter" => self.filter(argument),
            "$reduce" => self.reduce(argument),
            "$convert" => {
                let names = ["input", "to", "onError", "onNull"];
                let parts = self.named("$convert", argument, &names, 2)?;
                Ok(Node::Convert(Box::new(four(parts)?)))
            }
            "$regexMatch" | "$regexFind" | "$regexFindAll" => {
                let parts = self.named(name, argument, &["input", "regex", "options"], 2)?;
                let parts: [Node; 3] = parts.try_into().map_err(|_| wrong_count())?;
                Ok(Node::Regex(Box::new(Call::new(name, parts)?)))
            }
            "$meta" => Err(DocumentError::new(
                crate::error::COMMAND_NOT_SUPPORTED,
                "$meta is not supported",
            )),
            "$function" | "$accumulator" | "$where" => Err(DocumentError::new(
                crate::error::COMMAND_NOT_SUPPORTED,
                format!("{name} is not supported: there is no JavaScript"),
            )),
            _ => match find(name) {
                Some(operator) => self.call(operator, argument),
                None => Err(DocumentError::new(
                    INVALID_PIPELINE_OPERATOR,
                    format!("Unrecognized expression '{name}'"),
                )),
            },
        }
    }

    /// The arguments of an operator: an array of them, or one.
    fn list(&mut self, argument: RawBsonRef<'_>) -> Parsed<Vec<Node>> {
        match argument {
            RawBsonRef::Array(array) => elements(array).map(|part| self.value(part)).collect(),
            _ => Ok(vec![self.value(argument)?]),
        }
    }

    fn call(&mut self, operator: &'static Operator, argument: RawBsonRef<'_>) -> Parsed<Node> {
        let name = operator.name;
        let parts = match operator.shape {
            Shape::Exactly(wanted) => {
                let parts = self.list(argument)?;
                if parts.len() != wanted {
                    let text = format!(
                        "Expression {name} takes exactly {wanted} arguments. {} were passed in.",
                        parts.len()
                    );
                    return Err(DocumentError::new(16020, text));
                }
                parts
            }
            Shape::Between(least, most) => {
                let parts = self.list(argument)?;
                if !(least..=most).contains(&parts.len()) {
                    let text = format!(
                        "Expression {name} takes at least {least} arguments, and at most {most}, but {} were passed in.",
                        parts.len()
                    );
                    return Err(DocumentError::new(28667, text));
                }
                parts
            }
            Shape::Any => self.list(argument)?,
            Shape::Named(names, required) => self.named(name, argument, names, required)?,
            Shape::Date => self.date(name, argument)?,
            Shape::Field => self.field_name(name, argument)?,
        };
        Ok(Node::Call(operator, parts))
    }

    /// Arguments that have names.
    fn named(
        &mut self,
        operator: &str,
        argument: RawBsonRef<'_>,
        names: &[&str],
        required: usize,
    ) -> Parsed<Vec<Node>> {
        let RawBsonRef::Document(document) = argument else {
            let text = format!("{operator} only supports an object as its argument");
            return Err(DocumentError::new(FAILED_TO_PARSE, text));
        };
        let mut parts: Vec<Node> = names.iter().map(|_| Node::Absent).collect();
        for (name, value) in fields(document) {
            let Some(at) = names.iter().position(|known| *known == name) else {
                let text = format!("{operator} found an unknown argument: {name}");
                return Err(DocumentError::new(FAILED_TO_PARSE, text));
            };
            parts[at] = self.value(value)?;
        }
        for (part, name) in parts.iter().zip(names).take(required) {
            if matches!(part, Node::Absent) {
                let text = format!("Missing '{name}' parameter to {operator}");
                return Err(DocumentError::new(FAILED_TO_PARSE, text));
            }
        }
        Ok(parts)
    }

    /// A date, or a document of a date and a time zone.
    fn date(&mut self, name: &str, argument: RawBsonRef<'_>) -> Parsed<Vec<Node>> {
        if let RawBsonRef::Document(document) = argument
            && fields(document).next().is_none_or(|(first, _)| !first.starts_with('$'))
        {
            return self.named(name, argument, &["date", "timezone"], 1);
        }
        let mut parts = self.list(argument)?;
        if parts.len() != 1 {
            let text = format!(
                "{name} accepts exactly one argument if given an array, but was given {}",
                parts.len()
            );
            return Err(DocumentError::new(40536, text));
        }
        parts.push(Node::Absent);
        Ok(parts)
    }

    /// The argument of `$getField`: a name, or a document of a name and an input.
    fn field_name(&mut self, name: &str, argument: RawBsonRef<'_>) -> Parsed<Vec<Node>> {
        if let RawBsonRef::Document(document) = argument
            && fields(document).next().is_none_or(|(first, _)| !first.starts_with('$'))
        {
            return self.named(name, argument, &["field", "input"], 2);
        }
        let current = self.local("CURRENT").unwrap_or(Variable::Root);
        Ok(vec![self.value(argument)?, Node::Variable(current, Path(Vec::new()))])
    }

    fn cond(&mut self, argument: RawBsonRef<'_>) -> Parsed<Node> {
        let parts = match argument {
            RawBsonRef::Document(_) => {
                let parts = self.named("$cond", argument, &["if", "then", "else"], 0)?;
                for (part, (name, code)) in
                    parts.iter().zip([("if", 17080), ("then", 17081), ("else", 17082)])
                {
                    if matches!(part, Node::Absent) {
                        let text = format!("Missing '{name}' parameter to $cond");
                        return Err(DocumentError::new(code, text));
                    }
                }
                parts
            }
            _ => self.list(argument)?,
        };
        let count = parts.len();
        let parts: [Node; 3] = parts.try_into().map_err(|_| {
            let text =
                format!("Expression $cond takes exactly 3 arguments. {count} were passed in.");
            DocumentError::new(16020, text)
        })?;
        Ok(Node::Cond(Box::new(parts)))
    }

    fn switch(&mut self, argument: RawBsonRef<'_>) -> Parsed<Node> {
        let bad = |code: i32, text: String| Err(DocumentError::new(code, text));
        let RawBsonRef::Document(document) = argument else {
            return bad(40060, "$switch requires an object as an argument".to_owned());
        };
        let (mut branches, mut default) = (Vec::new(), None);
        for (name, value) in fields(document) {
            match (name, value) {
                ("branches", RawBsonRef::Array(array)) => {
                    for branch in elements(array) {
                        let parts = self.named("$switch", branch, &["case", "then"], 2)?;
                        branches.push(two(parts)?.into());
                    }
                }
                ("branches", _) => {
                    return bad(40061, "$switch expected an array for 'branches'".to_owned());
                }
                ("default", value) => default = Some(Box::new(self.value(value)?)),
                _ => return bad(40067, format!("$switch found an unknown argument: {name}")),
            }
        }
        if branches.is_empty() {
            return bad(40068, "$switch requires at least one branch.".to_owned());
        }
        Ok(Node::Switch(branches, default))
    }

    fn bind(&mut self, argument: RawBsonRef<'_>) -> Parsed<Node> {
        let bad = |code: i32, text: String| Err(DocumentError::new(code, text));
        let RawBsonRef::Document(document) = argument else {
            return bad(16874, "$let only supports an object as its argument".to_owned());
        };
        let (mut variables, mut body) = (None, None);
        for (name, value) in fields(document) {
            match (name, value) {
                ("vars", RawBsonRef::Document(value)) => variables = Some(value),
                ("in", value) => body = Some(value),
                ("vars", _) => {
                    return bad(10065, "invalid parameter: expected an object (vars)".to_owned());
                }
                _ => return bad(16875, format!("Unrecognized parameter to $let: {name}")),
            }
        }
        let Some(variables) = variables else {
            return bad(16876, "Missing 'vars' parameter to $let".to_owned());
        };
        let Some(body) = body else {
            return bad(16877, "Missing 'in' parameter to $let".to_owned());
        };
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (name, value) in fields(variables) {
            if name != "CURRENT" {
                check_name(name)?;
            }
            values.push(self.value(value)?);
            names.push(name.to_owned());
        }
        let body = self.within(names, body)?;
        Ok(Node::Let(values, Box::new(body)))
    }

    /// Parses an expression that sees more variables.
    fn within(&mut self, names: Vec<String>, body: RawBsonRef<'_>) -> Parsed<Node> {
        self.locals.push(names);
        let body = self.value(body);
        self.locals.pop();
        body
    }

    /// The parts of an operator with a variable for each element: the raw parts by their names.
    fn parts_of<'d>(
        operator: &str,
        argument: RawBsonRef<'d>,
        names: &[&str],
        required: usize,
    ) -> Parsed<Vec<Option<RawBsonRef<'d>>>> {
        let RawBsonRef::Document(document) = argument else {
            let text = format!("{operator} only supports an object as its argument");
            return Err(DocumentError::new(FAILED_TO_PARSE, text));
        };
        let mut parts = vec![None; names.len()];
        for (name, value) in fields(document) {
            let Some(at) = names.iter().position(|known| *known == name) else {
                let text = format!("Unrecognized parameter to {operator}: {name}");
                return Err(DocumentError::new(FAILED_TO_PARSE, text));
            };
            parts[at] = Some(value);
        }
        match parts.iter().zip(names).take(required).find(|(part, _)| part.is_none()) {
            Some((_, name)) => {
                let text = format!("Missing '{name}' parameter to {operator}");
                Err(DocumentError::new(FAILED_TO_PARSE, text))
            }
            None => Ok(parts),
        }
    }

    /// The name that `as` gives to an element.
    fn element_name(value: Option<RawBsonRef<'_>>) -> Parsed<String> {
        match value {
            None => Ok("this".to_owned()),
            Some(RawBsonRef::String(name)) => check_name(name).map(|()| name.to_owned()),
            Some(_) => Err(DocumentError::new(FAILED_TO_PARSE, "'as' must be a string")),
        }
    }

    fn map(&mut self, argument: RawBsonRef<'_>) -> Parsed<Node> {
        let parts = Self::parts_of("$map", argument, &["input", "in", "as"], 2)?;
        let name = Self::element_name(parts[2])?;
        let input = self.optional(parts[0])?;
        let body = self.within(vec![name], parts[1].unwrap_or(RawBsonRef::Null))?;
        Ok(Node::Map(Box::new([input, body])))
    }

    fn filter(&mut self, argument: RawBsonRef<'_>) -> Parsed<Node> {
        let names = ["input", "cond", "as", "limit"];
        let parts = Self::parts_of("$filter", argument, &names, 2)?;
        let name = Self::element_name(parts[2])?;
        let (input, limit) = (self.optional(parts[0])?, self.optional(parts[3])?);
        let condition = self.within(vec![name], parts[1].unwrap_or(RawBsonRef::Null))?;
        Ok(Node::Filter(Box::new([input, condition, limit])))
    }

    fn reduce(&mut self, argument: RawBsonRef<'_>) -> Parsed<Node> {
        let names = ["input", "initialValue", "in"];
        let parts = Self::parts_of("$reduce", argument, &names, 3)?;
        let (input, first) = (self.optional(parts[0])?, self.optional(parts[1])?);
        let variables = vec!["value".to_owned(), "this".to_owned()];
        let body = self.within(variables, parts[2].unwrap_or(RawBsonRef::Null))?;
        Ok(Node::Reduce(Box::new([input, first, body])))
    }

    fn optional(&mut self, value: Option<RawBsonRef<'_>>) -> Parsed<Node> {
        value.map_or(Ok(Node::Absent), |value| self.value(value))
    }
}

/// An array of literals is a literal.
fn value_of_parts(parts: Vec<Node>) -> RawBson {
    let mut made = bson::raw::RawArrayBuf::new();
    for part in &parts {
        if let Node::Literal(value) = part {
            made.push(value.as_raw_bson_ref());
        }
    }
    RawBson::Array(made)
}

fn literal_document(parts: Vec<(String, Node)>) -> bson::RawDocumentBuf {
    let mut made = bson::RawDocumentBuf::new();
    for (name, part) in &parts {
        if let Node::Literal(value) = part {
            // The name comes from a document, so it can be one.
            let _ = crate::raw::append(&mut made, name, value.as_raw_bson_ref());
        }
    }
    made
}

fn two(parts: Vec<Node>) -> Parsed<[Node; 2]> {
    parts.try_into().map_err(|_| wrong_count())
}

fn four(parts: Vec<Node>) -> Parsed<[Node; 4]> {
    parts.try_into().map_err(|_| wrong_count())
}

fn wrong_count() -> DocumentError {
    DocumentError::bad_value("a wrong number of arguments")
}
