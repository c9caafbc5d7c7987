//! The program that stands for ipvsadm, against what the stock program was observed to do.
//! One program, so that it is linked once.
#![forbid(unsafe_code)]

mod dpvs;
mod observed;
mod property;
mod stage;
