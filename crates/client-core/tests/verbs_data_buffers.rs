//! Large replies over RDMA: the client registers memory on demand, and no more of it than the load
//! allows. The tests need devices and a server: the virtual machine of `make rxe` runs them.

use remora_client_core::{Client, Options, Path, SetOptions, Wanted};
use remora_fabric::verbs::{Load, LoadMeter, buffer_bytes, places, ranked};
use remora_fabric::{Address, Transport};
use remora_layout::limits::{DATA_BUFFER_BYTES, DATA_BUFFER_STEP_BYTES, STREAM_BYTES};
use std::net::UdpSocket;
use std::time::Duration;

fn connect(data_buffer_bytes: usize) -> Client {
    let server = std::env::var("REMORA_SERVER").expect("the virtual machine says where");
    let server = Address::Tcp(server.parse().expect("an address"));
    let (transport, timeout) = (Wanted::Verbs, Duration::from_secs(60));
    let options = Options { transport, timeout, data_buffer_bytes, ..Options::default() };
    let client = Client::connect(server, &options).expect("the server is up");
    assert_eq!(client.transport(), Transport::Verbs);
    client
}

/// A value that tells its key and place.
fn value(key: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 8 * 31 + at + key * 7) as u8).collect()
}

/// Sets these keys to values of these lengths.
fn set(client: &Client, lengths: &[usize]) {
    let mut session = client.session().unwrap();
    for (key, &bytes) in lengths.iter().enumerate() {
        let name = format!("large{key}");
        assert!(session.set(name.as_bytes(), &value(key, bytes), SetOptions::default()).unwrap());
    }
}

fn ask(client: &Client, key: usize, bytes: usize) {
    let mut session = client.session().unwrap();
    let got = session.get(format!("large{key}").as_bytes(), Path::Ask).unwrap();
    assert!(got.value == Some(&value(key, bytes)[..]), "{key} of {bytes} bytes");
}

#[test]
fn what_no_frame_carries_comes_into_memory_that_grows_when_it_is_needed() {
    let client = connect(DATA_BUFFER_BYTES);
    let limit = client.data_buffers().limit_bytes;
    assert!(limit > 0 && limit <= DATA_BUFFER_BYTES * 7 / 10, "{limit}");
    let lengths = [STREAM_BYTES, STREAM_BYTES + 1, DATA_BUFFER_STEP_BYTES + 8, 5_000_001];
    set(&client, &lengths);
    // A control message carries the first: see docs/papers.md, M14.
    ask(&client, 0, lengths[0]);
    assert_eq!(client.data_buffers().bytes, 0);
    for (key, expected) in [(1, 1 << 20), (2, (1 << 20) + (1 << 20) + 8), (1, (2 << 20) + 8)] {
        ask(&client, key, lengths[key]);
        assert_eq!(client.data_buffers().bytes, expected);
    }
    ask(&client, 3, lengths[3]);
    let counts = client.data_buffers();
    assert!(counts.bytes >= lengths[3] && counts.bytes <= counts.limit_bytes, "{counts:?}");
    // Removing a value needs no more room than the value.
    let mut session = client.session().unwrap();
    for key in [1, 3] {
        let taken = session.get_del(format!("large{key}").as_bytes()).unwrap();
        assert!(taken == Some(&value(key, lengths[key])[..]), "{key}");
        assert_eq!(session.get_del(format!("large{key}").as_bytes()), Ok(None));
    }
    assert_eq!((client.data_buffers().busy_bytes, client.data_buffers().bytes), (0, counts.bytes));
}

#[test]
fn threads_share_what_the_load_allows_and_wait_for_the_rest() {
    // 0.7 MB at most: each of the larger ones has to arrive alone.
    let client = connect(1_000_000);
    let lengths = [100_000, 300_000, 700_008, 3_000_000];
    set(&client, &lengths);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (client, lengths) = (&client, &lengths);
            scope.spawn(move || {
                for round in 0..6 {
                    let key = (thread + round) % lengths.len();
                    ask(client, key, lengths[key]);
                }
            });
        }
    });
    let counts = client.data_buffers();
    assert!(counts.busy_bytes == 0 && counts.bytes <= 700_000, "{counts:?}");
}

#[test]
fn the_load_is_that_of_the_machine_and_the_limit_follows_it() {
    let place = ranked(places(), None).into_iter().find(|place| place.device == "rxe1");
    let place = place.expect("the virtual machine has two");
    let mut meter = LoadMeter::new(&place);
    let idle = meter.load();
    assert!(idle.memory > 0.0 && idle.memory < 1.0, "{idle:?}");
    // As much as a fifth of the machine.
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let taken = vec![1u8; system.total_memory() as usize / 5];
    let loaded = meter.load();
    let more = loaded.memory - idle.memory;
    assert!((0.1..0.3).contains(&more), "{idle:?}, then {loaded:?}");
    let bytes = |memory| buffer_bytes(DATA_BUFFER_BYTES, Load { memory, network: 0.0 });
    assert!(bytes(loaded.memory) < bytes(idle.memory));
    drop(taken);

    // Packets without a receiver: 20 MB, of what the port says it carries. The
    // meter's window is at least `inner` and at most `outer`.
    std::thread::sleep(Duration::from_millis(50));
    let outer = std::time::Instant::now();
    meter.load();
    let inner = std::time::Instant::now();
    let socket = UdpSocket::bind(("10.0.0.2", 0)).expect("rxe1's address");
    let (packet, packets) = ([0; 1_400], 14_000u64);
    for _ in 0..packets {
        // The kernel may report that no process listens.
        let _ = socket.send_to(&packet, "10.0.0.1:9");
    }
    std::thread::sleep(Duration::from_millis(10));
    let inner = inner.elapsed();
    let sent = meter.load().network;
    // The veth pair says 10 Gb/s. Half of the packets may meet a full queue.
    let bits = (packets * 1_500 * 8) as f64;
    let share = |time: Duration| bits / 10e9 / time.as_secs_f64();
    let (least, most) = (share(outer.elapsed()) / 8.0, share(inner) * 2.0);
    assert!(sent > least && sent < most, "{sent} is not in {least}..{most}");
}
