//! A file that appears when it is complete.

use anyhow::Context;
use remora_command_line::usage;
use std::io::{BufWriter, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// Writes a file, which appears when it is complete; - is standard output. `write` is given a directory for
/// nameless files.
pub fn to_file<R>(
    to: &Path,
    write: impl FnOnce(&Path, &mut dyn Write) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let shown = to.display();
    if to == Path::new("-") {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let written = write(&std::env::temp_dir(), &mut out)?;
        out.flush()?;
        return Ok(written);
    }
    let parent = to.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new("."));
    let file = NamedTempFile::new_in(parent)
        .map_err(|error| usage(format!("cannot write {shown}: {error}")))?;
    let mut out = BufWriter::new(file);
    let written = write(parent, &mut out)?;
    let file = out.into_inner().with_context(|| format!("writing {shown}"))?;
    readable(file.as_file())?;
    file.persist(to).with_context(|| format!("writing {shown}"))?;
    Ok(written)
}

/// A temporary file is readable only by its user; the finished file gets the usual permissions.
fn readable(file: &std::fs::File) -> anyhow::Result<()> {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    rustix::fs::fchmod(file, rustix::fs::Mode::from_raw_mode(0o666) & !mask)?;
    Ok(())
}
