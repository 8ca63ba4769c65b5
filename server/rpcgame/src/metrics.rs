//! The game's part of the metrics page.

use std::fmt;

use hosting::metrics::Page;

use crate::registry::Games;

/// Writes counters and gauges.
pub(crate) fn write(page: &mut Page<'_>, games: &Games) -> fmt::Result {
    let counts = games.counts();
    let help = "Messages and calls of the RPC game refused over gRPC, by reason";
    page.counters("rpcgame_refusals", help, "reason", counts.refusals())?;
    let help = "Lean connections that were closed, by reason";
    page.counters("rpcgame_lean_closed", help, "reason", counts.lean_ends())?;
    page.counter("rpcgame_lean_messages", "Messages handled on lean connections", counts.lean_messages())?;
    page.counter("rpcgame_ended", "Games that ended by Done", *games.ended().borrow())?;
    page.gauge("rpcgame_lean_connections", "Open lean connections", counts.lean_connections())?;
    page.gauge("rpcgame_games", "Games over gRPC that are played now", games.count())?;
    page.gauge("rpcgame_waiting_bytes", "What messages that came early hold", games.waiting_bytes())
}
