"""Searches by place through pymongo, compared with the haversine formula.

usage: places.py ADDRESS
"""

import math
import random
import sys

from pymongo import GEO2D, GEOSPHERE, MongoClient
from pymongo.errors import BulkWriteError, OperationFailure

RADIUS = 6_378_100.0
# The date line, the poles, the zero of both, and two usual places.
CENTRES = ([0, 0], [179.9, 10], [-180, -45], [10, 89.9], [77, -90], [3, 50])


def distance(one, other):
    """Metres on the sphere."""
    x, y, u, v = map(math.radians, (*one, *other))
    half = math.sin((v - y) / 2) ** 2
    half += math.cos(y) * math.cos(v) * math.sin((u - x) / 2) ** 2
    return 2 * RADIUS * math.asin(min(1, math.sqrt(half)))


def point(at):
    return {"type": "Point", "coordinates": list(at)}


def must_fail(code, call):
    try:
        call()
    except BulkWriteError as error:
        found = error.details["writeErrors"][0]["code"]
    except OperationFailure as error:
        found = error.code
    else:
        found = None
    assert found == code, f"code {found}, not {code}"


def on_the_sphere(places):
    draw = random.Random(3)
    documents = [
        {"_id": at, "at": point((draw.uniform(-180, 180), draw.uniform(-90, 90))), "k": at % 7}
        for at in range(5000)
    ]
    places.insert_many(documents)
    near = {"at": {"$near": {"$geometry": point([0, 0])}}}
    stage = {"near": point([0, 0]), "distanceField": "far"}
    must_fail(291, lambda: list(places.find(near)))
    must_fail(27, lambda: list(places.aggregate([{"$geoNear": stage}])))
    places.create_index([("at", GEOSPHERE)])
    for centre in CENTRES:
        far = sorted((distance(centre, of["at"]["coordinates"]), of["_id"]) for of in documents)
        at = {"at": {"$near": {"$geometry": point(centre)}}}
        found = [of["_id"] for of in places.find(at).batch_size(17)]
        assert found == [of[1] for of in far], centre

        at["at"]["$near"]["$maxDistance"] = 3e6
        found = [of["_id"] for of in places.find({"k": 3, **at}).skip(2).limit(9)]
        assert found == [of[1] for of in far if of[1] % 7 == 3 and of[0] <= 3e6][2:11], centre

        stage = {"near": point(centre), "distanceField": "far", "minDistance": 1e6}
        stage["query"] = {"k": {"$ne": 2}}
        pipeline = [{"$geoNear": stage}, {"$match": {"far": {"$lt": 4e6}}}, {"$limit": 20}]
        found = [(of["far"], of["_id"]) for of in places.aggregate(pipeline)]
        wanted = [of for of in far if of[1] % 7 != 2 and 1e6 <= of[0] < 4e6][:20]
        assert [of[1] for of in found] == [of[1] for of in wanted], centre
        assert all(abs(one[0] - other[0]) < 1 for one, other in zip(found, wanted)), centre

        circle = {"at": {"$geoWithin": {"$centerSphere": [centre, 2e6 / RADIUS]}}}
        wanted = sorted(of[1] for of in far if of[0] <= 2e6)
        assert sorted(of["_id"] for of in places.find(circle)) == wanted, centre
        assert places.count_documents(circle) == len(wanted)
        plan = places.find(circle).explain()
        assert plan["queryPlanner"]["winningPlan"]["inputStage"]["indexName"] == "at_2dsphere"
        # The rectangles around a circle near a pole have all longitudes.
        assert plan["executionStats"]["totalDocsExamined"] < max(2 * len(wanted), 1500), centre

    must_fail(16755, lambda: places.insert_one({"at": "nowhere"}))
    must_fail(16755, lambda: places.insert_one({"at": [190, 0]}))
    must_fail(16755, lambda: places.update_one({"_id": 1}, {"$set": {"at": 5}}))
    must_fail(2, lambda: places.delete_one(near))
    box = {"at": {"$geoWithin": {"$box": [[0, 0], [90, 45]]}}}
    moved = places.update_many(box, {"$set": {"at": [-10, -10]}}).modified_count
    assert moved > 200 and places.count_documents(box) == 0
    at = {"at": {"$near": {"$geometry": point([-10, -10])}}}
    found = [of["at"] == [-10, -10] for of in places.find(at).limit(moved + 3)]
    assert found == [True] * moved + [False] * 3


def in_the_plane(places):
    places.create_index([("at", GEO2D)], min=-500, max=500)
    places.insert_many([{"_id": at, "at": [at % 40, at // 40]} for at in range(1000)])
    must_fail(13027, lambda: places.insert_one({"at": [501, 0]}))
    found = [of["_id"] for of in places.find({"at": {"$near": [0, 0]}}).limit(3)]
    assert found[0] == 0 and set(found[1:]) == {1, 40}, found
    must_fail(291, lambda: list(places.find({"at": {"$near": {"$geometry": point([0, 0])}}})))
    stage = {"near": [3.1, 3], "distanceField": "far.off", "maxDistance": 1.5}
    found = list(places.aggregate([{"$geoNear": {**stage, "includeLocs": "place"}}]))
    first = {"_id": 123, "at": [3, 3], "far": {"off": found[0]["far"]["off"]}, "place": [3, 3]}
    assert found[0] == first and abs(found[0]["far"]["off"] - 0.1) < 1e-9, found[0]
    assert len(found) == 9
    near = {"at": {"$near": [0, 0], "$maxDistance": 1}}
    assert len(places.distinct("_id", near)) == 3
    assert places.database.command("count", places.name, query=near)["n"] == 3
    circle = {"at": {"$geoWithin": {"$center": [[10, 10], 2]}}}
    assert places.count_documents(circle) == 13
    places.drop_index("at_2d")
    assert places.count_documents(circle) == 13
    must_fail(291, lambda: list(places.find(near)))


def main():
    database = MongoClient(f"mongodb://{sys.argv[1]}").places
    for run in (on_the_sphere, in_the_plane):
        database.drop_collection(run.__name__)
        run(database[run.__name__])
        print(f"places: {run.__name__} as the formula says")


main()
