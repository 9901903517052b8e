//! `remora doctor` on whatever machine the tests run on.

use remora_tests::{remora, run};
use serde_json::Value;

#[test]
fn json_is_one_object_and_the_exit_code_says_whether_anything_is_broken() {
    let finished = run(remora().args(["doctor", "--json"]));
    let report: Value = serde_json::from_str(&finished.out).expect("one object");
    let findings = report["findings"].as_array().unwrap();
    let broken = findings.iter().filter(|finding| finding["verdict"] == "broken").count();
    assert_eq!(report["broken"], broken);
    assert_eq!(finished.code, Some((broken > 0) as i32), "{}", finished.err);
    for topic in ["cores", "open files", "huge pages", "shm", "tcp", "libibverbs", "memlock"] {
        let found = findings.iter().filter(|finding| finding["topic"] == topic).count();
        assert_eq!(found, 1, "{topic}: {}", finished.out);
    }
}

#[test]
fn packet_settings_come_from_flags_and_the_environment() {
    let finished = run(remora().args(["doctor", "--rdma-mtu", "1500"]));
    assert_eq!(finished.code, Some(2), "{}", finished.err);
    assert!(finished.err.contains("rdma_mtu: 1500 is not"), "{}", finished.err);
    let finished = run(remora().arg("doctor").env("REMORA_RDMA_SERVICE_LEVEL", "16"));
    assert_eq!(finished.code, Some(2), "{}", finished.err);
    assert!(finished.err.contains("rdma_service_level"), "{}", finished.err);
}

#[test]
fn every_finding_has_a_line() {
    let finished = run(remora().arg("doctor"));
    let json = run(remora().args(["doctor", "--json"]));
    let report: Value = serde_json::from_str(&json.out).unwrap();
    for finding in report["findings"].as_array().unwrap() {
        let (verdict, topic) =
            (finding["verdict"].as_str().unwrap(), finding["topic"].as_str().unwrap());
        let is_its_line = |line: &str| line.starts_with(verdict) && line.contains(topic);
        assert!(finished.out.lines().any(is_its_line), "{topic}: {}", finished.out);
    }
}
