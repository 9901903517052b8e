//! Requests that are parsed ahead are answered as they are one by one.

use crate::resp::tests::world::World;
use remora_layout::limits::{CONNECTION_REQUESTS_AHEAD, CONNECTION_REQUESTS_PER_TURN};
use remora_testing::Random;

/// A request of a few keys in a few databases, which often depends on the one before.
fn request(random: &mut Random) -> String {
    let words = match random.below(12) {
        0 => format!("SELECT {}", random.below(3)),
        1 | 2 => format!("SET k{} {}", random.below(5), random.below(100)),
        3 | 4 => format!("GET k{}", random.below(5)),
        5 => format!("INCR k{}", random.below(5)),
        6 => format!("DEL k{} k{}", random.below(5), random.below(5)),
        7 => format!("MGET k{} k{} k{}", random.below(5), random.below(5), random.below(5)),
        8 => format!("APPEND k{} x", random.below(5)),
        9 => "PING".to_owned(),
        10 => format!("NONE k{}", random.below(5)),
        // Inline, and an empty one.
        _ => return format!("GET k{}\r\n\r\n", random.below(5)),
    };
    array(&words)
}

fn array(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let bulks = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), bulks.collect::<String>())
}

/// A fresh world's answers to these requests, each sent when the one before is answered.
fn answered(mut world: World, pieces: &[String]) -> String {
    pieces.iter().map(|piece| world.call(0, piece).0).collect()
}

/// The same bytes, in pieces of at most so many.
fn cut(stream: &str, random: &mut Random, most: u64) -> Vec<String> {
    let (mut pieces, mut rest) = (Vec::new(), stream);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(1 + random.below(most) as usize));
        pieces.push(piece.to_owned());
        rest = behind;
    }
    pieces
}

#[test]
fn a_pipeline_is_answered_as_its_requests_are_one_by_one() {
    for seed in 1..=60 {
        let mut random = Random::new(seed);
        let requests: Vec<String> = (0..80).map(|_| request(&mut random)).collect();
        let stream = requests.concat();
        let ends =
            ["", "*1\r\n$4\r\nQUIT\r\n*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n", "*1\r\nxxxxxxxxxxxx"];
        for end in ends {
            let one_by_one = [&requests[..], &[end.to_owned()]].concat();
            let oracle = answered(World::at_home(1), &one_by_one);
            for most in [20, 300, 100_000] {
                let pieces = cut(&format!("{stream}{end}"), &mut random, most);
                assert_eq!(answered(World::at_home(1), &pieces), oracle, "{seed}, {most}");
                assert_eq!(answered(World::new(1), &pieces), oracle, "{seed}, {most}, asked");
            }
        }
    }
}

#[test]
fn what_is_behind_a_turn_is_executed_in_the_next() {
    let mut world = World::at_home(1);
    let requests = CONNECTION_REQUESTS_PER_TURN + CONNECTION_REQUESTS_AHEAD / 2;
    world.send(0, &array("INCR n").repeat(requests));
    world.serve();
    let first: Vec<String> =
        (1..=CONNECTION_REQUESTS_PER_TURN).map(|n| format!(":{n}\r\n")).collect();
    assert_eq!(world.written(0), first.concat());
    world.serve();
    let rest: Vec<String> =
        (CONNECTION_REQUESTS_PER_TURN + 1..=requests).map(|n| format!(":{n}\r\n")).collect();
    assert_eq!(world.written(0), rest.concat());
}

#[test]
fn many_connections_are_answered_as_one_is() {
    let connections = 40;
    let mut world = World::at_home(connections);
    for round in 0..5 {
        for connection in 0..connections {
            // Each has its own key, and reads the value that the one before has written.
            let before = connection.saturating_sub(1);
            let words = format!("SET k{connection} {round}");
            world.send(connection, &(array(&words) + &array(&format!("GET k{before}"))));
        }
        for _ in 0..connections {
            world.serve();
        }
        for connection in 0..connections {
            assert_eq!(world.written(connection), format!("+OK\r\n$1\r\n{round}\r\n"));
        }
    }
}
