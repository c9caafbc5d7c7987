//! Reading and merging captures, and what is told when something is wrong with them.
