//! Models of production code under loom, a module for each piece.

mod combine;
mod mail;
mod mark;
mod pointer_table;
mod ready;
mod wake_up;
