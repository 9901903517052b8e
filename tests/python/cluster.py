#!/usr/bin/env python3
"""redis-py's clients of Redis Cluster and of Sentinel at two servers of a cluster.

usage: cluster.py halves|failover host port other-port

halves: each server leads half of the slots; once the key `phase` is set, they change their halves.
failover: the first one leads all slots, the other is its replica; once the key `phase` is set, they
change their roles.

Whatever does not hold ends it with an error.
"""

import sys
import time

import redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisError, ResponseError
from redis.sentinel import MasterNotFoundError, Sentinel

KEYS = 300


def wait_until(what, holds):
    for _ in range(1200):
        try:
            if holds():
                return
        except RedisError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"not in time: {what}")


def refused(client, *words):
    try:
        client.execute_command(*words)
    except ResponseError as error:
        return str(error)
    raise SystemExit(f"not refused: {words}")


def is_moved(client, key):
    try:
        client.get(key)
        return False
    except ResponseError as error:
        return str(error).startswith("MOVED ")


def spread(cluster, low, high, value):
    """Sets all keys: those of low slots are at one server, the others at the other one."""
    for at in range(KEYS):
        key = f"key-{at}"
        assert cluster.set(key, f"{value}-{at}")
        right, wrong = (low, high) if cluster.keyslot(key) < 8192 else (high, low)
        assert right.get(key) == f"{value}-{at}".encode(), key
        assert refused(wrong, "GET", key).startswith(f"MOVED {cluster.keyslot(key)} "), key
        assert cluster.get(key) == f"{value}-{at}".encode(), key


def halves(host, port, other):
    one, two = redis.Redis(host, port), redis.Redis(host, other)
    cluster = RedisCluster(host, port)
    assert {node.port for node in cluster.get_primaries()} == {port, other}
    spread(cluster, one, two, "first")
    sizes = one.dbsize(), two.dbsize()
    assert sum(sizes) == KEYS and min(sizes) > KEYS // 3, sizes
    assert refused(one, "MGET", "a", "b").startswith("CROSSSLOT "), "two slots"
    assert cluster.mset({"{tag}a": 1, "{tag}b": 2})
    assert cluster.mget("{tag}a", "{tag}b") == [b"1", b"2"]
    with cluster.pipeline() as pipeline:
        for at in range(KEYS):
            pipeline.get(f"key-{at}")
        assert pipeline.execute() == [f"first-{at}".encode() for at in range(KEYS)]
    info = cluster.cluster_info(target_nodes=cluster.get_node(host, port))
    assert info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "2", info
    nodes = cluster.cluster_nodes()
    assert set(nodes) == {f"{host}:{port}", f"{host}:{other}"}, nodes
    assert len(one.execute_command("CLUSTER MYID")) == 40
    assert one.info("cluster") == {"cluster_enabled": 1}

    assert cluster.set("phase", "swap")
    # The slot of `b` is a low one, that of `a` is a high one.
    wait_until("they change", lambda: is_moved(one, "b") and is_moved(two, "a"))
    # The client has an old map, and learns.
    spread(cluster, two, one, "second")
    assert len(one.execute_command("CLUSTER SHARDS")) == 2


def failover(host, port, other):
    cluster = RedisCluster(host, port)
    reader = RedisCluster(host, port, read_from_replicas=True)
    sentinel = Sentinel([(host, other), (host, port)])
    assert sentinel.discover_master("one") == (host, port)
    assert sentinel.discover_slaves("one") == [(host, other)]
    state = sentinel.sentinels[0].sentinel_master("one")
    assert state["is_master"] and state["num-slaves"] == 1, state
    quorum = sentinel.sentinels[0].execute_command("SENTINEL", "CKQUORUM", "one")
    assert quorum.startswith(b"OK 2 usable Sentinels."), quorum
    try:
        sentinel.discover_master("none")
        raise SystemExit("a master of no name")
    except MasterNotFoundError:
        pass
    master, slave = sentinel.master_for("one"), sentinel.slave_for("one")
    for at in range(KEYS):
        assert cluster.set(f"key-{at}", at)
    replica = redis.Redis(host, other, single_connection_client=True)
    replica.execute_command("READONLY")
    wait_until("the replica has all", lambda: replica.get(f"key-{KEYS - 1}"))
    assert is_moved(slave, "key-1"), "it has not said READONLY"
    # A replica answers those that say READONLY.
    wait_until("it reads", lambda: [reader.get("key-1") for _ in range(4)] == [b"1"] * 4)
    assert master.set("of-sentinel", 1)

    subscriber = redis.Redis(host, other).pubsub()
    subscriber.subscribe("+switch-master")
    assert subscriber.get_message(timeout=30)["type"] == "subscribe"
    assert cluster.set("phase", "swap")
    message = subscriber.get_message(timeout=60)
    assert message["channel"] == b"+switch-master", message
    assert message["data"] == f"one {host} {port} {host} {other}".encode(), message

    new = redis.Redis(host, other)
    wait_until("the other one leads", lambda: cluster.set("after", 1))
    assert new.get("after") == b"1"
    for at in range(KEYS):
        assert cluster.get(f"key-{at}") == str(at).encode(), at
        assert cluster.set(f"key-{at}", f"new-{at}")
    wait_until("sentinel's client follows", lambda: master.set("of-sentinel", 2))
    assert new.get("of-sentinel") == b"2"
    assert sentinel.discover_master("one") == (host, other)
    wait_until("the old one follows", lambda: sentinel.discover_slaves("one") == [(host, port)])


def main():
    mode, host, port, other = sys.argv[1:]
    {"halves": halves, "failover": failover}[mode](host, int(port), int(other))
    print("redis-py follows the cluster")


main()
