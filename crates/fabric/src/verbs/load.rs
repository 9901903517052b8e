//! How much of this machine's memory and network is in use, and how large
//! registered buffers may be for that: RDMA_Mongo 4.2, algorithm 2 and formula
//! (1), rows M9 to M12.
//!
//! ```text
//! M = k * S * (1 - Thr / B) * (1 - U / T)
//! ```
//! Algorithm 2 says otherwise in two places: a load factor of 0, all memory or
//! all of the network in use, would give the full `S`, and so would one at a
//! threshold that the paper does not tell. Then buffers would be largest where
//! there is least room for them. Here the formula holds everywhere.

use super::places::Gid;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sysinfo::{MemoryRefreshKind, System};

/// `k` of formula (1): the paper's value (M11).
const K: f64 = 0.7;
/// A rate is taken over at least this long.
const WINDOW: Duration = Duration::from_millis(10);
/// Counters of a port tell in words of four bytes (InfiniBand, 16.1.3.5).
const PORT_WORD_BYTES: u64 = 4;

/// Shares in use, from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// Of memory: `U / T`.
    pub memory: f64,
    /// Of the network, in the busier direction: `Thr / B`. 0 while it is not
    /// known: the port tells no rate, or not enough time has passed.
    pub network: f64,
}

/// Bytes of registered buffers that there should be at most, if there would be
/// `base` of them on a machine without limits: `M` of formula (1) for `S`.
pub fn buffer_bytes(base: usize, load: Load) -> usize {
    let free = |used: f64| 1.0 - used.clamp(0.0, 1.0);
    (K * base as f64 * free(load.network) * free(load.memory)) as usize
}

/// Measures the load of this machine and of one of its ports.
pub struct LoadMeter {
    memory: System,
    counters: Option<Counters>,
    /// Bits per second of the port, in each direction.
    rate: Option<f64>,
    /// When the present window began, and the counters then.
    began: (Instant, [u64; 2]),
    /// The network's load over the last window.
    network: f64,
}

/// Files that count the bytes that a port has received and sent.
struct Counters {
    files: [PathBuf; 2],
    /// Bytes for each one counted.
    unit: u64,
}

impl Counters {
    /// The port's own, else those of the network device behind it.
    fn of(sysfs: &Path, place: &Gid) -> Option<Self> {
        let port = port_of(sysfs, place).join("counters");
        let of_port = ["port_rcv_data", "port_xmit_data"].map(|file| port.join(file));
        if number(&of_port[0]).is_some() {
            return Some(Self { files: of_port, unit: PORT_WORD_BYTES });
        }
        let net = net_of(sysfs, place)?.join("statistics");
        Some(Self { files: ["rx_bytes", "tx_bytes"].map(|file| net.join(file)), unit: 1 })
    }

    /// Bytes received and sent so far.
    fn bytes(&self) -> [u64; 2] {
        self.files.each_ref().map(|file| number(file).unwrap_or(0).wrapping_mul(self.unit))
    }
}

impl LoadMeter {
    /// A meter for the port of this place. Its window begins now.
    pub fn new(place: &Gid) -> Self {
        Self::in_sysfs(Path::new("/sys/class"), place)
    }

    fn in_sysfs(sysfs: &Path, place: &Gid) -> Self {
        let counters = Counters::of(sysfs, place);
        let bytes = counters.as_ref().map_or([0; 2], Counters::bytes);
        Self {
            memory: System::new(),
            counters,
            rate: rate(sysfs, place),
            began: (Instant::now(), bytes),
            network: 0.0,
        }
    }

    /// The load as of now; of the network over the time since the last call,
    /// if that is long enough to tell, else as it was told then.
    pub fn load(&mut self) -> Load {
        let passed = self.began.0.elapsed();
        if let (Some(counters), Some(rate)) = (&self.counters, self.rate)
            && passed >= WINDOW
        {
            let bytes = counters.bytes();
            self.network = used(self.began.1, bytes, passed, rate);
            self.began = (Instant::now(), bytes);
        }
        Load { memory: self.memory_used(), network: self.network }
    }

    /// Of the machine's memory, or of the control group's limit, if less of that is free.
    fn memory_used(&mut self) -> f64 {
        self.memory.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let used = |total: u64, free: u64| match total {
            0 => 0.0,
            _ => 1.0 - free.min(total) as f64 / total as f64,
        };
        let machine = used(self.memory.total_memory(), self.memory.available_memory());
        let group = self.memory.cgroup_limits();
        machine.max(group.map_or(0.0, |group| used(group.total_memory, group.free_memory)))
    }
}

/// The share of `rate` (bits per second) that the busier direction used.
fn used(before: [u64; 2], after: [u64; 2], passed: Duration, rate: f64) -> f64 {
    let bytes = before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before));
    let bits = bytes.max().unwrap_or(0) as f64 * 8.0;
    (bits / passed.as_secs_f64() / rate).min(1.0)
}

/// The port's rate in each direction, bits per second.
fn rate(sysfs: &Path, place: &Gid) -> Option<f64> {
    // A software device tells of a rate that has nothing to do with it.
    let net = net_of(sysfs, place).and_then(|net| number(&net.join("speed")));
    if let Some(megabits) = net.filter(|megabits| *megabits > 0) {
        return Some(megabits as f64 * 1e6);
    }
    let text = std::fs::read_to_string(port_of(sysfs, place).join("rate")).ok()?;
    // Such as "100 Gb/sec (4X EDR)".
    let (gigabits, _) = text.split_once(" Gb/sec")?;
    gigabits.trim().parse::<f64>().ok().filter(|gigabits| *gigabits > 0.0).map(|rate| rate * 1e9)
}

fn port_of(sysfs: &Path, place: &Gid) -> PathBuf {
    sysfs.join("infiniband").join(&place.device).join("ports").join(place.port.to_string())
}

fn net_of(sysfs: &Path, place: &Gid) -> Option<PathBuf> {
    Some(sysfs.join("net").join(place.netdev.as_ref()?))
}

/// The number in a file; the kernel refuses some, and writes -1 for others.
fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::places::Carriage;
    use super::*;

    #[test]
    fn the_formula_gives_what_the_paper_says_and_nothing_jumps() {
        let bytes = |memory, network| buffer_bytes(50_000_000, Load { memory, network });
        // 0.7 x 50 MB on an idle host, 8.75 MB with half of both in use.
        assert_eq!(bytes(0.0, 0.0), 35_000_000);
        assert_eq!(bytes(0.5, 0.5), 8_750_000);
        // Full means nothing, and not all of it.
        assert_eq!([bytes(1.0, 0.0), bytes(0.0, 1.0), bytes(7.0, -1.0)], [0; 3]);
        let steps = (0..=1000).map(|load| bytes(load as f64 / 1000.0, 0.25));
        let steps: Vec<usize> = steps.collect();
        let most = steps.windows(2).map(|pair| pair[0] - pair[1]).max();
        assert!(steps.is_sorted_by(|a, b| a >= b) && most <= Some(26_251), "{most:?}");
    }

    #[test]
    fn the_busier_direction_counts() {
        let second = Duration::from_secs(1);
        assert_eq!(used([0, 1_000], [125_000_000, 2_000], second, 2e9), 0.5);
        assert_eq!(used([5, 0], [5, 62_500_000], second / 2, 1e9), 1.0);
        // More than the port carries, and counters that began again.
        assert_eq!(used([0; 2], [u64::MAX, 0], second, 1e9), 1.0);
        assert_eq!(used([9; 2], [8; 2], second, 1e9), 0.0);
    }

    /// A directory like /sys/class with these files.
    fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        root
    }

    fn place() -> Gid {
        Gid {
            device: "mlx5_0".into(),
            port: 1,
            gid_index: 3,
            gid: [1; 16],
            carriage: Carriage::RoceV2,
            netdev: Some("eth4".into()),
            is_active: true,
        }
    }

    #[test]
    fn a_port_counts_in_words_and_a_network_device_in_bytes() {
        let port = "infiniband/mlx5_0/ports/1";
        let of_port = [
            (&*format!("{port}/counters/port_rcv_data"), "25\n"),
            (&*format!("{port}/counters/port_xmit_data"), "50\n"),
            (&*format!("{port}/rate"), "100 Gb/sec (4X EDR)\n"),
        ];
        let root = sysfs(&of_port);
        let counters = Counters::of(root.path(), &place()).unwrap();
        assert_eq!(counters.bytes(), [100, 200]);
        assert_eq!(rate(root.path(), &place()), Some(100e9));
        let net = [
            ("net/eth4/statistics/rx_bytes", "25\n"),
            ("net/eth4/statistics/tx_bytes", "50\n"),
            ("net/eth4/speed", "10000\n"),
            (&*format!("{port}/rate"), "2.5 Gb/sec (1X SDR)\n"),
        ];
        let root = sysfs(&net);
        let counters = Counters::of(root.path(), &place()).unwrap();
        assert_eq!(counters.bytes(), [25, 50]);
        assert_eq!(rate(root.path(), &place()), Some(10e9));
        // A virtual network card does not know how fast it is.
        std::fs::write(root.path().join("net/eth4/speed"), "-1\n").unwrap();
        assert_eq!(rate(root.path(), &place()), Some(2.5e9));
        assert_eq!(rate(Path::new("/nowhere"), &place()), None);
    }

    #[test]
    fn a_meter_tells_memory_at_once_and_the_network_over_a_window() {
        let root = sysfs(&[
            ("net/eth4/statistics/rx_bytes", "0\n"),
            ("net/eth4/statistics/tx_bytes", "0\n"),
            ("net/eth4/speed", "1000\n"),
        ]);
        let mut meter = LoadMeter::in_sysfs(root.path(), &place());
        let first = meter.load();
        assert!(first.memory > 0.0 && first.memory < 1.0, "{first:?}");
        // Much more than the port carries in any time that this test takes.
        for terabytes in 1.. {
            let sent = terabytes * 1_000_000_000_000u64;
            let file = root.path().join("net/eth4/statistics/tx_bytes");
            std::fs::write(file, sent.to_string()).unwrap();
            std::thread::sleep(WINDOW);
            let began = Instant::now();
            assert_eq!(meter.load().network, 1.0);
            // Without a window the last one holds.
            let again = meter.load().network;
            if began.elapsed() < WINDOW {
                assert_eq!(again, 1.0);
                break;
            }
        }
        std::thread::sleep(WINDOW);
        assert_eq!(meter.load().network, 0.0);
    }
}
