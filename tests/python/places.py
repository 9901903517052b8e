#!/usr/bin/env python3
"""Trees of places through redis-py, held against brute force.

usage: places.py host port places.tsv.xz

The points are the shipped places: x is the longitude, y the latitude, and the
name goes along as data. Whatever does not hold ends it with an error.
"""

import lzma
import math
import random
import sys

import redis

def load(path):
    """{id: (x, y)}, {id: name}"""
    points, names = {}, {}
    with lzma.open(path, "rt", encoding="utf-8") as table:
        columns = next(table).rstrip("\n").split("\t")
        for line in table:
            row = dict(zip(columns, line.rstrip("\n").split("\t")))
            place = int(row["geonameid"])
            points[place] = (float(row["longitude"]), float(row["latitude"]))
            names[place] = row["name"]
    return points, names


def inside(window, point):
    minx, miny, maxx, maxy = window
    return minx <= point[0] <= maxx and miny <= point[1] <= maxy


def windows(points, rng):
    """Around places, where the places are; all sizes; some that meet nothing."""
    centres = list(points.values())
    for width in [0, 0.001, 0.1, 1, 5, 20, 90]:
        for _ in range(6):
            x, y = rng.choice(centres)
            yield (x - width, y - width / 2, x + width, y + width / 2)
    yield (-180, -90, 180, 90)
    yield (500, 500, 600, 600)


def chunks(items, size):
    items = list(items)
    for start in range(0, len(items), size):
        yield items[start : start + size]


def add_all(client, points, names):
    ids = list(points)
    for chunk in chunks(ids, 1000):
        pipe = client.pipeline(transaction=False)
        for place in chunk:
            x, y = points[place]
            extra = ["DATA", names[place]] if place % 10 == 0 else []
            pipe.execute_command("RTREE.ADDPOINT", "places", place, x, y, *extra)
        assert pipe.execute() == [1] * len(chunk)


def check_windows(client, points, rng):
    for window in windows(points, rng):
        expected = {place for place, point in points.items() if inside(window, point)}
        found = client.execute_command("RTREE.SEARCH", "places", *window)
        assert len(found) == len(set(found)) == len(expected), window
        assert set(found) == expected, window
        assert client.execute_command("RTREE.COUNT", "places", *window) == len(expected)
        most = rng.randint(1, 50)
        cut = client.execute_command("RTREE.SEARCH", "places", *window, "LIMIT", most)
        assert len(cut) == len(set(cut)) == min(most, len(expected)) and set(cut) <= expected
        if len(expected) < 5000:
            found = client.execute_command(
                "RTREE.SEARCH", "places", *window, "WITHIN", "WITHRECT"
            )
            rects = {row[0]: tuple(map(float, row[1:])) for row in found}
            assert rects == {place: points[place] * 2 for place in expected}
            found = client.execute_command("RTREE.COUNT", "places", *window, "CONTAINS")
            same = sum(point * 2 == tuple(window) for point in map(points.get, expected))
            assert found == same, window


def check_nearest(client, points, rng):
    for count in [1, 2, 10, 100, 2000]:
        x, y = rng.uniform(-180, 180), rng.uniform(-90, 90)
        found = client.execute_command(
            "RTREE.NEAREST", "places", x, y, count, "WITHRECT", "WITHDIST"
        )
        distances = sorted(math.dist((x, y), point) for point in points.values())[:count]
        assert len(found) == len(distances)
        for row, distance in zip(found, distances):
            place, told = row[0], float(row[1])
            assert tuple(map(float, row[2:])) == points[place] * 2
            assert math.isclose(told, distance, rel_tol=1e-12, abs_tol=1e-12)
            assert math.isclose(math.dist((x, y), points[place]), told, rel_tol=1e-12, abs_tol=1e-12)
        ids = client.execute_command("RTREE.NEAREST", "places", x, y, count)
        assert len(set(ids)) == len(ids) == len(found)


def check_objects(client, points, names, rng):
    for place in rng.sample(list(points), 200):
        found = client.execute_command("RTREE.GET", "places", place)
        assert tuple(map(float, found[:4])) == points[place] * 2
        assert found[4] == (names[place].encode() if place % 10 == 0 else None)
    assert client.execute_command("RTREE.GET", "places", 1) is None


def info(client):
    found = client.execute_command("RTREE.INFO", "places")
    if isinstance(found, list):
        found = dict(zip(found[::2], found[1::2]))
    return {key.decode(): value for key, value in found.items()}


def refused(client, *words):
    try:
        found = client.execute_command(*words)
    except redis.ResponseError as error:
        return str(error)
    raise AssertionError(f"{words}: {found}")


def check_refusals(client):
    for words, text in [
        (("RTREE.ADDPOINT", "places", 1, "nan", 0), "x is not finite"),
        (("RTREE.ADDPOINT", "places", "x" * 513, 0, 0), "id is empty or longer than 512"),
        (("RTREE.SEARCH", "places", 1, 0, 0, 1), "minx is greater than maxx"),
        (("RTREE.SEARCH", "nowhere", 0, 0, 1, 1), "no such tree"),
        (("RTREE.NEAREST", "places", 0, 0, 2001), "count is not an integer from 1 to 2000"),
        (("RTREE.CREATE", "places"), "a tree of that name exists"),
    ]:
        found = refused(client, *words)
        assert text in found, found


def run(client, points, names, kind):
    rng = random.Random(kind)
    assert client.execute_command("RTREE.DROP", "places") in (0, 1)
    bounds = ("BOUNDS", -180, -90, 180, 90)
    made = client.execute_command("RTREE.CREATE", "places", "KIND", kind, *bounds)
    assert made in (b"OK", "OK", True), made
    points = dict(points)
    add_all(client, points, names)
    facts = info(client)
    assert facts["kind"] == kind.encode() and facts["objects"] == len(points), facts
    assert facts["with_data"] == sum(place % 10 == 0 for place in points)
    assert client.exists("places") == 1 and client.type("places") == b"rtree"
    check_windows(client, points, rng)
    check_nearest(client, points, rng)
    check_objects(client, points, names, rng)
    check_refusals(client)
    # Half of them go, and a tenth moves.
    gone = rng.sample(list(points), len(points) // 2)
    for chunk in chunks(gone, 5000):
        assert client.execute_command("RTREE.REM", "places", *chunk, 1) == len(chunk)
    for place in gone:
        del points[place]
    pipe = client.pipeline(transaction=False)
    for place in rng.sample(list(points), len(points) // 10):
        points[place] = (rng.uniform(-180, 180), rng.uniform(-90, 90))
        pipe.execute_command("RTREE.ADDPOINT", "places", place, *points[place])
    assert set(pipe.execute()) == {0}
    check_windows(client, points, rng)
    check_nearest(client, points, rng)
    check_objects(client, points, names, rng)


def main():
    host, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    points, names = load(path)
    protocols = [{}]
    if int(redis.__version__.split(".")[0]) >= 5:
        protocols = [{"protocol": 2}, {"protocol": 3}]
    runs = 0
    for at, kind in enumerate(["rstar", "guttman", "hilbert"]):
        client = redis.Redis(host=host, port=port, **protocols[at % len(protocols)])
        run(client, points, names, kind)
        runs += 1
    client.flushall()
    assert "no such tree" in refused(client, "RTREE.INFO", "places")
    print(f"{runs} kinds of trees of {len(points)} places hold against brute force")


if __name__ == "__main__":
    main()
