//! What a check found: one thing that is wrong, and what all of it came to.

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    /// Repository path; empty where no file is to blame.
    pub file: String,
    /// Line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
    /// A warning is printed and does not fail the check.
    pub warning: bool,
}

impl Violation {
    /// A violation at a line of a file.
    pub fn at(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into(), warning: false }
    }

    /// Prints it as one line.
    pub fn print(&self) {
        let kind = if self.warning { "warning" } else { "error" };
        match (self.file.as_str(), self.line) {
            ("", _) => println!("  {kind}: {}", self.message),
            (file, 0) => println!("  {file}: {kind}: {}", self.message),
            (file, line) => println!("  {file}:{line}: {kind}: {}", self.message),
        }
    }
}

/// What a check has come to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What is wrong.
    pub violations: Vec<Violation>,
    /// What is printed in any case.
    pub notes: Vec<String>,
    /// Why it could not run.
    pub not_run: Option<String>,
}

impl Outcome {
    /// It could not run.
    pub fn not_run(why: String) -> Self {
        Self { not_run: Some(why), ..Self::default() }
    }
}

impl From<Vec<Violation>> for Outcome {
    fn from(violations: Vec<Violation>) -> Self {
        Self { violations, ..Self::default() }
    }
}
