//! Commands on the server itself.

use std::{fs::File, io::Write as _, path::Path};

use anyhow::{Context as _, ensure};
use quire_client::{
    cli::{Connection, Exit},
    wire::quire::ReloadReply,
};
use quire_terminal::{pager::Pager, screen};
use serde_json::json;
use tempfile::NamedTempFile;

use super::{
    desk::{Desk, write_line},
    show,
};
use crate::{
    cli::{AccessArgs, TopArgs},
    commands::top,
};

impl Desk {
    /// Shows the server's figures: live where that can be, else once. Blocks.
    pub(super) fn top(&self, once: bool) -> Exit {
        let Connection { json, token, ca, certificate, key_file, .. } = self.connection.clone();
        let done = match &self.console {
            Some(channel) => self.runtime.block_on(top::once(channel.clone(), &self.address)),
            None => top::run(&TopArgs {
                address: self.address.clone(),
                once: once || json || !screen::is_terminal() || !cfg!(feature = "top"),
                json,
                access: AccessArgs { token, ca, certificate, key_file },
            }),
        };
        let Err((error, code)) = done else { return Exit::Done };
        self.complain(&format!("{error:#}"));
        [Exit::Refused, Exit::Usage, Exit::Unreachable]
            .into_iter()
            .find(|exit| *exit as u8 == code)
            .unwrap_or(Exit::Refused)
    }

    pub(super) async fn connections(&self, most: u32, out: &mut Pager) -> anyhow::Result<()> {
        let reply = self.operator.connections(most).await?;
        self.write(out, &reply.connections, show::connection, show::connections)?;
        let left = reply.total.saturating_sub(reply.connections.len() as u64);
        if left > 0 && !self.connection.json { write_line(out, &format!("and {left} more")) } else { Ok(()) }
    }

    pub(super) async fn cut(&self, connection: u64, out: &mut Pager) -> anyhow::Result<Exit> {
        self.sends();
        let reply = self.operator.cut_connection(connection).await?;
        if reply.success {
            self.done(out, &format!("connection {connection} was cut"), json!({ "id": connection }))
        } else {
            self.refused(out, &reply.message)
        }
    }

    pub(super) async fn reload(&self, out: &mut Pager) -> anyhow::Result<Exit> {
        self.sends();
        let ReloadReply { applied, waiting, .. } = self.operator.reload().await?;
        let mut text = Vec::new();
        for (settings, holds) in [(&applied, "from now on"), (&waiting, "from the next start on")] {
            if !settings.is_empty() {
                text.push(format!("{} hold {holds}", settings.join(", ")));
            }
        }
        let text = if text.is_empty() { "no setting has changed".to_owned() } else { text.join("; ") };
        let text = format!("{text}; the server's log has the outcome of the other files");
        self.done(out, &text, json!({ "applied": applied, "waiting": waiting }))
    }

    /// Writes a backup that the server makes now to a file that only its owner can read.
    pub(super) async fn backup(&self, file: &Path, force: bool, out: &mut Pager) -> anyhow::Result<Exit> {
        ensure!(force || !file.exists(), "{} exists; name another file, or replace it with --force", file.display());
        let cannot = || format!("cannot write {}", file.display());
        let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut whole = NamedTempFile::new_in(folder).with_context(cannot)?;
        let (mut pieces, mut bytes, mut is_whole) = (self.patient.backup().await?, 0, false);
        while let Some(piece) = pieces.try_next().await? {
            whole.write_all(&piece.data).with_context(cannot)?;
            bytes += piece.data.len();
            is_whole = piece.last;
        }
        ensure!(is_whole, "the server's backup ended before it was whole; nothing was written");
        whole.as_file().sync_all().with_context(cannot)?;
        let named = if force { whole.persist(file) } else { whole.persist_noclobber(file) };
        named.map_err(|error| error.error).with_context(cannot)?;
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(cannot)?;
        let text = format!("{} holds {bytes} bytes; quire restore checks and restores it", file.display());
        self.done(out, &text, json!({ "bytes": bytes, "file": file.display().to_string() }))
    }
}
