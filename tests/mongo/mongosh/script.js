// What a person types into mongosh, and the answers. mongosh runs it against the database of its address.
//
// Prints `all is well` in the end. What is not as expected throws, which ends mongosh with 1.

const COUNT = 250;
const check = (what, given, expected) => {
  if (EJSON.stringify(given) !== EJSON.stringify(expected)) {
    throw new Error(`${what}: expected ${EJSON.stringify(expected)}, got ${EJSON.stringify(given)}`);
  }
};

db.dropDatabase();
const documents = [];
for (let number = 0; number < COUNT; number += 1) {
  documents.push({ _id: number, n: number % 10, name: `name ${number}` });
}
check("insertMany", Object.keys(db.things.insertMany(documents).insertedIds).length, COUNT);
check("count", db.things.countDocuments({}), COUNT);
const found = db.things.find({ n: 3 }, { n: 0 }).sort({ _id: 1 }).batchSize(7).toArray();
check("find", found.length, 25);
check("found", found[24], { _id: 243, name: "name 243" });
check("distinct", db.things.distinct("n").length, 10);

check("updateMany", db.things.updateMany({ n: 3 }, { $inc: { n: 100 } }).modifiedCount, 25);
check("upsert", db.things.updateOne({ _id: 1000 }, { $set: { n: 5 } }, { upsert: true }).upsertedCount, 1);
check("findOneAndUpdate", db.things.findOneAndUpdate({ _id: 1 }, { $set: { n: 8 } }, { returnNewDocument: true }).n, 8);

check("createIndex", db.things.createIndex({ n: 1 }), "n_1");
check("getIndexes", db.things.getIndexes().map((index) => index.name).sort(), ["_id_", "n_1"]);
const groups = db.things.aggregate([{ $match: { n: 103 } }, { $group: { _id: "$n", count: { $sum: 1 } } }]).toArray();
check("aggregate", groups, [{ _id: 103, count: 25 }]);
check("deleteMany", db.things.deleteMany({ n: 103 }).deletedCount, 25);
check("collections", db.getCollectionNames(), ["things"]);
check("drop", db.things.drop(), true);
print("all is well");
