//! The memory that a server process takes.

/// A process, and the memory that it took at one time.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pid: Option<u32>,
    before_bytes: Option<u64>,
}

impl Memory {
    /// What a process takes now; `None` if it cannot be seen from here.
    pub fn of(pid: Option<u32>) -> Self {
        Self { pid, before_bytes: pid.and_then(resident_bytes) }
    }

    /// What it has grown by since then.
    pub fn grown(self) -> Option<u64> {
        let now = resident_bytes(self.pid?)?;
        Some(now.saturating_sub(self.before_bytes?))
    }
}

/// Resident bytes of a process, shared pages among them.
fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_touches_is_seen() {
        let memory = Memory::of(Some(std::process::id()));
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let grown = memory.grown().unwrap();
        assert!(grown >= 32 << 20, "{grown} of {}", touched.len());
        assert_eq!(Memory::of(None).grown(), None);
    }
}
