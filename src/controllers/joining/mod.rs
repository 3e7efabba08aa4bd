//! Joining on both sides: what a controller gives out ([`tokens`], [`ordering`], [`publishing`]), and how a machine that is
//! no node yet gets it ([`discovery`], [`material`]). The decisions are in [`crate::reconcilers::joining`].
//!
//! Nothing here is logged, and no error repeats, what a token's secret half, a certificate key or a sealed file says.

pub mod discovery;
pub mod material;
pub mod ordering;
pub mod publishing;
pub mod tokens;
pub mod wire;
