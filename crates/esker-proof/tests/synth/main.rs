//! Random-weight files: what is in them, that they load, what is refused.

mod common;
mod contents;
mod loads;
mod refused;
mod routing;
