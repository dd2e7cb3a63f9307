//! `sexton`: the program.

fn main() {}
