//! Attributes against models, blocks shared by many, access lists by the book.

mod acl;
mod fixture;
mod model;
mod share;
