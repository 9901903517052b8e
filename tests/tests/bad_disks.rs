//! A real server whose disk fails: it refuses changes and says why everywhere, reads go on, and
//! nothing is lost that was acknowledged.

use remora_client::{Address, Error, Options, Refusal, Session, Wake};
use remora_tests::{Fault, Resp, ServerProcess, UnreliableDisk, Value, wait_until};
use std::time::Duration;

const FAULTS: [Fault; 3] = [Fault::Full, Fault::Write, Fault::Sync];

fn session(server: &ServerProcess) -> Session {
    let options = Options::default().wake(Wake::Event).timeout(Duration::from_secs(30));
    Session::connect(&Address::unix(server.socket()), &options).expect("it runs")
}

fn persistence(resp: &mut Resp) -> String {
    match resp.call("INFO persistence") {
        Value::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Changes that are refused, over RESP and over rings, and reads that are not.
fn check_failing(server: &ServerProcess, session: &mut Session, fault: Fault) {
    let mut resp = server.resp();
    let writes = ["SET new 1", "MSET a 1 b 2", "INCR before", "HSET hash f 2", "DEL before"];
    for request in writes {
        let Value::Error(text) = resp.call(request) else { panic!("{request} was taken") };
        assert!(text.starts_with("MISCONF ") && text.contains("INFO persistence"), "{text}");
    }
    assert_eq!(session.set(b"new", b"1"), Err(Error::Refused(Refusal::NotKept)));
    let removed = session.remove(b"before").unwrap_err();
    assert_eq!(removed.refusal(), Some(Refusal::NotKept));
    assert!(removed.to_string().contains("INFO") && !removed.is_final(), "{removed}");
    // What was there before is read by every path, and nothing is there of what was refused.
    assert_eq!(resp.call("GET before"), Value::bulk("1"));
    assert_eq!(resp.call("HGET hash f"), Value::bulk("1"));
    assert_eq!(resp.call("GET new"), Value::Null);
    assert_eq!(session.get(b"before").unwrap().value, Some(&b"1"[..]));
    let told = persistence(&mut resp);
    assert!(told.contains("log_status:err"), "{told}");
    let reason = if fault == Fault::Full { "No space left" } else { "error" };
    let failure = told.lines().find(|line| line.starts_with("log_failure:")).unwrap_or_default();
    assert!(failure.contains(reason), "{told}");
    let log = server.log();
    let says = "the log cannot be written: changes are refused until it can";
    assert_eq!(log.matches(says).count(), 1, "{log}");
}

#[test]
fn a_server_with_a_failing_disk_refuses_changes_and_goes_on_once_it_works() {
    for durability in ["memory", "everysec", "fsync"] {
        for fault in FAULTS {
            let mut disk = UnreliableDisk::new();
            let flags = ["--shards=2", &format!("--durability={durability}")];
            let mut server = disk.serve(&flags);
            let (mut resp, mut session) = (server.resp(), session(&server));
            assert_eq!(resp.call("SET before 1"), Value::ok());
            assert_eq!(resp.call("HSET hash f 1"), Value::Integer(1));

            // Nothing of before is to be written when it begins to fail.
            let on_disk = Value::Array(vec![Value::Integer(1), Value::Integer(0)]);
            assert_eq!(resp.call("WAITAOF 1 0 0"), on_disk);
            disk.set_fault(Some(fault));
            // It finds the failure, and its reply waits where it has to.
            resp.send(&[b"SET", b"during", b"1"]).unwrap();
            let mut info = server.resp();
            wait_until("the server knows", || persistence(&mut info).contains("log_status:err"));
            check_failing(&server, &mut session, fault);

            disk.set_fault(None);
            wait_until("changes go on", || session.set(b"after", b"1").is_ok());
            assert_eq!(resp.receive().unwrap(), Value::ok(), "{durability} {fault:?}");
            let told = persistence(&mut info);
            assert!(told.contains("log_status:ok"), "{told}");
            assert!(server.log().contains("the log can be written again"), "{}", server.log());
            if durability != "fsync" {
                session.wait_synced(Duration::from_secs(30)).unwrap();
            }
            drop((resp, info, session));
            server.kill();
            disk.cut_power(7);
            let server = disk.serve(&flags);
            let mut resp = server.resp();
            for key in ["before", "during", "after"] {
                let got = resp.call(&format!("GET {key}"));
                assert_eq!(got, Value::bulk("1"), "{durability} {fault:?} {key}");
            }
            assert_eq!(resp.call("GET new"), Value::Null);
        }
    }
}
