//! `remora crash`.
#![forbid(unsafe_code)]
mod disk;
mod history;
mod journal;
mod layer;
mod state;
mod types;
