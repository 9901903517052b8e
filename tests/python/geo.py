#!/usr/bin/env python3
"""GEO keys through redis-py, with the shipped places, held against brute force.

usage: geo.py host port places.tsv.xz

Whatever does not hold ends it with an error.
"""

import lzma
import math
import random
import sys

import redis

RADIUS_M = 6372797.560856


def load(path):
    """{id: (longitude, latitude)}"""
    points = {}
    with lzma.open(path, "rt", encoding="utf-8") as table:
        columns = next(table).rstrip("\n").split("\t")
        for line in table:
            row = dict(zip(columns, line.rstrip("\n").split("\t")))
            points[row["geonameid"]] = (float(row["longitude"]), float(row["latitude"]))
    return points


def distance(one, other):
    lon1, lat1, lon2, lat2 = map(math.radians, (*one, *other))
    u, v = math.sin((lat2 - lat1) / 2), math.sin((lon2 - lon1) / 2)
    a = u * u + math.cos(lat1) * math.cos(lat2) * v * v
    return 2 * RADIUS_M * math.asin(math.sqrt(a))


def main():
    host, port, path = sys.argv[1:]
    client = redis.Redis(host=host, port=int(port), decode_responses=True)
    points = {name: at for name, at in load(path).items() if abs(at[1]) < 85.05}
    client.delete("places", "near")
    names = list(points)
    for start in range(0, len(names), 1000):
        part = names[start : start + 1000]
        values = [value for name in part for value in (*points[name], name)]
        assert client.geoadd("places", values) == len(part)
    assert client.zcard("places") == len(points) and client.dbsize() == 1
    rng = random.Random(7)
    told = {}
    for name in rng.sample(names, 200):
        told[name] = client.geopos("places", name)[0]
        assert distance(told[name], points[name]) < 1, name
        assert len(client.geohash("places", name)[0]) == 11
    searches = found_in_all = 0
    for name in rng.sample(names, 60):
        centre, radius = told.get(name) or client.geopos("places", name)[0], 10 ** rng.uniform(2, 7)
        found = client.geosearch(
            "places", longitude=centre[0], latitude=centre[1], radius=radius, unit="m",
            withdist=True, sort="ASC",
        )
        assert [d for _, d in found] == sorted(d for _, d in found)
        by_name = {other: d for other, d in found}
        assert len(by_name) == len(found)
        for other, at in points.items():
            away = distance(centre, at)
            if abs(away - radius) > 2:
                assert (other in by_name) == (away < radius), (name, radius, other, away)
        near = client.geosearch("places", member=name, radius=radius, unit="m", count=5)
        assert near == [other for other, _ in found[:5]] or len(set(near)) == min(5, len(found))
        boxed = client.geosearch("places", member=name, width=radius, height=radius, unit="m")
        assert set(boxed) <= set(by_name)
        stored = client.geosearchstore("near", "places", member=name, radius=radius, unit="km",
                                       storedist=True)
        assert stored == client.zcard("near")
        searches, found_in_all = searches + 1, found_in_all + len(found)
    one, other = rng.sample(names, 2)
    away = client.geodist("places", one, other, unit="km")
    assert abs(away * 1000 - distance(points[one], points[other])) < 3
    assert client.zrem("places", one, "nobody") == 1
    assert client.geopos("places", one) == [None]
    try:
        client.get("places")
        raise AssertionError("GET of a GEO key")
    except redis.exceptions.ResponseError as error:
        assert str(error).startswith("WRONGTYPE"), error
    client.set("places", "text")
    assert client.get("places") == "text"
    print(f"{len(points)} places: {searches} searches found {found_in_all}, as brute force does")


main()
