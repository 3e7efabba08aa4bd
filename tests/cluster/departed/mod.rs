//! Nodes of uninstalled machines on a real API server with the Node authorizer and NodeRestriction: who may mark a Node, which
//! marked Nodes go, and when no mark is believed. Everybody here has a certificate of their own.

mod bed;
mod believing;
mod deletion;
mod policy;
mod watch;
