#!/usr/bin/env python3
"""A primary and its replica through redis-py, which parses ROLE and INFO replication.

usage: roles.py host port replica's-host replica's-port fabric-host fabric-port

Whatever does not hold ends it with an error.
"""

import sys
import time

import redis


def wait_until(what, holds):
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.1)
    raise SystemExit(f"not in time: {what}")


def has_all(replica):
    try:
        return replica.dbsize() == 1000
    except redis.exceptions.RedisError:
        # It answers reads once it knows how fresh it is.
        return False


def main():
    host, port, replica_host, replica_port, fabric_host, fabric_port = sys.argv[1:]
    primary = redis.Redis(host, int(port))
    replica = redis.Redis(replica_host, int(replica_port))
    primary.mset({f"key-{at}": at for at in range(1000)})
    assert replica.slaveof(fabric_host, int(fabric_port))
    wait_until("the replica follows", lambda: replica.role()[3] == b"connected")
    wait_until("it has all", lambda: has_all(replica))

    info = replica.info("replication")
    assert info["role"] == "slave", info
    assert info["master_host"] == fabric_host and info["master_port"] == int(fabric_port), info
    assert info["master_link_status"] == "up" and info["slave_read_only"] == 1, info
    assert info["master_sync_in_progress"] == 0, info
    assert info["master_last_io_seconds_ago"] < 60 and info["connected_slaves"] == 0, info
    assert info["slave_repl_offset"] > 0, info
    kind, master, master_port, state, offset = replica.role()
    assert (kind, master, master_port) == (b"slave", fabric_host.encode(), int(fabric_port))
    assert offset > 0

    def named():
        of = primary.info("replication")
        return of["connected_slaves"] == 1 and of["slave0"]["state"] == "online"

    wait_until("the primary names it", named)
    info = primary.info("replication")
    slave = info["slave0"]
    assert slave["ip"] == replica_host and slave["port"] == int(replica_port), slave
    assert info["role"] == "master" and len(info["master_replid"]) == 40, info
    assert info["master_replid"] == replica.info("replication")["master_replid"], info
    wait_until(
        "the replica says so",
        lambda: primary.info("replication")["slave0"]["offset"] == info["master_repl_offset"],
    )
    kind, offset, replicas = primary.role()
    assert kind == b"master" and offset == info["master_repl_offset"], (kind, offset)
    assert replicas[0][:2] == [replica_host.encode(), replica_port.encode()], replicas

    try:
        replica.set("key", 1)
        raise SystemExit("a replica takes a SET")
    except redis.exceptions.ReadOnlyError:
        pass
    assert replica.slaveof()
    assert replica.role()[0] == b"master" and replica.set("key", 1)
    print("redis-py reads both roles")


main()
