//! The integration tests of simulated worlds: one binary, a module for each feature.

mod algorithm_1;
mod alone;
mod collections;
mod compare;
mod crowd;
mod key_links;
mod late;
mod linear;
mod lists;
mod ordered;
mod places;
mod promises;
mod random_histories;
mod replicas;
mod resp;
mod sessions;
mod sorted;
mod tasks;
mod worlds;
