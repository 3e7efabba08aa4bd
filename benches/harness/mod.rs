//! What the benchmarks and the rehearsals share: a control plane of their own, a bare client, objects, processes, the
//! method and the table.
//!
//! Nothing here knows how stratum works inside; what is measured is called from the benchmarks.

pub(crate) mod api;
pub(crate) mod audit;
pub(crate) mod binaries;
pub(crate) mod control_plane;
pub(crate) mod credentials;
pub(crate) mod measure;
pub(crate) mod objects;
pub(crate) mod process;
pub(crate) mod run;
pub(crate) mod signals;
pub(crate) mod table;
