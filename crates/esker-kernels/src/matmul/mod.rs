//! Dot products against weight rows.
