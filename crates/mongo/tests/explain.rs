//! Plans as `explain` tells them.

use crate::shards::Client;
use bson::{Document, doc};

/// The winning plan of a command, by an index of geometries.
fn plan(client: &mut Client, command: Document) -> Document {
    let reply = client.run(doc! { "explain": command }).unwrap();
    let planner = reply.get_document("queryPlanner").unwrap();
    planner.get_document("winningPlan").unwrap().clone()
}

fn client() -> Client {
    let mut client = Client::new();
    client.collection("c", (0..9).map(|at| doc! { "_id": at, "at": [at, 0] }));
    client.plans = vec![doc! {
        "index": "at_2dsphere", "ranges": 3_i64, "keys": 9_i64, "whole": false, "geo": true,
        "partial": false, "reverse": false, "sorted": false, "exact": false,
    }];
    client
}

#[test]
fn searches_by_distance_have_stages_of_their_own() {
    let mut client = client();
    let aggregate = |near: Document| {
        let stage = doc! { "$geoNear": near };
        doc! { "aggregate": "c", "pipeline": [stage, { "$limit": 2 }], "cursor": {} }
    };
    let place = doc! { "type": "Point", "coordinates": [0, 0] };
    let sphere = doc! { "near": place.clone(), "distanceField": "far", "key": "at" };
    let found = plan(&mut client, aggregate(sphere.clone()));
    assert_eq!(found.get_str("stage").unwrap(), "GEO_NEAR_2DSPHERE");
    assert_eq!(found.get_str("indexName").unwrap(), "at_2dsphere");
    assert_eq!(found.get_i64("keysInRanges").unwrap(), 9);
    assert!(client.asked.iter().all(|asked| asked.contains("$near")), "{:?}", client.asked);
    // Without a key the collection's only index is asked for.
    let mut keyless = sphere;
    keyless.remove("key");
    client.asked.clear();
    let found = plan(&mut client, aggregate(keyless));
    assert_eq!(found.get_str("stage").unwrap(), "GEO_NEAR_2DSPHERE");
    assert_eq!(client.asked[0], "db.c describe");
    let plane = doc! { "near": [0, 0], "distanceField": "far", "key": "at" };
    let found = plan(&mut client, aggregate(plane));
    assert_eq!(found.get_str("stage").unwrap(), "GEO_NEAR_2D");
    let find = doc! { "find": "c", "filter": { "at": { "$near": { "$geometry": place } } } };
    assert_eq!(plan(&mut client, find).get_str("stage").unwrap(), "GEO_NEAR_2DSPHERE");
}

#[test]
fn regions_fetch_what_their_index_finds() {
    let mut client = client();
    let region = doc! { "at": { "$geoWithin": { "$box": [[1, 0], [2, 1]] } } };
    let found = plan(&mut client, doc! { "find": "c", "filter": region });
    assert_eq!(found.get_str("stage").unwrap(), "FETCH");
    let scan = found.get_document("inputStage").unwrap();
    assert_eq!(scan.get_str("stage").unwrap(), "IXSCAN");
}
