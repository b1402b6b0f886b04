//! What becomes of measured runs: the JSON they are kept in, the findings judged on them, and the terminal tables
//! and the HTML page that show them. Nothing here measures.
//!
//! A study hands a [`study::Study`] to the programs; [`cli`] holds what their command lines share.

mod chart;
pub mod cli;
pub mod compare;
mod document;
mod file;
pub mod finding;
mod html;
mod provenance;
pub mod session;
pub mod study;
pub mod table;
pub mod text;
pub mod units;

pub use document::{ReadError, Report, Rows};
pub use finding::{Finding, FindingSpec, Verdict};
pub use html::page;
pub use provenance::build;
