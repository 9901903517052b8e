//! The parts of an expression.

use super::field_path::Path;
use super::operators::Operator;
use crate::filter::Pattern;
use bson::RawBson;

/// A part of an expression.
#[derive(Debug)]
pub(super) enum Node {
    Literal(RawBson),
    /// An argument that was not given.
    Absent,
    /// A variable, and a path in it.
    Variable(Variable, Path),
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
    /// An operator whose arguments are evaluated first.
    Call(&'static Operator, Vec<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    IfNull(Vec<Node>),
    /// Condition, then, else.
    Cond(Box<[Node; 3]>),
    /// Conditions with their values, and the default.
    Switch(Vec<(Node, Node)>, Option<Box<Node>>),
    /// Values of new variables, and the expression that sees them.
    Let(Vec<Node>, Box<Node>),
    /// Input and what is made of each element.
    Map(Box<[Node; 2]>),
    /// Input, condition, limit.
    Filter(Box<[Node; 3]>),
    /// Input, first value, next value.
    Reduce(Box<[Node; 3]>),
    /// `$regexMatch` and its kin.
    Regex(Box<Call>),
    /// Input, type, what stands for an error, what stands for null.
    Convert(Box<[Node; 4]>),
}

/// What is wanted of the matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Whether,
    First,
    All,
}

/// A call of `$regexMatch` or of one of its kin. A pattern that is the same for all documents is compiled once.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) wanted: Wanted,
    /// Input, pattern, options.
    pub(super) parts: [Node; 3],
    pub(super) compiled: Option<Pattern>,
}

/// What a path begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variable {
    /// The document.
    Root,
    /// The time of the command.
    Now,
    /// A missing value.
    Remove,
    /// A variable of the command.
    User(usize),
    /// A variable that an operator around defines: how many operators further out, and which of its variables.
    Local { out: usize, at: usize },
}

impl Node {
    /// Whether it reads the document.
    pub(super) fn reads_document(&self) -> bool {
        match self {
            Node::Literal(_) | Node::Absent => false,
            Node::Variable(variable, _) => *variable == Variable::Root,
            Node::Object(fields) => fields.iter().any(|(_, value)| value.reads_document()),
            Node::Call(_, parts) => parts.iter().any(Node::reads_document),
            Node::Array(parts) | Node::And(parts) | Node::Or(parts) | Node::IfNull(parts) => {
                parts.iter().any(Node::reads_document)
            }
            Node::Cond(parts) | Node::Filter(parts) | Node::Reduce(parts) => {
                parts.iter().any(Node::reads_document)
            }
            Node::Regex(call) => call.parts.iter().any(Node::reads_document),
            Node::Map(parts) => parts.iter().any(Node::reads_document),
            Node::Convert(parts) => parts.iter().any(Node::reads_document),
            Node::Switch(branches, default) => {
                let reads =
                    |(case, then): &(Node, Node)| case.reads_document() || then.reads_document();
                branches.iter().any(reads)
                    || default.as_ref().is_some_and(|node| node.reads_document())
            }
            Node::Let(values, body) => {
                values.iter().any(Node::reads_document) || body.reads_document()
            }
        }
    }
}
