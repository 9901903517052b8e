//! One line of the report.

use serde::Serialize;
use std::fmt;
use std::io::{self, Write};

/// How it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// There, and it works as far as it was tried.
    Ok,
    /// It works, but not all that one may want.
    Warn,
    /// Not there.
    Missing,
    /// This machine does not report it.
    Unknown,
    /// There, and it does not work.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Broken => "broken",
        })
    }
}

/// The checked item, the finding, and the advised change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Such as `tcp`, or `gid rxe0/1/1`: device, port, index.
    pub topic: String,
    /// How it stands.
    pub verdict: Verdict,
    /// In words.
    pub found: String,
    /// The advised change, if any.
    pub change: Option<String>,
}

impl Finding {
    /// Nothing to change.
    pub fn new(topic: impl Into<String>, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { topic: topic.into(), verdict, found: found.into(), change: None }
    }

    /// The same, with an advised change.
    pub fn change(self, change: impl Into<String>) -> Self {
        Self { change: Some(change.into()), ..self }
    }
}

/// Writes one line for each finding, and the advised change below it.
pub fn write(out: &mut impl Write, findings: &[Finding]) -> io::Result<()> {
    let width = findings.iter().map(|finding| finding.topic.len()).max().unwrap_or(0);
    for Finding { topic, verdict, found, change } in findings {
        writeln!(out, "{verdict:<8}{topic:<width$}  {found}")?;
        if let Some(change) = change {
            for (at, line) in change.lines().enumerate() {
                let head = if at == 0 { "-> " } else { "   " };
                writeln!(out, "        {:width$}  {head}{line}", "")?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_and_changes_stand_below() {
        let findings = [
            Finding::new("tcp", Verdict::Ok, "works"),
            Finding::new("memlock", Verdict::Warn, "64KiB").change("one\ntwo"),
        ];
        let mut out = Vec::new();
        write(&mut out, &findings).unwrap();
        let expected = "\
ok      tcp      works
warn    memlock  64KiB
                 -> one
                    two
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
