//! Sessions that wait until their changes are on the disk, whatever the server's durability is.

use remora_client::{Address, Error, Options, Refusal, Session, Transport, Wake};
use remora_tests::{Fault, ServerProcess, UnreliableDisk, Value, wait_until};
use std::time::{Duration, Instant};

const DURABILITIES: [&str; 3] = ["memory", "everysec", "fsync"];
const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::Tcp];
const LONG: Duration = Duration::from_secs(30);
/// The bad disk's syncs take this much longer, ms.
const SLOW_MS: u32 = 400;

fn session(server: &ServerProcess, transport: Transport) -> Session {
    let address = match transport {
        Transport::Tcp => {
            let told = server.resp().call("CONFIG GET fabric_address");
            let Value::Array(pair) = &told else { panic!("{told:?}") };
            let Some(Value::Bulk(address)) = pair.get(1) else { panic!("{told:?}") };
            Address::tcp(String::from_utf8_lossy(address).parse().unwrap())
        }
        _ => Address::unix(server.socket()),
    };
    let options = Options::default().wake(Wake::Event).timeout(LONG).transport(transport);
    Session::connect(&address, &options).expect("it runs")
}

fn flags(durability: &str) -> [String; 3] {
    [
        "--shards=3".into(),
        "--fabric-address=127.0.0.1:0".into(),
        format!("--durability={durability}"),
    ]
}

fn serve(disk: &UnreliableDisk, durability: &str) -> ServerProcess {
    disk.serve(&flags(durability).each_ref().map(String::as_str))
}

#[test]
fn what_a_session_has_waited_for_survives_a_power_cut() {
    for durability in DURABILITIES {
        let mut disk = UnreliableDisk::new();
        for (incarnation, transport) in TRANSPORTS.into_iter().enumerate() {
            let mut server = serve(&disk, durability);
            let mut session = session(&server, transport);
            for at in 0..60 {
                session
                    .set(format!("{incarnation}-{at}").as_bytes(), durability.as_bytes())
                    .unwrap();
            }
            session
                .hash(b"hash")
                .unwrap()
                .set(&[(b"incarnation", &[incarnation as u8][..])])
                .unwrap();
            session.wait_synced(LONG).unwrap();
            assert_eq!(server.resp().info("log_unsynced_bytes"), 0);
            let asked = session.counts().asked;
            session.wait_synced(LONG).unwrap();
            assert_eq!(session.counts().asked, asked, "it has changed nothing since");
            server.kill();
            disk.cut_power(incarnation as u64);
        }
        let server = serve(&disk, durability);
        let mut session = session(&server, Transport::Shm);
        for incarnation in 0..TRANSPORTS.len() {
            for at in 0..60 {
                let got = session.get(format!("{incarnation}-{at}").as_bytes()).unwrap();
                assert_eq!(
                    got.value,
                    Some(durability.as_bytes()),
                    "{durability} {incarnation}-{at}"
                );
            }
        }
        let incarnation = session.hash(b"hash").unwrap().get(b"incarnation").unwrap();
        assert_eq!(incarnation.value, Some(&[1][..]));
    }
}

#[test]
fn it_delays_itself_alone_and_tells_what_is_missing() {
    let disk = UnreliableDisk::new();
    for transport in TRANSPORTS {
        let server = serve(&disk, "memory");
        let (mut waiting, mut other) = (session(&server, transport), session(&server, transport));
        disk.set_fault(Some(Fault::Slow(SLOW_MS)));
        waiting.set(b"order", b"paid").unwrap();
        let paid = waiting.begin_sync().unwrap();
        // The same session goes on meanwhile, and its later changes are not waited for.
        let began = Instant::now();
        while !waiting.is_synced(&paid).unwrap() {
            waiting.set(b"courier", b"busy").unwrap();
            other.set(b"courier", b"free").unwrap();
            // The sync may end between the two questions.
            let seen = other.is_synced(&paid).unwrap();
            assert!(waiting.is_synced(&paid).unwrap() || !seen);
        }
        assert!(began.elapsed() >= Duration::from_millis(u64::from(SLOW_MS) / 2));
        waiting.set(b"order", b"sent").unwrap();
        let short = Duration::from_millis(20);
        let Err(Error::NotSynced { changes: 1.. }) = waiting.wait_synced(short) else {
            panic!("the disk takes longer");
        };
        assert_eq!(waiting.get(b"order").unwrap().value, Some(&b"sent"[..]));
        waiting.wait_synced(LONG).unwrap();
        disk.set_fault(None);
    }
}

#[test]
fn many_sessions_wait_for_the_same_syncs() {
    let disk = UnreliableDisk::new();
    let server = serve(&disk, "everysec");
    disk.set_fault(Some(Fault::Slow(20)));
    let before = server.resp().info("log_syncs");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let mut session = session(&server, TRANSPORTS[thread % 2]);
            scope.spawn(move || {
                for at in 0..5 {
                    session.set(format!("{thread}-{at}").as_bytes(), b"1").unwrap();
                    session.wait_synced(LONG).unwrap();
                }
            });
        }
    });
    let syncs = server.resp().info("log_syncs") - before;
    assert!(server.resp().info("log_syncs_asked") >= 5);
    assert!((5..35).contains(&syncs), "{syncs} syncs for 40 waits");
}

#[test]
fn without_a_disk_and_with_one_that_fails_it_says_what_to_do() {
    let server = ServerProcess::start(&["--max-memory=32MiB", "--shards=2"]);
    let mut nothing = session(&server, Transport::Shm);
    nothing.wait_synced(LONG).expect("nothing was changed");
    nothing.set(b"key", b"value").unwrap();
    let refused = nothing.wait_synced(LONG).unwrap_err();
    assert_eq!(refused.refusal(), Some(Refusal::NothingKept));
    assert!(refused.to_string().contains("--data-dir"), "{refused}");
    assert!(!refused.is_final());

    let disk = UnreliableDisk::new();
    let server = serve(&disk, "memory");
    let mut session = session(&server, Transport::Shm);
    session.set(b"key", b"1").unwrap();
    session.wait_synced(LONG).unwrap();
    disk.set_fault(Some(Fault::Write));
    session.set(b"key", b"2").unwrap();
    let refused = session.wait_synced(LONG).unwrap_err();
    assert_eq!(refused.refusal(), Some(Refusal::NotKept));
    disk.set_fault(None);
    wait_until("the disk is mended", || session.wait_synced(LONG).is_ok());
    assert_eq!(server.resp().info("log_unsynced_bytes"), 0);
}
