//! Repacking whole files: there and back, damage, refusals, interruption.

mod common;
mod damage;
mod interrupted;
mod refused;
mod round_trip;
mod sources;
