//! The configuration file as its users see it: what is accepted, what is refused and with which
//! words. One program, so that it is linked once.

mod checks;
mod document;
mod examples;
mod format;
mod networks;
mod properties;
mod reference;
mod refused;
mod services;
mod torn;
