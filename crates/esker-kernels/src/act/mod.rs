//! Activations, rounded as a weight type's dot product wants them.
