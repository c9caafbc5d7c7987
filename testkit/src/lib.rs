//! What tests of packets need: frames built in one line, a second opinion on every checksum, a
//! frame as one readable line, the world that all this stands in, and the golden cases.
//!
//! All of it stands on `etherparse`, which shares no code with the director: what is tested never
//! judges itself.
#![forbid(unsafe_code)]

mod build;
mod describe;
pub mod golden;
mod verify;
pub mod world;

pub use build::{Frame, tcp, udp};
pub use describe::describe;
pub use verify::{Wrong, verify};
pub use world::World;
