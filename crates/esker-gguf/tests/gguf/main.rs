//! Reading and writing of whole files, through the public interface.

mod common;
mod golden;
mod hostile;
mod round_trip;
mod speed;
mod split;
mod truncated;
mod write;
