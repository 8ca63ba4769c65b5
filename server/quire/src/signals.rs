//! Signals handled by a server.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handlers; once installed, none of these signals ends the process by itself.
pub(crate) struct Signals {
    pub stop: Stop,
    /// SIGHUP: read files again.
    pub reload: Signal,
}

/// SIGINT and SIGTERM: drain and stop.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Installs the handlers; a signal that comes before the server waits is not lost.
    pub(crate) fn install() -> io::Result<Self> {
        let stop = Stop { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? };
        Ok(Self { stop, reload: signal(SignalKind::hangup())? })
    }
}

impl Stop {
    /// Waits for either, and returns its name.
    pub(crate) async fn asked(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// Waits for SIGINT.
    pub(crate) async fn interrupted(&mut self) {
        self.interrupt.recv().await;
    }
}
