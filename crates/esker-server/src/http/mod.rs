//! What all routes have in common: connections, who may call, bodies, event streams. Nothing of any API.

pub(crate) mod around;
pub(crate) mod body;
pub(crate) mod guard;
pub(crate) mod respond;
pub(crate) mod server;
pub(crate) mod sse;
mod stall;
