//! The command as its users see it.
//! One program, so that it is linked once.
#![forbid(unsafe_code)]

mod command;
mod desired;
mod dpip;
mod filter;
mod ha;
mod import;
mod import_stock;
mod json;
mod networks;
mod reasons;
mod shell;
mod terminal;
