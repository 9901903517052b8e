//! How reads of another shard's memory are counted.

use crate::resp::tests::world::World;

#[test]
fn values_that_are_read_in_memory_are_hits() {
    let mut world = World::new(1);
    let lines = "SET k v\r\nDEL other\r\n";
    world.call(0, lines);
    let (replies, jobs) = world.call(0, "GET k\r\nMGET k k\r\nSTRLEN k\r\nEXISTS k\r\n");
    assert_eq!(replies, "$1\r\nv\r\n*2\r\n$1\r\nv\r\n$1\r\nv\r\n:1\r\n:1\r\n");
    assert_eq!((jobs, world.reads()), (0, (5, 0)));
    assert_eq!(world.hits(), (3, 0));
    // The shard counts the commands that it gets.
    assert_eq!(world.call(0, "GET absent\r\nGETDEL k\r\n").0, "$-1\r\n$1\r\nv\r\n");
    assert_eq!(world.hits(), (3, 1));
}
