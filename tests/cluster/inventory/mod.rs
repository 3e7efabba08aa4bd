//! The inventory on a real API server: the states of the migration, many writers, its size, and what a hand may do to it.

mod bed;
mod edit;
mod nonsense;
mod size;
mod states;
mod writers;
