//! Endpoints joined by a network that loses, doubles and reorders.

mod bounds;
mod codec;
mod hostile;
mod keys;
mod network;
mod parts;
mod world;
