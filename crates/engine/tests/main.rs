//! The integration tests of the shard: one binary, a module for each feature.

// Helpers that modules share.
mod give;
mod history;
mod scored;

// Keys of every type.
mod any_key;
mod digest_turns;
mod flush;
mod moves;
mod objects;
mod shard_oracle;
mod store_order;
mod storing;
mod waiters;

// Strings, and values that no frame carries.
mod ask_only;
mod large_oracle;
mod stalled_uploads;
mod string_oracle;
mod synced;

// Hashes, with links, and sets.
mod hashes;
mod links;
mod sets;

// Lists.
mod lists;

// Collections of documents.
mod collections;
mod collections_oracle;

// Ordered trees.
mod ordered;
mod ordered_held;
mod ordered_stores;

// Sorted sets, and their R-trees of positions.
mod geo;
mod geo_readers;
mod sorted_combined;
mod sorted_sets;
mod sorted_turns;

// Trees of places, and geometries.
mod shape_stores;
mod shapes;
mod stages;
mod tree_expiry;
mod tree_objects;
mod tree_readers;
mod tree_removal;
mod trees;

// Memory: slots, leases, eviction, the heap.
mod churn;
mod heap;
mod kept;
mod leases;
mod object_eviction;
mod readers;
mod reserve;
mod shard_eviction;

// The log, and durability.
mod apply;
mod command_codec;
mod durable;
mod durable_documents;
mod durable_trees;
mod followed;
mod hostile_log;
mod joint;
mod rebuild;
mod refused_changes;
mod replay;
mod snapshot_objects;
mod snapshots;
