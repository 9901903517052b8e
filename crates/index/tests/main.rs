//! The integration tests of the hash index and of the trees: one binary, a module for each feature.

mod btree_fixture;
mod btree_history;
mod btree_moments;
mod btree_oracle;
mod btree_scans;
mod btree_walks;
mod chain;
mod cuckoo;
mod feeder;
mod fixture;
mod hash_growth;
mod hash_hints;
mod hash_oracle;
mod link_hints;
mod replay;
mod rtree_batches;
mod rtree_cursor;
mod rtree_ended;
mod rtree_forged;
mod rtree_nearest;
mod rtree_oracle;
mod rtree_rstar;
mod rtree_walks;
mod rtree_watched;
mod store;
mod walk_bounds;
