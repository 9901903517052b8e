#!/usr/bin/env python3
"""redis-py's clients of Redis Cluster and of Sentinel at a cluster whose primaries die.

usage: clients.py GROUP HOST:PORT...

Beside the writers it has queues, whose clients wait for elements: `set` says of them that an element was taken,
`stale` that it was taken twice, `lost` that it is nowhere.

Group: of the client of Sentinel. tests/src/client_program.rs says what this program prints, and when it
ends.
"""

import logging
import sys
import threading
import time

from redis import Redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ResponseError
from redis.sentinel import Sentinel

# Between two keys of a writer, and behind one that was not acknowledged, s.
PAUSE = 0.003
REST = 0.02
# Tries of a read at the end, which fails while no server leads.
TRIES = 500
# How long a request waits for an element, s: shorter than the time below.
WAIT = 0.25
# Clients that wait at each queue.
TAKERS = 3
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


class Queue:
    """Elements go through two lists: one client pushes them into the first one, one moves them to the
    second one, and several take them from there. The last two wait. Each element was pushed once, so each
    is taken once at most; one whose push was acknowledged is taken, or is in a list, or was given to a
    client whose connection broke instead: one for each time that a taker's connection broke."""

    def __init__(self, shared, name, connect):
        self.shared, self.name, self.connect = shared, name, connect
        tag = f"{{{name[-1]}}}:{name}"
        self.first, self.second = f"{tag}:first", f"{tag}:second"
        self.lock = threading.Lock()
        self.pushed, self.taken = set(), set()
        # BLPOPs that lost their connection: each may have got an element.
        self.broken = 0

    def tried(self, request, *words):
        """The result of a request, and whether it was answered: with an error the result is None."""
        try:
            return self.shared.timed(request, *words), True
        except Exception as error:
            why = f"{type(error).__name__}: {error}".replace("\n", " ")
            self.shared.say(f"failed {self.name} {len(self.taken)} {why}")
            time.sleep(REST)
            return None, isinstance(error, ResponseError)

    def push(self):
        client, number = self.connect(), 0
        while not self.shared.is_over.is_set():
            number += 1
            length, _ = self.tried(client.rpush, self.first, number)
            if length is not None:
                self.pushed.add(number)
            time.sleep(PAUSE)

    def move(self):
        client = self.connect()
        while not self.shared.is_over.is_set():
            self.tried(client.blmove, self.first, self.second, WAIT, "LEFT", "RIGHT")

    def take(self):
        client, was_answered = self.connect(), True
        while not self.shared.is_over.is_set():
            found, is_answered = self.tried(client.blpop, [self.second], WAIT)
            with self.lock:
                # Those that fail behind it find no server.
                self.broken += was_answered and not is_answered
            was_answered = is_answered
            if found is None:
                continue
            number = int(found[1])
            with self.lock:
                is_new = number not in self.taken
                self.taken.add(number)
            self.shared.say(f"{'set' if is_new else 'stale'} {self.name} {number}")

    def threads(self):
        acts = [self.push, self.move] + [self.take] * TAKERS
        return [threading.Thread(target=act) for act in acts]

    def look(self):
        """Says what is lost; nothing, if the lists cannot be read."""
        client, left = self.connect(), None
        for _ in range(TRIES):
            try:
                left = client.lrange(self.first, 0, -1) + client.lrange(self.second, 0, -1)
                break
            except Exception:
                time.sleep(REST)
        if left is None:
            return
        there = [int(number) for number in left]
        for number in there:
            if number in self.taken or there.count(number) > 1:
                self.shared.say(f"stale {self.name} {number}")
        lost = sorted(self.pushed - self.taken - set(there))
        if len(lost) > self.broken:
            for number in lost:
                self.shared.say(f"lost {self.name} {number}")
        self.shared.say(f"found {self.name} {len(self.taken)}")


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
    # A client of Sentinel sends nothing twice by itself.
    connect = lambda: Sentinel(places, sentinel_kwargs=options, **options).master_for(group)
    queues = [Queue(shared, f"queue-{tag}", connect) for tag in "bc"]
    load = each(writers, Writer.write)
    for queue in queues:
        for thread in queue.threads():
            thread.start()
            load.append(thread)
    sys.stdin.read()
    shared.is_over.set()
    for thread in load:
        thread.join()
    for thread in each(writers, Writer.look) + each(queues, Queue.look):
        thread.join()
    shared.say(f"end {int(shared.longest_s * 1000)}")


main()
