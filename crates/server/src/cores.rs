//! Groups the kernel's CPUs by physical core: hardware threads of one core belong together. A shard
//! is at work all the time, and two shards on one core would share its units.

use std::collections::BTreeSet;
use std::path::Path;

/// Where Linux lists its CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

/// The CPUs that this process may run on, by physical core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cores(Vec<BTreeSet<usize>>);

impl Cores {
    /// The kernel's list for this process.
    pub fn of_this_process() -> Self {
        let cpus = core_affinity::get_core_ids().unwrap_or_default();
        Self::read(Path::new(CPUS), cpus.into_iter().map(|core| core.id).collect())
    }

    /// Reads a directory laid out as `/sys/devices/system/cpu`. A CPU that the directory does not
    /// describe counts as a core of its own.
    pub(crate) fn read(directory: &Path, mut cpus: BTreeSet<usize>) -> Self {
        let mut cores = Vec::new();
        while let Some(first) = cpus.first().copied() {
            let path = directory.join(format!("cpu{first}/topology/thread_siblings_list"));
            let listed = std::fs::read_to_string(path).ok().and_then(|text| parse_list(&text));
            let mut core: BTreeSet<usize> =
                listed.unwrap_or_default().intersection(&cpus).copied().collect();
            core.insert(first);
            cpus.retain(|cpu| !core.contains(cpu));
            cores.push(core);
        }
        Self(cores)
    }

    /// Physical cores with at least one CPU for this process.
    pub fn physical(&self) -> usize {
        self.0.len()
    }

    /// How many CPUs of the same core come before this one.
    pub(crate) fn rank(&self, cpu: usize) -> usize {
        let core = self.0.iter().find(|core| core.contains(&cpu));
        core.map_or(0, |core| core.range(..cpu).count())
    }
}

/// The set that a list such as `0-3,8` names; `None` if it is not a list.
/// Empty text is the empty set. Numbers beyond any machine's are refused.
pub fn parse_list(text: &str) -> Option<BTreeSet<usize>> {
    const MOST: usize = 1 << 16;
    let mut set = BTreeSet::new();
    let text = text.trim();
    if text.is_empty() {
        return Some(set);
    }
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(siblings: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (cpu, list) in siblings.iter().enumerate() {
            let topology = directory.path().join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&topology).unwrap();
            fs::write(topology.join("thread_siblings_list"), format!("{list}\n")).unwrap();
        }
        directory
    }

    fn cores(siblings: &[&str], cpus: &str) -> Cores {
        Cores::read(machine(siblings).path(), parse_list(cpus).unwrap())
    }

    #[test]
    fn siblings_are_one_core() {
        let neighbours = ["0-1", "0-1", "2-3", "2-3"];
        assert_eq!(cores(&neighbours, "0-3").physical(), 2);
        assert_eq!(cores(&neighbours, "1-2").physical(), 2);
        assert_eq!(cores(&neighbours, "2-3").physical(), 1);
        let halves = cores(&["0,2", "1,3", "0,2", "1,3"], "0-3");
        assert_eq!(halves.physical(), 2);
        assert_eq!([0, 1, 2, 3].map(|cpu| halves.rank(cpu)), [0, 0, 1, 1]);
    }

    #[test]
    fn a_cpu_of_which_nothing_is_told_is_a_core() {
        assert_eq!(cores(&[], "0-3").physical(), 4);
        let nonsense = cores(&["x", "7", ""], "0-2");
        assert_eq!((nonsense.physical(), nonsense.rank(1)), (3, 0));
        assert_eq!(cores(&["0"], "").physical(), 0);
    }

    #[test]
    fn this_machine_has_one() {
        assert!(Cores::of_this_process().physical() >= 1);
    }
}
