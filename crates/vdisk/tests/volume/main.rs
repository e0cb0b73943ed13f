//! Volumes from the outside: what they promise, held against plain models, other processes and full disks.
mod conformance;
mod damage;
mod death;
mod fixture;
mod kinds;
mod lifetime;
mod limits;
mod model;
mod space;
mod spans;
