//! The tests of the real binary, real processes and real clients: one binary, a module
//! for each feature.

// Random plans, their worlds and their oracle, from the tests of the plans' own crate.
#[allow(dead_code, reason = "these tests use a part of them")]
#[path = "../../crates/plan/tests/driver.rs"]
mod driver;
#[allow(dead_code, reason = "these tests use a part of them")]
#[path = "../../crates/plan/tests/generator.rs"]
mod generator;
#[path = "../../crates/plan/tests/oracle.rs"]
mod oracle;
#[allow(dead_code, reason = "these tests use a part of them")]
#[path = "../../crates/plan/tests/world.rs"]
mod world;

// Keys and values, by every path.
mod batches;
mod blocking;
mod bounds;
mod client_handles;
mod client_memory;
mod collections;
mod collections_by_index;
mod growth;
mod hashes;
mod keys_oracle;
mod kinds;
mod large;
mod large_sessions;
mod link_writes;
mod links;
mod lists;
mod load;
mod many_keys;
mod mixed;
mod ordered;
mod plan_documents;
mod plan_reads;
mod plans;
mod pointers;
mod renames;
mod ring_waits;
mod sessions;
mod sets;
mod sort;
mod sorted_handles;
mod sorted_sets;
mod sorted_types;
mod sorted_waits;
mod strings;

// Places: trees, geometries, GEO keys.
mod geo;
mod shapes;
mod trees;
mod trees_resp;

// What is kept.
mod backups;
mod bad_disks;
mod cluster;
mod data_directory;
mod durability;
mod failed_disk;
mod joint;
mod min_replicas;
mod replica_disks;
mod replica_memory;
mod replica_reads;
mod replicas;
mod roles;
mod synced;

// RESP, beside Redis and by its tools.
mod digest;
mod floods;
mod foreign;
mod redis_cli;
mod redis_clients;
mod redis_cluster;
mod redis_oracle;
mod resp;
mod session_rights;
mod session_users;
mod shard_threads;
mod tls;
mod tls_fabric;
mod users;
mod zookeeper_tls;

// Documents, by MongoDB's drivers and the tests of others.
mod mongo_clients;
mod mongo_hostile;
mod mongo_limits;
mod mongo_logins;
mod mongo_suites;

// Clusters.
mod cluster_client;
mod scale;

// Sessions, and what they share.
mod chase;
mod choice;
mod clients;
mod combining;
mod hand_over;
mod many_clients;
mod own_rings;
mod pointer_files;
mod shard_counts;
mod shared_connection;

// Transports.
mod fallback;
mod rdma_script;
mod tcp;

// A server: settings, threads, its beginning and its end, durability.
mod endings;
mod held;
mod incarnation;
mod log_end;
mod numa;
mod serve;
mod thread_panics;
mod threads;

// Memory and limits.
mod churn;
mod eviction;
mod idle;
mod idle_memory;
mod limits;
mod maps;
mod stalled;
mod torture;

// Hostile peers.
mod hostile;
mod hostile_replies;
mod hostile_shapes;
mod hostile_trees;
mod scripted;

// Commands of the binary.
mod bench_documents;
mod bench_keys;
mod bench_links;
mod bench_places;
mod bench_ranges;
mod bench_variants;
mod crash;
mod demo;
mod doctor;
mod explain;
mod export_pbf;
mod import_export;
