"""Random sequences of commands on one collection, from a seed.

Values come from a small pool, so that filters find something and unique indexes refuse something. Where
MongoDB leaves a choice to the server (the order without a sort, the document that one of many is) the
commands leave none: an order ends with `_id`, and a change of one document names its `_id`. What
mongo-java-server does not know at all ($bit, $bitsAllSet) is not drawn. Where it does not do as MongoDB,
another form stands: $toInt around $mod, which is a double there; $and around what $expr has, which it wants
as a boolean; no empty document as a condition, which it takes for none; no positions of arrays in orders,
which it does not know; no $unset of fields in arrays, whose elements it changes; only patterns that begin
with ^, as it also searches the texts of values that are no strings.
"""

import datetime
from random import Random
from typing import Any

from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

COLLECTION = "compared"
FIELDS = ["a", "b", "c"]
PATHS = ["a", "b", "c", "a.x", "b.y", "a.0", "b.x.y", "a.x.0", "c.1.x"]
NAMES = [path for path in PATHS if not any(letter.isdigit() for letter in path)]
IDS = 24
SCALARS: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    7,
    1.0,
    2.5,
    -0.5,
    float("inf"),
    Int64(2),
    Int64(1 << 40),
    Decimal128("2.5"),
    "",
    "a",
    "ab",
    "b",
    "B",
    ObjectId("0123456789abcdef01234567"),
    datetime.datetime(2020, 1, 2, 3, 4, 5),
    datetime.datetime(1960, 1, 1),
    Timestamp(5, 1),
    b"\x01\x02",
]
RARE: list[Any] = [MinKey(), MaxKey(), float("nan"), Regex("^a"), Decimal128("NaN")]
TYPES = ["double", "string", "object", "array", "bool", "null", "int", "long", "number", "date", "decimal", "objectId"]


class Generator:
    """Draws commands."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def pick(self, choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def scalar(self) -> Any:
        return self.pick(RARE) if self.chance(0.02) else self.pick(SCALARS)

    def value(self, depth: int = 2) -> Any:
        kind = self.random.random()
        if depth == 0 or kind < 0.6:
            return self.scalar()
        if kind < 0.8:
            return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
        return self.subdocument(depth - 1)

    def subdocument(self, depth: int) -> dict[str, Any]:
        return {name: self.value(depth) for name in ("x", "y") if self.chance(0.7)}

    def number(self) -> Any:
        return self.pick([-2, 1, 2, 3, 0.5, Int64(5), Decimal128("1.5")])

    def an_id(self) -> int:
        return self.random.randrange(IDS)

    def document(self) -> dict[str, Any]:
        fields = {name: self.value() for name in FIELDS if self.chance(0.75)}
        return {"_id": self.an_id(), **fields}

    # Filters.

    def condition(self, depth: int = 1) -> Any:
        kind = self.random.randrange(12)
        if kind < 3:
            return self.value() or 0
        if kind < 6:
            return {self.pick(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]): self.value()}
        if kind == 6:
            return {self.pick(["$in", "$nin"]): [self.value() for _ in range(self.random.randrange(1, 4))]}
        if kind == 7:
            return {"$exists": self.chance(0.5)}
        if kind == 8:
            return {"$type": self.pick(TYPES)}
        if kind == 9:
            return self.array_condition()
        if kind == 10:
            return self.pick([{"$mod": [2, 1]}, {"$regex": "^a"}, {"$regex": "^A", "$options": "i"}])
        if depth == 0:
            return self.scalar()
        return self.pick(
            [{"$not": {"$gt": self.scalar()}}, {"$gt": self.scalar(), "$lt": self.scalar()}, {"$not": {"$size": 1}}]
        )

    def array_condition(self) -> dict[str, Any]:
        return self.pick(
            [
                {"$size": self.random.randrange(3)},
                {"$all": [self.scalar() for _ in range(self.random.randrange(1, 3))]},
                {"$elemMatch": {"$gte": self.scalar(), "$lte": self.scalar()}},
                {"$elemMatch": {"x": self.scalar()}},
            ]
        )

    def filter(self, depth: int = 2) -> dict[str, Any]:
        kind = self.random.random()
        if kind < 0.1:
            return {}
        if kind < 0.2:
            return {"_id": self.pick([self.an_id(), {"$lt": self.an_id()}, {"$in": [self.an_id(), self.an_id()]}])}
        if depth and kind < 0.35:
            return {self.pick(["$and", "$or", "$nor"]): [self.filter(depth - 1) for _ in range(2)]}
        return {self.pick(PATHS): self.condition() for _ in range(1 if self.chance(0.8) else 2)}

    # Updates.

    def modifier(self) -> tuple[str, Any]:
        name = self.pick(
            ["$set", "$set", "$unset", "$inc", "$mul", "$min", "$max", "$rename", "$push", "$addToSet"]
            + ["$pull", "$pullAll", "$pop", "$setOnInsert"]
        )
        operand: Any
        if name in ("$set", "$min", "$max", "$setOnInsert"):
            operand = self.value()
        elif name == "$unset":
            operand = ""
        elif name in ("$inc", "$mul"):
            operand = self.number()
        elif name == "$rename":
            operand = self.pick(["d", "e", "b"])
        elif name in ("$push", "$addToSet"):
            operand = self.value() if self.chance(0.5) else self.each(name)
        elif name == "$pull":
            operand = self.pick([self.scalar(), {"$gt": self.scalar()}, {"x": self.scalar()}, {"$in": [1, "a"]}])
        elif name == "$pullAll":
            operand = [self.scalar(), self.scalar()]
        else:
            operand = self.pick([1, -1])
        return name, operand

    def each(self, name: str) -> dict[str, Any]:
        made: dict[str, Any] = {"$each": [self.value(1) for _ in range(self.random.randrange(3))]}
        if name == "$push":
            if self.chance(0.4):
                made["$position"] = self.pick([0, 1, -1])
            if self.chance(0.4):
                made["$slice"] = self.pick([0, 1, 3, -2])
            if self.chance(0.4):
                made["$sort"] = self.pick([1, -1])
        return made

    def update(self) -> dict[str, Any]:
        if self.chance(0.1):
            return {name: self.value() for name in FIELDS if self.chance(0.75)}
        made: dict[str, Any] = {}
        for _ in range(self.random.randrange(1, 3)):
            name, operand = self.modifier()
            made.setdefault(name, {})[self.pick(FIELDS if name == "$unset" else PATHS)] = operand
        return made

    def array_update(self) -> dict[str, Any]:
        """Changes elements: all of them, or those that a filter of arrays picks."""
        name, operand = self.pick([("$set", self.scalar()), ("$inc", self.number()), ("$unset", "")])
        field = self.pick(FIELDS)
        if self.chance(0.5):
            return {"u": {name: {f"{field}.$[]": operand}}}
        picks = self.pick([{"e": self.scalar()}, {"e": {"$gte": self.scalar()}}, {"e.x": self.scalar()}])
        path = f"{field}.$[e].x" if "e.x" in picks else f"{field}.$[e]"
        return {"u": {name: {path: operand}}, "arrayFilters": [picks]}

    # Expressions of aggregates.

    def expression(self, depth: int = 2) -> Any:
        field = "$" + self.pick([*FIELDS, "a.x"])
        if depth == 0:
            return self.pick([field, field, 1, 2.5, {"$literal": self.scalar()}])
        first, second = self.expression(depth - 1), self.expression(depth - 1)
        return self.pick(
            [
                field,
                {"$ifNull": [first, "none"]},
                {"$cond": [{self.pick(["$eq", "$ne", "$gt", "$lte"]): [first, second]}, first, second]},
                {"$cmp": [first, second]},
                {"$isArray": [first]},
                {"$and": [first, second]},
                {"$or": [first, second]},
                {"$not": [first]},
                {"$in": [first, [1, "a", None]]},
                {"$concat": ["a", {"$toString": "$_id"}]},
                {"$cond": [{"$isArray": [first]}, {"$size": field}, 0]},
                {self.pick(["$add", "$multiply", "$subtract"]): [{"$ifNull": ["$_id", 0]}, 3]},
                {"$toInt": {"$mod": ["$_id", 4]}},
            ]
        )

    # Commands.

    def order(self) -> dict[str, int]:
        made = {self.pick(NAMES): self.pick([1, -1]) for _ in range(self.random.randrange(3))}
        return {**made, "_id": self.pick([1, -1])}

    def projection(self) -> dict[str, Any]:
        shown = self.pick([0, 1])
        made: dict[str, Any] = {self.pick(FIELDS): shown for _ in range(self.random.randrange(1, 3))}
        if self.chance(0.3):
            made[self.pick(["a.x", "b.y"])] = shown
            made = {path: value for path, value in made.items() if path not in ("a", "b")}
        if self.chance(0.2):
            made["c"] = self.pick([{"$slice": 1}, {"$slice": [1, 1]}, {"$elemMatch": {"x": 1}}])
        if self.chance(0.3):
            made["_id"] = 0
        return made

    def insert(self) -> dict[str, Any]:
        documents = [self.document() for _ in range(self.random.randrange(1, 5))]
        return {"insert": COLLECTION, "documents": documents, "ordered": self.chance(0.7)}

    def find(self) -> dict[str, Any]:
        made: dict[str, Any] = {"find": COLLECTION, "filter": self.filter()}
        if self.chance(0.5):
            made["sort"] = self.order()
            if self.chance(0.3):
                made["skip"] = self.random.randrange(4)
            if self.chance(0.4):
                made["limit"] = self.random.randrange(1, 5)
        if self.chance(0.3):
            made["projection"] = self.projection()
        return made

    def count(self) -> dict[str, Any]:
        return {"count": COLLECTION, "query": self.filter()}

    def distinct(self) -> dict[str, Any]:
        return {"distinct": COLLECTION, "key": self.pick(PATHS), "query": self.filter()}

    def change(self) -> dict[str, Any]:
        update, is_multi = self.update(), self.chance(0.4)
        is_operators = all(name.startswith("$") for name in update) and bool(update)
        query = self.filter() if is_multi and is_operators else {"_id": self.an_id(), **self.sometimes(self.filter())}
        statement = {"q": query, "u": update, "multi": is_multi and is_operators}
        if not statement["multi"] and self.chance(0.3):
            statement["upsert"] = True
        return {"update": COLLECTION, "updates": [statement]}

    def sometimes(self, query: dict[str, Any]) -> dict[str, Any]:
        return {path: each for path, each in query.items() if path != "_id"} if self.chance(0.2) else {}

    def change_elements(self) -> dict[str, Any]:
        return {"update": COLLECTION, "updates": [{"q": {"_id": self.an_id()}, **self.array_update(), "multi": False}]}

    def delete(self) -> dict[str, Any]:
        one = self.chance(0.6)
        query = {"_id": self.an_id()} if one else self.filter()
        return {"delete": COLLECTION, "deletes": [{"q": query, "limit": int(one)}]}

    def find_and_modify(self) -> dict[str, Any]:
        made: dict[str, Any] = {"findAndModify": COLLECTION, "query": self.filter(), "sort": self.order()}
        if self.chance(0.3):
            return {**made, "remove": True}
        made["update"] = self.update()
        made["new"] = self.chance(0.5)
        if self.chance(0.2):
            made["query"], made["upsert"] = {"_id": self.an_id()}, True
        if self.chance(0.2):
            made["fields"] = {self.pick(FIELDS): 1}
        return made

    def aggregate(self) -> dict[str, Any]:
        stages: list[dict[str, Any]] = [{"$match": self.filter()}, {"$sort": self.order()}]
        field = self.pick(FIELDS)
        accumulator = self.pick(["$sum", "$min", "$max", "$avg", "$first", "$last", "$push"])
        ends: list[list[dict[str, Any]]] = [
            [{"$limit": self.random.randrange(1, 5)}, {"$project": {field: 1}}],
            [{"$skip": self.random.randrange(4)}, {"$addFields": {"z": f"${field}"}}],
            [{"$group": {"_id": f"${field}", "n": {"$sum": 1}}}],
            [{"$group": {"_id": None, "n": {accumulator: f"${field}"}}}],
            [{"$unwind": f"${field}"}],
            [{"$unwind": {"path": f"${field}", "preserveNullAndEmptyArrays": True, "includeArrayIndex": "i"}}],
            [{"$count": "n"}],
            [{"$project": {"_id": 1, "z": self.expression(), "y": self.expression(1)}}],
            [{"$match": {"$expr": {"$and": [self.expression(1)]}}}, {"$project": {"_id": 1}}],
            [{"$replaceRoot": {"newRoot": {"i": "$_id", "z": self.expression(1)}}}],
            [{"$group": {"_id": {"$toInt": {"$mod": ["$_id", 3]}}, "n": {"$sum": 1}, "m": {accumulator: f"${field}"}}}],
        ]
        return {"aggregate": COLLECTION, "pipeline": stages + self.pick(ends), "cursor": {}}

    def create_index(self) -> dict[str, Any]:
        keys = {self.pick(PATHS[:5]): self.pick([1, -1]) for _ in range(self.random.randrange(1, 3))}
        index: dict[str, Any] = {"key": keys, "name": "_".join(f"{path}_{way}" for path, way in keys.items())}
        if self.chance(0.4):
            index["unique"] = True
        if self.chance(0.2):
            index["sparse"] = True
        return {"createIndexes": COLLECTION, "indexes": [index]}

    def drop_index(self) -> dict[str, Any]:
        return {"dropIndexes": COLLECTION, "index": "*"}

    def command(self) -> dict[str, Any]:
        makers = [self.insert] * 6 + [self.find] * 8 + [self.change] * 8 + [self.find_and_modify] * 3
        makers += [self.count, self.distinct, self.delete, self.change_elements] + [self.aggregate] * 4
        makers += [self.create_index] * (1 if self.chance(0.3) else 0)
        makers += [self.drop_index] * (1 if self.chance(0.05) else 0)
        return self.pick(makers)()

    def sequence(self, length: int) -> list[dict[str, Any]]:
        """Commands on a collection that begins empty."""
        return [self.insert(), self.insert(), *(self.command() for _ in range(length))]
