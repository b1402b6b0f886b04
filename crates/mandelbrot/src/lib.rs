//! mandelbrot
