//! `headwater image` from the outside: the real program on real files, held against programs that are not ours.
mod bench;
mod chains;
mod ends;
mod samples;
mod verbs;
mod words;
mod written;
