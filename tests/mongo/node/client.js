// MongoDB's driver for Node at a server: what an application does with documents, and the answers.
//
// usage: client.js HOST:PORT
//
// Prints `all is well` in the end. What is not as expected ends it with a stack.
"use strict";

const assert = require("node:assert/strict");
const { MongoClient } = require("mongodb");

const COUNT = 250;

const documents = () =>
  Array.from({ length: COUNT }, (_, number) => ({ _id: number, n: number % 10, name: `name ${number}`, tags: ["a", number % 3] }));

async function reads(collection) {
  assert.equal(await collection.countDocuments(), COUNT);
  // 25 documents in batches of 7.
  const found = await collection.find({ n: 3 }).sort({ _id: 1 }).batchSize(7).project({ n: 0 }).toArray();
  assert.deepEqual(found.map((each) => each._id), Array.from({ length: 25 }, (_, index) => index * 10 + 3));
  assert.deepEqual(found[0], { _id: 3, name: "name 3", tags: ["a", 0] });
  assert.deepEqual((await collection.distinct("n")).sort((a, b) => a - b), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.equal(await collection.findOne({ _id: COUNT }), null);
}

async function changes(collection) {
  const many = await collection.updateMany({ n: 3 }, { $inc: { n: 100 } });
  assert.deepEqual([many.matchedCount, many.modifiedCount], [25, 25]);
  const upserted = await collection.updateOne({ _id: 1000 }, { $set: { n: 5, name: "new" } }, { upsert: true });
  assert.deepEqual([upserted.upsertedCount, upserted.upsertedId], [1, 1000]);
  const replaced = await collection.replaceOne({ _id: 0 }, { n: 0, name: "other" });
  assert.equal(replaced.modifiedCount, 1);
  const after = await collection.findOneAndUpdate({ _id: 1 }, { $push: { tags: "z" } }, { returnDocument: "after" });
  assert.deepEqual(after.tags, ["a", 1, "z"]);
  const bulk = await collection.bulkWrite([
    { insertOne: { document: { _id: 2000, n: 1, name: "bulk" } } },
    { deleteOne: { filter: { _id: 2000 } } },
  ]);
  assert.deepEqual([bulk.insertedCount, bulk.deletedCount], [1, 1]);
}

async function indexes(collection) {
  assert.equal(await collection.createIndex({ n: 1 }), "n_1");
  assert.equal(await collection.createIndex({ name: 1 }, { unique: true }), "name_1");
  await assert.rejects(collection.insertOne({ name: "name 7" }), { code: 11000 });
  const names = (await collection.listIndexes().toArray()).map((index) => index.name);
  assert.deepEqual(names.sort(), ["_id_", "n_1", "name_1"]);
  await collection.dropIndex("name_1");
  await collection.insertOne({ _id: 3000, n: 7, name: "name 7" });
}

async function groups(collection) {
  const groups = await collection
    .aggregate([
      { $match: { n: { $gte: 100 } } },
      { $group: { _id: "$n", count: { $sum: 1 }, last: { $max: "$_id" } } },
    ])
    .toArray();
  assert.deepEqual(groups, [{ _id: 103, count: 25, last: 243 }]);
  const deleted = await collection.deleteMany({ n: { $gte: 100 } });
  assert.equal(deleted.deletedCount, 25);
  assert.equal(await collection.countDocuments(), COUNT - 25 + 2);
}

async function main(address) {
  const client = new MongoClient(`mongodb://${address}/`, { serverSelectionTimeoutMS: 5000 });
  const database = client.db("remora_node");
  await database.dropDatabase();
  const collection = database.collection("things");
  const inserted = await collection.insertMany(documents());
  assert.equal(inserted.insertedCount, COUNT);
  await reads(collection);
  await changes(collection);
  await indexes(collection);
  await groups(collection);
  await collection.drop();
  assert.deepEqual(await database.listCollections().toArray(), []);
  await client.close();
  console.log("all is well");
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
