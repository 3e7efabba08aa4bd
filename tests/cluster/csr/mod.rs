//! Certificate requests of kubelets, sent by their own real credentials, and judged by the operator as a process.

mod bed;
mod bootstrap;
mod serving;
