//! `remora crash`.
#![forbid(unsafe_code)]
mod disk;
mod journal;
