//! Expert-major files: one expert is one range of whole pages, with a checksum.
//!
//! [`pack`] writes such a file from any model with routed experts, [`unpack`] writes the original again, [`verify`] reads
//! every expert and compares its checksum. What the file looks like is defined by [`esker_packed`].
//!
//! All three stream: memory is a few MiB whatever the size of the model, besides the header. `pack` reads the source
//! twice, once to hash it, because its hash and the experts' checksums stand before the data.

mod error;
mod pack;
mod plan;
mod source;
mod unpack;
mod verify;

pub use error::{BadExpert, RepackError};
pub use pack::{PackReport, pack};
pub use unpack::{Restored, UnpackReport, unpack};
pub use verify::{VerifyReport, verify};
