//! Mandelbrot escape-time counts: a ladder of rungs from one scalar loop to every lane of the machine.

pub mod cpu;
pub mod gpu;
pub mod ladder;
pub mod palette;
pub mod reference;
pub mod view;
