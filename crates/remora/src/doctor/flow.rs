//! Whether a network device keeps RoCE's packets from being dropped: PFC (802.1Qbb) and ECN (RFC
//! 3168). Most drivers do not report it; then it is unknown (M29). A host cannot read the settings
//! of switches.

use super::finding::{Finding, Verdict};
use std::path::Path;
use std::process::{Command, Stdio};

const SYSFS: &str = "/sys/class/net";

/// One line for each of the two. They are of InfiniBand's own kind there.
pub fn findings(device: &str) -> [Finding; 2] {
    [pfc(device, shown_by_dcb(device).as_deref()), ecn(Path::new(SYSFS), device)]
}

/// The output of iproute2's `dcb` for a device; `None` without the tool, or if the driver does not
/// answer it.
fn shown_by_dcb(device: &str) -> Option<String> {
    let shown = Command::new("dcb")
        .args(["pfc", "show", "dev", device, "prio-pfc"])
        .stdin(Stdio::null())
        .output()
        .ok()
        .filter(|shown| shown.status.success())?;
    String::from_utf8(shown.stdout).ok()
}

/// The text is `prio-pfc 0:off 1:on ...`.
fn pfc(device: &str, shown: Option<&str>) -> Finding {
    let topic = format!("pfc {device}");
    let words = || shown.unwrap_or_default().split_whitespace();
    let on: Vec<&str> = words().filter_map(|word| word.strip_suffix(":on")).collect();
    if !on.is_empty() {
        let on = on.join(", ");
        return Finding::new(topic, Verdict::Ok, format!("on for priority {on}"));
    }
    if words().any(|word| word.ends_with(":off")) {
        return Finding::new(topic, Verdict::Warn, "off: under load packets may be dropped, and sent again").change(
            format!("dcb pfc set dev {device} prio-pfc 3:on (the priority that the switches use for RoCE), or have ECN on"),
        );
    }
    Finding::new(topic, Verdict::Unknown, "the driver does not tell (dcb pfc show)")
}

/// Of the drivers that we know only NVIDIA's own reports it, in `ecn/roce_np/enable/PRIORITY` and
/// `ecn/roce_rp/...`, one for each end.
fn ecn(root: &Path, device: &str) -> Finding {
    let topic = format!("ecn {device}");
    let ends = ["roce_np", "roce_rp"].map(|end| {
        let read = |priority: u8| {
            let file = root.join(device).join(format!("ecn/{end}/enable/{priority}"));
            std::fs::read_to_string(file).ok().map(|text| text.trim() == "1")
        };
        (0..8).map(read).collect::<Option<Vec<bool>>>()
    });
    let [Some(notifies), Some(reacts)] = ends else {
        return Finding::new(topic, Verdict::Unknown, "the driver does not tell (sysfs ecn/)");
    };
    let both: Vec<String> =
        (0..8).filter(|&at| notifies[at] && reacts[at]).map(|at| at.to_string()).collect();
    if both.is_empty() {
        Finding::new(topic, Verdict::Warn, "off: congestion shows only as lost packets").change(
            format!("echo 1 to {SYSFS}/{device}/ecn/roce_np/enable/3 and .../roce_rp/enable/3, and have the switches mark"),
        )
    } else {
        Finding::new(topic, Verdict::Ok, format!("on for priority {}", both.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pfc_is_on_off_or_unknown() {
        let verdict = |shown| pfc("eth0", shown).verdict;
        assert_eq!(verdict(None), Verdict::Unknown);
        assert_eq!(verdict(Some("")), Verdict::Unknown);
        assert_eq!(verdict(Some("prio-pfc 0:off 1:off 7:off \n")), Verdict::Warn);
        let on = pfc("eth0", Some("prio-pfc 0:off 1:on 2:off 7:on \n"));
        assert_eq!((on.verdict, on.found.as_str()), (Verdict::Ok, "on for priority 1, 7"));
    }

    #[test]
    fn ecn_needs_both_ends_and_is_unknown_if_a_file_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let set = |end: &str, priority: u8, text: &str| {
            let directory = root.path().join(format!("eth0/ecn/{end}/enable"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(priority.to_string()), text).unwrap();
        };
        for priority in 0..8 {
            set("roce_np", priority, "1\n");
        }
        assert_eq!(ecn(root.path(), "eth0").verdict, Verdict::Unknown);
        for priority in 0..8 {
            set("roce_rp", priority, "0\n");
        }
        assert_eq!(ecn(root.path(), "eth0").verdict, Verdict::Warn);
        set("roce_rp", 3, "1\n");
        assert_eq!(ecn(root.path(), "eth0").found, "on for priority 3");
    }
}
