// MongoDB's driver for Go at a server: what an application does with documents, and the answers.
//
// usage: client HOST:PORT
//
// Prints `all is well` in the end. What is not as expected ends it with 1.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"sort"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const count = 250

var ctx = context.Background()

func must(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func check(what string, given, expected any) {
	if !reflect.DeepEqual(given, expected) {
		must(what, fmt.Errorf("expected %v, got %v", expected, given))
	}
}

func documents() []any {
	made := make([]any, 0, count)
	for number := int32(0); number < count; number++ {
		name := fmt.Sprintf("name %d", number)
		made = append(made, bson.D{{Key: "_id", Value: number}, {Key: "n", Value: number % 10}, {Key: "name", Value: name}})
	}
	return made
}

func reads(things *mongo.Collection) {
	total, err := things.CountDocuments(ctx, bson.D{})
	must("count", err)
	check("count", total, int64(count))
	order := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(7).SetProjection(bson.M{"n": 0})
	cursor, err := things.Find(ctx, bson.M{"n": 3}, order)
	must("find", err)
	var found []bson.M
	must("all", cursor.All(ctx, &found))
	check("find", len(found), 25)
	check("found", found[24], bson.M{"_id": int32(243), "name": "name 243"})
	var values []int
	must("distinct", things.Distinct(ctx, "n", bson.D{}).Decode(&values))
	sort.Ints(values)
	check("distinct", values, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
}

func changes(things *mongo.Collection) {
	many, err := things.UpdateMany(ctx, bson.M{"n": 3}, bson.M{"$inc": bson.M{"n": 100}})
	must("updateMany", err)
	check("updateMany", many.ModifiedCount, int64(25))
	set := bson.M{"$set": bson.M{"n": 5, "name": "new"}}
	upserted, err := things.UpdateOne(ctx, bson.M{"_id": 1000}, set, options.UpdateOne().SetUpsert(true))
	must("upsert", err)
	check("upsert", upserted.UpsertedID, any(int32(1000)))
	var after bson.M
	push := bson.M{"$push": bson.M{"tags": "z"}}
	give := options.FindOneAndUpdate().SetReturnDocument(options.After)
	must("findOneAndUpdate", things.FindOneAndUpdate(ctx, bson.M{"_id": 1}, push, give).Decode(&after))
	check("findOneAndUpdate", after["tags"], any(bson.A{"z"}))
}

func indexes(things *mongo.Collection) {
	_, err := things.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: bson.D{{Key: "n", Value: 1}}},
		{Keys: bson.D{{Key: "name", Value: 1}}, Options: options.Index().SetUnique(true)},
	})
	must("createIndexes", err)
	_, err = things.InsertOne(ctx, bson.M{"name": "name 7"})
	check("a duplicate is refused", mongo.IsDuplicateKeyError(err), true)
	specifications, err := things.Indexes().ListSpecifications(ctx)
	must("listIndexes", err)
	var names []string
	for _, specification := range specifications {
		names = append(names, specification.Name)
	}
	sort.Strings(names)
	check("listIndexes", names, []string{"_id_", "n_1", "name_1"})
	must("dropIndex", things.Indexes().DropOne(ctx, "name_1"))
}

func groups(things *mongo.Collection) {
	cursor, err := things.Aggregate(ctx, bson.A{
		bson.M{"$match": bson.M{"n": bson.M{"$gte": 100}}},
		bson.M{"$group": bson.D{{Key: "_id", Value: "$n"}, {Key: "count", Value: bson.M{"$sum": 1}}}},
	})
	must("aggregate", err)
	var found []bson.M
	must("all", cursor.All(ctx, &found))
	check("aggregate", found, []bson.M{{"_id": int32(103), "count": int32(25)}})
	deleted, err := things.DeleteMany(ctx, bson.M{"n": bson.M{"$gte": 100}})
	must("deleteMany", err)
	check("deleteMany", deleted.DeletedCount, int64(25))
}

func main() {
	uri := "mongodb://" + os.Args[1] + "/"
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(5 * time.Second))
	must("connect", err)
	database := client.Database("remora_go")
	must("dropDatabase", database.Drop(ctx))
	things := database.Collection("things")
	inserted, err := things.InsertMany(ctx, documents())
	must("insertMany", err)
	check("insertMany", len(inserted.InsertedIDs), count)
	reads(things)
	changes(things)
	indexes(things)
	groups(things)
	must("drop", things.Drop(ctx))
	names, err := database.ListCollectionNames(ctx, bson.D{})
	must("listCollections", err)
	check("collections", len(names), 0)
	must("disconnect", client.Disconnect(ctx))
	fmt.Println("all is well")
}
