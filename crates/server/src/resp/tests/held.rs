//! Replies of the thread's own shard, which waits for a disk.

use crate::resp::tests::world::World;

/// What a connection gets for a request, as far as it may leave now.
fn reply(world: &mut World, connection: usize, lines: &str) -> String {
    world.send(connection, lines);
    for _ in 0..3 {
        world.serve();
    }
    world.written(connection)
}

#[test]
fn replies_wait_in_their_connection_until_their_changes_are_durable() {
    let mut world = World::told(3);
    assert_eq!(reply(&mut world, 0, "SET key value\r\nPING\r\n"), "");
    assert_eq!(reply(&mut world, 1, "GET key\r\n"), "", "it looks at what is not durable");
    assert_eq!(reply(&mut world, 2, "GET absent\r\n"), "$-1\r\n", "it looks elsewhere");
    assert_eq!(reply(&mut world, 2, "DEL key\r\n"), "");
    world.set_durable(1);
    assert_eq!(reply(&mut world, 0, ""), "+OK\r\n+PONG\r\n");
    assert_eq!(reply(&mut world, 1, ""), "$5\r\nvalue\r\n");
    assert_eq!(reply(&mut world, 2, ""), "");
    world.set_durable(2);
    assert_eq!(reply(&mut world, 2, ""), ":1\r\n");
}
