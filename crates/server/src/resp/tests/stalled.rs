//! Requests that stop in the middle, second by second.

use crate::resp::tests::world::World;

const IDLE_S: u64 = 3;
const REFUSED: &str =
    "-ERR the request was given up: no more of it came for 3 s; send it again\r\n";

/// A SET of this many bytes, and the next request.
fn request(bytes: usize) -> String {
    let value = "v".repeat(bytes);
    format!("*5\r\n$3\r\nSET\r\n$1\r\nk\r\n${bytes}\r\n{value}\r\n$2\r\nPX\r\n$5\r\n99999\r\n")
}

#[test]
fn a_large_request_that_stops_is_refused_and_the_next_one_is_served() {
    let mut world = World::new(2);
    let request = request(200_000);
    for stops_at in [100_000, 200_020, 200_031, 200_040, request.len() - 1] {
        for rest_comes_in in [1, 2, 70_000] {
            let before = world.parts().1;
            // Earlier requests are answered earlier.
            let first = format!("ECHO first\r\n{}", &request[..stops_at]);
            assert_eq!(world.call(0, &first).0, "$5\r\nfirst\r\n");
            for _ in 0..IDLE_S {
                assert!(world.parts().0);
                world.pass_second(IDLE_S);
                assert_eq!(world.call(1, "PING\r\n").0, "+PONG\r\n");
                assert_eq!(world.call(0, "").0, "");
            }
            world.pass_second(IDLE_S);
            assert_eq!(world.parts(), (false, before + 1));
            assert_eq!(world.call(0, "").0, REFUSED, "stopped at {stops_at}");
            let rest = format!("{}EXISTS k\r\n", &request[stops_at..]);
            let mut said = String::new();
            for piece in rest.as_bytes().chunks(rest_comes_in) {
                said += &world.call(0, std::str::from_utf8(piece).unwrap()).0;
            }
            assert_eq!(said, ":0\r\n", "stopped at {stops_at}, then in {rest_comes_in}s");
        }
    }
    // It comes whole, and is executed.
    assert_eq!(world.call(0, &format!("{request}EXISTS k\r\n")).0, "+OK\r\n:1\r\n");
}

#[test]
fn a_slow_request_and_a_short_one_are_waited_for() {
    let mut world = World::new(2);
    let request = request(200_000);
    let (start, rest) = request.split_at(100_000);
    world.send(1, "SET short ");
    world.send(0, start);
    for piece in rest.as_bytes().chunks(rest.len() / 20) {
        for _ in 0..IDLE_S {
            world.pass_second(IDLE_S);
        }
        assert_eq!(world.call(0, "").0, "", "it is not answered yet");
        world.send(0, std::str::from_utf8(piece).unwrap());
        world.call(1, "");
    }
    assert_eq!(world.call(0, "").0, "+OK\r\n");
    assert_eq!(world.call(1, "value\r\n").0, "+OK\r\n");
    assert_eq!(world.parts(), (false, 0));
}

#[test]
fn a_rest_that_is_no_request_ends_the_connection() {
    let mut world = World::new(1);
    let request = request(200_000);
    let options_at = request.find("$2\r\n").expect("they follow the value");
    world.call(0, &request[..options_at]);
    for _ in 0..=IDLE_S {
        world.pass_second(IDLE_S);
    }
    assert_eq!(world.call(0, "").0, REFUSED);
    let said = world.call(0, "$2\r\nPX\r\nnonsense\r\nPING\r\n").0;
    assert_eq!(said, "-ERR Protocol error: expected '$', got 'n'\r\n");
}
