import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.Projections;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import com.mongodb.client.result.UpdateResult;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.bson.Document;

/**
 * MongoDB's driver for Java at a server: what an application does with documents, and the answers.
 *
 * <p>usage: Client HOST:PORT
 *
 * <p>Prints {@code all is well} in the end. What is not as expected ends it with a stack.
 */
public final class Client {
    private static final int COUNT = 250;

    private static void check(String what, Object given, Object expected) {
        if (!expected.equals(given)) {
            throw new IllegalStateException(what + ": expected " + expected + ", got " + given);
        }
    }

    private static List<Document> documents() {
        List<Document> made = new ArrayList<>();
        for (int number = 0; number < COUNT; number++) {
            made.add(new Document("_id", number)
                    .append("n", number % 10)
                    .append("name", "name " + number)
                    .append("tags", List.of("a", number % 3)));
        }
        return made;
    }

    private static void reads(MongoCollection<Document> things) {
        check("count", things.countDocuments(), (long) COUNT);
        List<Document> found = things.find(Filters.eq("n", 3))
                .sort(Sorts.ascending("_id"))
                .batchSize(7)
                .projection(Projections.exclude("n"))
                .into(new ArrayList<>());
        check("find", found.size(), 25);
        check("found", found.get(24),
                new Document("_id", 243).append("name", "name 243").append("tags", List.of("a", 0)));
        check("distinct", things.distinct("n", Integer.class).into(new TreeSet<>()).size(), 10);
    }

    private static void changes(MongoCollection<Document> things) {
        UpdateResult many = things.updateMany(Filters.eq("n", 3), Updates.inc("n", 100));
        check("updateMany", many.getModifiedCount(), 25L);
        UpdateResult upserted = things.updateOne(
                Filters.eq("_id", 1000), Updates.set("n", 5), new UpdateOptions().upsert(true));
        check("upsert", upserted.getUpsertedId().asInt32().getValue(), 1000);
        UpdateResult replaced = things.replaceOne(Filters.eq("_id", 0), new Document("n", 0));
        check("replaceOne", replaced.getModifiedCount(), 1L);
        Document after = things.findOneAndUpdate(
                Filters.eq("_id", 1),
                Updates.push("tags", "z"),
                new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER));
        check("findOneAndUpdate", after.getList("tags", Object.class), List.of("a", 1, "z"));
    }

    private static void indexes(MongoCollection<Document> things) {
        check("createIndex", things.createIndex(Indexes.ascending("n")), "n_1");
        things.createIndex(Indexes.ascending("name"), new IndexOptions().unique(true).sparse(true));
        try {
            things.insertOne(new Document("name", "name 7"));
            throw new IllegalStateException("a duplicate is not refused");
        } catch (MongoWriteException error) {
            check("duplicate", error.getError().getCode(), 11000);
        }
        TreeSet<String> names = new TreeSet<>();
        things.listIndexes().forEach(index -> names.add(index.getString("name")));
        check("listIndexes", new ArrayList<>(names), List.of("_id_", "n_1", "name_1"));
        things.dropIndex("name_1");
    }

    private static void groups(MongoCollection<Document> things) {
        List<Document> groups = things.aggregate(List.of(
                Aggregates.match(Filters.gte("n", 100)),
                Aggregates.group("$n", Accumulators.sum("count", 1), Accumulators.max("last", "$_id"))))
                .into(new ArrayList<>());
        check("aggregate", groups, List.of(new Document("_id", 103).append("count", 25).append("last", 243)));
        check("deleteMany", things.deleteMany(Filters.gte("n", 100)).getDeletedCount(), 25L);
        check("count in the end", things.countDocuments(), (long) COUNT - 25 + 1);
    }

    public static void main(String[] arguments) {
        try (MongoClient client = MongoClients.create("mongodb://" + arguments[0] + "/?serverSelectionTimeoutMS=5000")) {
            MongoDatabase database = client.getDatabase("remora_java");
            database.drop();
            MongoCollection<Document> things = database.getCollection("things");
            check("insertMany", things.insertMany(documents()).getInsertedIds().size(), COUNT);
            reads(things);
            changes(things);
            indexes(things);
            groups(things);
            things.drop();
            check("collections", database.listCollectionNames().into(new ArrayList<>()), List.of());
        }
        System.out.println("all is well");
    }
}
