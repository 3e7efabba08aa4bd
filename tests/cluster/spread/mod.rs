//! CoreDNS on a real API server, under the operator's own credential. There is no scheduler and no kubelet: the tests bind
//! pods to Nodes and say in their status what is Ready.

mod bed;
mod budgets;
mod moves;
mod running;
mod states;
