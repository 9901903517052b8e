//! CPU time of a process, all its threads, on the kernel's nanosecond clock.

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use std::time::Duration;

/// The CPU clock of another process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessCpu(ClockId);

impl ProcessCpu {
    /// The clock of the process `pid`; `None` if there is no such process here.
    pub fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
        clock_getcpuclockid(Pid::from_raw(pid)).ok().map(Self)
    }

    /// CPU time spent so far; `None` once the process is gone.
    pub fn spent(self) -> Option<Duration> {
        let time = self.0.now().ok()?;
        Some(Duration::new(u64::try_from(time.tv_sec()).ok()?, u32::try_from(time.tv_nsec()).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_is_counted() {
        let clock = ProcessCpu::of(std::process::id()).unwrap();
        let before = clock.spent().unwrap();
        let mut sum = 0u64;
        for number in 0..5_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(number));
        }
        assert!(clock.spent().unwrap() > before);
        assert!(ProcessCpu::of(u32::MAX).is_none());
    }
}
