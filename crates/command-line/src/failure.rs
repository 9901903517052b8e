//! Kinds of failure and their exit codes. A failure that is not marked with a kind counts as
//! "failed".

use std::fmt;
use std::process::ExitCode;

/// The command line, the environment or a file asks for something that makes
/// no sense. Exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

/// A transport that was named, or the only one there is, cannot be had. Exit
/// code 3.
#[derive(Debug)]
pub struct TransportUnavailable(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for TransportUnavailable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "transport unavailable: {}", self.0)
    }
}

impl std::error::Error for Usage {}
impl std::error::Error for TransportUnavailable {}

/// A usage error.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// A transport that cannot be had.
pub fn unavailable(message: impl Into<String>) -> anyhow::Error {
    TransportUnavailable(message.into()).into()
}

/// The exit code of a failure, whatever context was added to it.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(code(error))
}

fn code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Usage>().is_some() {
        2
    } else if error.downcast_ref::<TransportUnavailable>().is_some() {
        3
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn kinds_survive_context() {
        let wrapped = Err::<(), _>(usage("no")).context("while trying").unwrap_err();
        assert_eq!(code(&wrapped), 2);
        assert_eq!(code(&unavailable("no rings")), 3);
        assert_eq!(code(&anyhow::anyhow!("it broke")), 1);
    }
}
