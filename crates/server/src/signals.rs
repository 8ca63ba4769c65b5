//! The signals that a server takes. Must not know what it does about them.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// From its making on, none of these signals ends the process by itself.
pub(crate) struct Signals {
    pub stop: Stop,
    /// SIGHUP: read again what can be.
    pub reload: Signal,
}

/// SIGINT and SIGTERM: stop in order.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// A signal that comes before it is waited for is kept.
    pub(crate) fn install() -> io::Result<Self> {
        let stop = Stop { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? };
        Ok(Self { stop, reload: signal(SignalKind::hangup())? })
    }
}

impl Stop {
    /// Waits for either, and names it.
    pub(crate) async fn asked(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
