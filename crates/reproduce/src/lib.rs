//! reproduce
