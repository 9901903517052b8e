//! Properties of every machine: cores, files, pages, shared memory, TCP.

use super::finding::{Finding, Verdict};
use remora_arena::{Region, RegionKind};
use remora_layout::limits::MAX_SESSIONS;
use rustix::process::{Resource, getrlimit};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

/// Descriptors that a session takes at a server with one shard, at most: its
/// mailboxes, bells and socket.
const SESSION_FILES: u64 = 8;

/// All of them.
pub fn findings() -> Vec<Finding> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    vec![
        cores(),
        open_files(getrlimit(Resource::Nofile).maximum),
        huge_pages(&meminfo),
        shm(),
        tcp(),
    ]
}

fn cores() -> Finding {
    let nodes = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let is_node = |name: &str| {
        let number = name.strip_prefix("node");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let nodes =
        nodes.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count().max(1);
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() == 1 => Finding::new(
            "cores",
            Verdict::Warn,
            "1 for this process: shards and the other threads share it",
        )
        .change("give the process more cores (taskset, cpuset, the container's CPU limit)"),
        Ok(cores) => Finding::new(
            "cores",
            Verdict::Ok,
            format!("{cores} for this process; NUMA nodes: {nodes}"),
        ),
        Err(error) => Finding::new("cores", Verdict::Unknown, error.to_string()),
    }
}

fn open_files(limit: Option<u64>) -> Finding {
    let wanted = MAX_SESSIONS as u64 * SESSION_FILES;
    match limit {
        Some(limit) if limit < wanted => Finding::new(
            "open files",
            Verdict::Warn,
            format!("at most {limit}; a server with {MAX_SESSIONS} sessions may take {wanted}"),
        )
        .change(format!(
            "systemd: LimitNOFILE={wanted}; shell: `* - nofile {wanted}` in /etc/security/limits.conf and a new login; docker: --ulimit nofile={wanted}"
        )),
        limit => {
            let limit = limit.map_or("unlimited".to_owned(), |limit| format!("at most {limit}"));
            Finding::new("open files", Verdict::Ok, format!("{limit}; `serve` takes all it may"))
        }
    }
}

fn huge_pages(meminfo: &str) -> Finding {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim())
    };
    match (field("HugePages_Total"), field("HugePages_Free"), field("Hugepagesize")) {
        (Some(total), Some(free), Some(size)) => Finding::new(
            "huge pages",
            Verdict::Ok,
            format!("{total} of {size} reserved, {free} free; this release needs none"),
        ),
        _ => Finding::new("huge pages", Verdict::Unknown, "/proc/meminfo does not tell"),
    }
}

fn tried(topic: &str, tried: io::Result<()>, works: &str, change: &str) -> Finding {
    match tried {
        Ok(()) => Finding::new(topic, Verdict::Ok, works),
        Err(error) => Finding::new(topic, Verdict::Broken, error.to_string()).change(change),
    }
}

fn shm() -> Finding {
    let try_it = || {
        Region::create("remora-doctor", RegionKind::Readable, 1 << 20).map_err(io::Error::other)?;
        let (mut one, mut other) = UnixStream::pair()?;
        one.write_all(&[1])?;
        other.read_exact(&mut [0])
    };
    tried(
        "shm",
        try_it(),
        "a sealed memfd and a Unix socket can be made",
        "the sandbox forbids memfd_create(2) or Unix sockets: allow them, or say transport = \"tcp\"",
    )
}

fn tcp() -> Finding {
    let try_it = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut one = TcpStream::connect(listener.local_addr()?)?;
        one.write_all(&[1])?;
        listener.accept()?.0.read_exact(&mut [0])
    };
    tried(
        "tcp",
        try_it(),
        "a connection over 127.0.0.1 can be made",
        "is the device lo up? (ip link set lo up)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_files_are_told_with_the_line_to_change() {
        let few = open_files(Some(1024));
        assert_eq!(few.verdict, Verdict::Warn);
        assert!(few.change.unwrap().contains("LimitNOFILE=8192"));
        assert_eq!(open_files(Some(8192)).verdict, Verdict::Ok);
        assert_eq!(open_files(None).verdict, Verdict::Ok);
    }

    #[test]
    fn huge_pages_are_read_or_unknown() {
        let meminfo = "MemFree: 1 kB\nHugePages_Total:     512\nHugePages_Free:      500\n\
                       Hugepagesize:       2048 kB\n";
        let found = huge_pages(meminfo).found;
        assert!(found.starts_with("512 of 2048 kB reserved, 500 free"), "{found}");
        assert_eq!(huge_pages("").verdict, Verdict::Unknown);
    }

    #[test]
    fn what_is_tried_works_here_and_a_failure_is_told() {
        assert_eq!([shm().verdict, tcp().verdict], [Verdict::Ok; 2]);
        let failed = tried("tcp", Err(io::Error::other("no")), "yes", "do");
        assert_eq!(failed, Finding::new("tcp", Verdict::Broken, "no").change("do"));
    }
}
