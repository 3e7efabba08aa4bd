//! Charts on a real API server, by the real helm; judged by `helm` itself and by `kubectl`.

mod bed;
mod confined;
mod life;
mod recovery;
mod refused;
