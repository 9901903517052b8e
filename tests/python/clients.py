#!/usr/bin/env python3
"""redis-py's clients of Redis Cluster and of Sentinel at a cluster whose primaries die.

usage: clients.py GROUP HOST:PORT...

Group: of the client of Sentinel. tests/src/client_program.rs says what this program prints, and when it
ends.
"""

import logging
import sys
import threading
import time

from redis import Redis
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

# Between two keys of a writer, and behind one that was not acknowledged, s.
PAUSE = 0.003
REST = 0.02
# Tries of a read at the end, which fails while no server leads.
TRIES = 500
# Without it a server that stands still holds its clients as long, s. A client of Redis Cluster tries five
# times before it looks for another server.
SOCKET_TIMEOUT = 0.5


class Shared:
    """What all writers share."""

    def __init__(self):
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.longest_s = 0.0

    def say(self, text):
        with self.lock:
            print(text, flush=True)

    def timed(self, request, *words):
        """Notes how long a request has taken."""
        begin = time.monotonic()
        try:
            return request(*words)
        finally:
            took = time.monotonic() - begin
            with self.lock:
                self.longest_s = max(self.longest_s, took)


class Writer:
    """Sets one key after the other, each once."""

    def __init__(self, shared, name, client):
        self.shared, self.name, self.client = shared, name, client
        self.acknowledged = []

    def key(self, number):
        return f"{{{self.name[-1]}}}:{self.name}:{number}"

    def write(self):
        number = -1
        while not self.shared.is_over.is_set():
            number += 1
            key, value = self.key(number), str(number)
            try:
                self.shared.timed(self.client.set, key, value)
            except Exception as error:
                why = f"{type(error).__name__}: {error}".replace("\n", " ")
                self.shared.say(f"failed {self.name} {number} {why}")
                time.sleep(REST)
                continue
            self.acknowledged.append(number)
            self.shared.say(f"set {self.name} {number}")
            try:
                if self.shared.timed(self.client.get, key) != value:
                    self.shared.say(f"stale {self.name} {number}")
            except Exception:
                pass
            time.sleep(PAUSE)

    def find(self, key):
        for _ in range(TRIES):
            try:
                return self.client.get(key)
            except Exception:
                time.sleep(REST)
        return None

    def look(self):
        """Reads all that was acknowledged."""
        for number in self.acknowledged:
            if self.find(self.key(number)) != str(number):
                self.shared.say(f"lost {self.name} {number}")
        self.shared.say(f"found {self.name} {len(self.acknowledged)}")


def each(writers, act):
    threads = [threading.Thread(target=act, args=(of,)) for of in writers]
    for thread in threads:
        thread.start()
    return threads


def main():
    # It logs each error that it tries again after.
    logging.disable(logging.CRITICAL)
    group = sys.argv[1]
    places = [of.rsplit(":", 1) for of in sys.argv[2:]]
    places = [(host, int(port)) for host, port in places]
    options = {"socket_timeout": SOCKET_TIMEOUT, "decode_responses": True}
    # redis-py 4.3 cannot connect to a node of which it has no connection yet when it needs a new map of the
    # slots: it copies what cannot be copied. So it gets them, and keeps these nodes to ask.
    nodes = [ClusterNode(*place, redis_connection=Redis(*place, **options)) for place in places]
    cluster = RedisCluster(startup_nodes=nodes, dynamic_startup_nodes=False, **options)
    master = Sentinel(places, sentinel_kwargs=options, **options).master_for(group)
    shared = Shared()
    # The slots of b and c are low ones, those of a and d are high ones.
    writers = [Writer(shared, f"cluster-{tag}", cluster) for tag in "abcd"]
    writers += [Writer(shared, f"sentinel-{tag}", master) for tag in "bc"]
    load = each(writers, Writer.write)
    sys.stdin.read()
    shared.is_over.set()
    for thread in load + each(writers, Writer.look):
        thread.join()
    shared.say(f"end {int(shared.longest_s * 1000)}")


main()
