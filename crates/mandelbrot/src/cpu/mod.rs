//! The CPU rungs.

pub mod avx2;
