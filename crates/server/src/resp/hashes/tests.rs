//! Hashes of another shard: which are read, and which are asked.

use crate::resp::tests::world::{World, request};

/// Small ones lie whole in their record.
#[test]
fn fields_are_read_and_what_is_not_found_is_asked_for() {
    let mut world = World::new(1);
    let fields: String = (0..2_000).map(|field| format!(" f{field} v{field}")).collect();
    world.call(0, "HSET small f1 v1 f2 v22\r\n");
    world.call(0, &request(&format!("HSET large{fields}")));
    for key in ["small", "large"] {
        let before = world.reads();
        let lines = format!("HGET {key} f1\r\nHEXISTS {key} f2\r\nHSTRLEN {key} f1\r\n");
        let (replies, jobs) = world.call(0, &lines);
        assert_eq!((replies.as_str(), jobs), ("$2\r\nv1\r\n:1\r\n:2\r\n", 0), "{key}");
        assert_eq!(world.reads(), (before.0 + 3, before.1), "{key}");
        let (reply, jobs) = world.call(0, &format!("HGET {key} none\r\n"));
        assert_eq!((reply.as_str(), jobs), ("$-1\r\n", 1), "{key}");
        assert_eq!(world.call(0, "HGET absent f\r\nTYPE absent\r\n").0, "$-1\r\n+none\r\n");
    }
    let lines = "HLEN small\r\nHMGET small f2 none f1\r\n";
    let replies = ":2\r\n*3\r\n$3\r\nv22\r\n$-1\r\n$2\r\nv1\r\n";
    assert_eq!(world.call(0, lines), (replies.into(), 0));
    let lines = "HLEN large\r\nHMGET large f0 f1\r\n";
    assert_eq!(world.call(0, lines), (":2000\r\n*2\r\n$2\r\nv0\r\n$2\r\nv1\r\n".into(), 2));
    world.call(0, "SET s v\r\n");
    assert_eq!(world.call(0, "TYPE s\r\n"), ("+string\r\n".into(), 0));
    let (reply, jobs) = world.call(0, "TYPE small\r\nHGET s f\r\n");
    assert!(reply.starts_with("+hash\r\n-WRONGTYPE") && jobs == 2, "{reply}");
}

#[test]
fn a_connection_sees_its_own_changes_of_hashes() {
    let mut world = World::new(1);
    let fields: String = (0..2_000).map(|field| format!(" f{field} v{field}")).collect();
    for (key, made) in [("h", "HSET h f0 v0 f1 v1"), ("l", &format!("HSET l{fields}"))] {
        world.call(0, &request(made));
        let lines =
            format!("HGET {key} f1\r\nHSET {key} f1 w\r\nHGET {key} f1\r\nHDEL {key} f1\r\n")
                + &format!(
                    "HGET {key} f1\r\nHSET {key} f1 x\r\nPERSIST {key}\r\nHGET {key} f1\r\n"
                )
                + &format!("DEL {key}\r\nHGET {key} f1\r\n");
        let (replies, _) = world.call(0, &lines);
        let expected =
            "$2\r\nv1\r\n:0\r\n$1\r\nw\r\n:1\r\n$-1\r\n:1\r\n:0\r\n$1\r\nx\r\n:1\r\n$-1\r\n";
        assert_eq!(replies, expected, "{key}");
        // An expired field is not read.
        world.call(0, &(request(made) + &format!("PEXPIREAT {key} 1000\r\n")));
        for (unix_ms, jobs) in [(999, 0), (1_000, 1)] {
            world.set_time(unix_ms);
            let (_, asked) = world.call(0, &format!("HGET {key} f1\r\n"));
            assert_eq!(asked, jobs, "{key} at {unix_ms} ms");
        }
        world.set_time(0);
    }
}
