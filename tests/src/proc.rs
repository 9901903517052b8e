//! What the kernel tells about a process.

use std::path::{Path, PathBuf};

/// One thread of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Thread id.
    pub tid: u32,
    /// The thread's name.
    pub name: String,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Times it went to sleep of its own will.
    pub sleeps: u64,
    /// Whether it sleeps now.
    pub is_asleep: bool,
    /// Whether a signal has stopped it.
    pub is_stopped: bool,
}

/// The threads of a process.
pub fn tasks(pid: u32) -> Vec<Task> {
    let mut tasks = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).ok();
        let (Some(name), Some(scheduled), Some(status)) =
            (read("comm"), read("schedstat"), read("status"))
        else {
            continue; // It has just ended.
        };
        let tid = entry.file_name().to_string_lossy().parse().unwrap_or_default();
        let cpu_ns = scheduled.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default();
        let sleeps = field(&status, "voluntary_ctxt_switches:").unwrap_or_default();
        let is_asleep = status.lines().any(|line| line.starts_with("State:\tS"));
        let is_stopped = status.lines().any(|line| line.starts_with("State:\tT"));
        let name = name.trim().to_owned();
        tasks.push(Task { tid, name, cpu_ns, sleeps, is_asleep, is_stopped });
    }
    tasks
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Resident memory, KiB: what is its own, shared memory apart.
pub fn anonymous_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, "RssAnon:").unwrap_or_default()
}

/// Resident memory, KiB, shared memory included.
pub fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, "VmRSS:").unwrap_or_default()
}

/// The most resident memory that it ever had, KiB, shared memory included.
pub fn peak_resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, "VmHWM:").unwrap_or_default()
}

/// Number of mappings.
pub fn mappings(pid: u32) -> usize {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).map_or(0, |maps| maps.lines().count())
}

/// Number of open descriptors.
pub fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count())
}

/// Processes whose command line names `path`.
pub fn processes_with(path: &Path) -> Vec<u32> {
    let path = path.to_string_lossy();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(&*path).then_some(pid)
    });
    processes.collect()
}

/// One mapping of a process with a file behind it.
#[derive(Clone, Debug)]
pub struct Map {
    /// Such as `r--s`.
    pub permissions: String,
    /// Such as `/memfd:remora-arena (deleted)`.
    pub path: String,
    /// The kernel's flags; `mw` means that it may be made writable.
    pub flags: Vec<String>,
}

/// This process's mappings.
pub fn own_maps() -> Vec<Map> {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("/proc is mounted");
    let mut maps: Vec<Map> = Vec::new();
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if let Some(map) = maps.last_mut() {
                map.flags = flags.split_whitespace().map(str::to_owned).collect();
            }
            continue;
        }
        let first = line.split(' ').next().unwrap_or_default();
        if first.ends_with(':') || !first.contains('-') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let path = words.get(5..).unwrap_or_default().join(" ");
        let permissions = words.get(1).copied().unwrap_or_default().to_owned();
        maps.push(Map { permissions, path, flags: Vec::new() });
    }
    maps
}

/// Where a descriptor of this process leads.
pub fn target_of(fd: &impl std::os::fd::AsRawFd) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
}

/// The cores that a thread may run on, as the kernel writes them: `0-3`.
pub fn cores_of(pid: u32, tid: u32) -> String {
    let path = format!("/proc/{pid}/task/{tid}/status");
    let status = std::fs::read_to_string(path).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}
