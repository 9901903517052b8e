//! The demo's output of its measurements.

use remora_bench::Figures;
use remora_command_line::DEFAULT_PORT;
use serde::Serialize;
use std::fmt;
use std::io::Write;

/// The ways that are compared, in the order of the table.
pub const WAYS: [&str; 3] = ["resp", "ask", "read"];

/// The columns' names, as wide as the rows of [`Row`].
pub const HEADER: &str =
    "path        ops/s   p50 us   p99 us  round trips/op  bytes/op  server CPU us/op";

/// The same over the rows of searches.
pub const SEARCH_HEADER: &str =
    "path   searches/s   p50 us   p99 us  round trips/op  bytes/op  server CPU us/op";

/// One way's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `resp`, `ask` or `read`.
    pub path: &'static str,
    #[serde(flatten)]
    pub figures: Figures,
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        write!(
            out,
            "{:<5}{:>12}{:>9.2}{:>9.2}{:>16.3}{:>10.1}{:>18.3}",
            self.path,
            grouped(figures.ops_per_s),
            figures.p50_us,
            figures.p99_us,
            figures.round_trips_per_op,
            figures.bytes_per_op,
            figures.server_cpu_us_per_op.unwrap_or(f64::NAN),
        )
    }
}

/// The demo's result. The fields' names are a contract.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Places loaded.
    pub records: usize,
    /// The server's process.
    pub server_pid: u32,
    /// This process.
    pub client_pid: u32,
    /// One row for each way.
    pub rows: Vec<Row>,
    /// One row for each way to search the places as points of a tree.
    pub searches: Vec<Row>,
    /// Places that a search found, on average.
    pub results_per_search: f64,
    /// Names of the places nearest to the example's, itself first.
    pub nearest: Vec<String>,
    /// A key.
    pub example_key: &'static str,
    /// The server's reply over RESP for that key.
    pub example_value: String,
    /// A server that was killed, and started again.
    pub restart: Restart,
}

/// What a server had after it was killed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Restart {
    /// Its durability.
    pub durability: &'static str,
    /// Process ids of the server before and after.
    pub pids: [u32; 2],
    /// Places that are keys, and those of the tree, when it was back.
    pub records: u64,
    /// See [`Restart::records`].
    pub tree_records: u64,
    /// Time until it was ready, ms.
    pub ready_ms: u64,
    /// The part of it that loaded the data, ms.
    pub recovery_ms: u64,
    /// DEBUG DIGEST before and after: the same.
    pub digest: String,
}

impl fmt::Display for Restart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (records, digest) = (grouped(self.records as f64), &self.digest);
        // Its first digits are zeros.
        let short = digest.get(digest.len().saturating_sub(8)..).unwrap_or(digest);
        write!(
            out,
            "restart: killed with -9, {records} places back in {} ms ({} ms to load them), digest equal (...{short})",
            self.ready_ms, self.recovery_ms
        )
    }
}

impl Report {
    /// Explains the table, and the next steps.
    pub fn print_ending(&self, out: &mut impl Write, is_kept: bool) -> anyhow::Result<()> {
        let (key, value) = (self.example_key, &self.example_value);
        writeln!(
            out,
            "\nresp  over TCP, as any Redis client does; costs more where the two run on different cores"
        )?;
        writeln!(out, "ask   by message through shared memory")?;
        writeln!(out, "read  the client reads the server's memory itself; updates go by message")?;
        writeln!(out, "Every value was compared with the one loaded.")?;
        writeln!(
            out,
            "Every way found the same places, {:.1} a search; what is nearest to Paris: {}.\n",
            self.results_per_search,
            self.nearest.join(", ")
        )?;
        writeln!(out, "Over RESP, this demo's server said:")?;
        writeln!(out, "  > get {key}\n  \"{value}\"\n")?;
        let durability = self.restart.durability;
        writeln!(out, "The same places in a server that keeps them (--data-dir, {durability}):")?;
        writeln!(out, "  {}\n", self.restart)?;
        let binary = this_binary();
        if is_kept {
            writeln!(out, "Ask it yourself, in another terminal:")?;
        } else {
            writeln!(out, "Ask such a server yourself, from two terminals:")?;
            writeln!(out, "  {binary} demo --keep    # or, empty: {binary} serve")?;
        }
        writeln!(out, "  redis-cli -p {} get {key}", DEFAULT_PORT)?;
        Ok(())
    }
}

/// This binary as one may type it here.
fn this_binary() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| "remora".into());
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(&path).display().to_string()
}

/// A number with its thousands set apart.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: Figures = Figures {
        ops_per_s: 10_000.0,
        p50_us: 2.0,
        p99_us: 2.5,
        p999_us: 3.0,
        round_trips_per_op: 1.0,
        bytes_per_op: 64.0,
        server_cpu_us_per_op: Some(0.5),
    };

    #[test]
    fn rows_stand_under_their_header() {
        let row = Row { path: "read", figures: FIGURES };
        assert_eq!((row.to_string().len(), HEADER.len()), (HEADER.len(), SEARCH_HEADER.len()));
        assert!(row.to_string().starts_with("read "));
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!((grouped(0.0), grouped(999.0)), ("0".into(), "999".into()));
    }

    #[test]
    fn the_json_object_has_every_field_of_the_contract() {
        let row = Row { path: "ask", figures: FIGURES };
        let report = Report {
            records: 5,
            server_pid: 1,
            client_pid: 2,
            rows: vec![row.clone()],
            searches: vec![row],
            results_per_search: 1.0,
            nearest: vec!["Paris".into()],
            example_key: "k",
            example_value: "v".into(),
            restart: Restart { digest: "00112233445566".into(), ..Restart::default() },
        };
        assert!(report.restart.to_string().ends_with("digest equal (...33445566)"));
        let json = serde_json::to_value(&report).unwrap();
        for field in ["records", "server_pid", "client_pid"] {
            assert!(json[field].is_number(), "{field}: {json}");
        }
        assert_eq!(json["rows"][0]["path"], "ask");
        for field in ["records", "tree_records", "ready_ms", "recovery_ms"] {
            assert!(json["restart"][field].is_number(), "{field}: {json}");
        }
        for field in [
            "ops_per_s",
            "p50_us",
            "p99_us",
            "round_trips_per_op",
            "bytes_per_op",
            "server_cpu_us_per_op",
        ] {
            assert!(json["rows"][0][field].is_number(), "{field}: {json}");
        }
    }
}
