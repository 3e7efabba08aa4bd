//! This machine: paths, atomic files, locks, child processes, folders.
//!
//! Nothing here knows the Kubernetes API; what a cluster needs of the machine is decided elsewhere and done here.

pub mod addresses;
pub mod assets;
pub mod atomic_file;
pub mod certificates;
pub mod child;
pub mod clock;
pub mod component_logs;
pub mod control_socket;
pub mod dev_plane;
mod digest;
pub mod enter;
pub mod entropy;
pub mod etcd;
pub mod folder;
mod held_process;
pub mod host_name;
pub mod https;
pub mod images;
pub mod kubeconfig;
pub mod layout;
pub mod local_record;
pub mod lock;
pub mod log_rotation;
pub mod node_pki;
pub mod node_state;
pub mod own_program;
mod parallel;
pub mod payload;
pub mod pki_folder;
pub mod preflight;
pub mod ready;
pub mod renewal_record;
pub mod rotation_incomplete;
pub mod rotation_phase;
pub mod runtime;
pub mod served;
pub mod static_pods;
pub mod supervisor;
pub mod teardown;
pub mod watch_folder;
