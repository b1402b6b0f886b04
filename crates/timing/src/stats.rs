//! Medians, bootstrap intervals and paired ratios.
