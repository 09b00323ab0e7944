//! CPU kernels as free functions over slices, and the thread pool they run on.
