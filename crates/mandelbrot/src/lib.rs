//! Mandelbrot escape-time counts: a ladder of rungs from one scalar loop to every lane of the machine.

pub mod cpu;
pub mod findings;
pub mod gpu;
pub mod ladder;
pub mod measure;
pub mod palette;
pub mod reference;
pub mod view;

pub use measure::study;
