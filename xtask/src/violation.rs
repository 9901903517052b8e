//! One thing that a check found wrong.

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
