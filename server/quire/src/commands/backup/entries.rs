//! Key-value entries of a backup: read from the running server, or from the folder without one, and restored to a new
//! folder. The file has chunks of a snapshot, each prefixed with its length.

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Read as _, Write as _},
    path::Path,
    time::Duration,
};

use ::kv::{
    ADDRESS_FILE, Clock, FOLDER_NAME, KeyValue, KvService, Restore,
    grpc::wire::{SnapshotChunk, SnapshotRequest, key_admin_service_client::KeyAdminServiceClient},
};
use anyhow::{Context as _, bail, ensure};
use hosting::address::Target;
use quire_rpc::{
    Request,
    client::{Channel, Settings},
    prost::{self, Message as _},
};

use super::archive::{Entries, cannot_write, private};
use crate::{
    cli::BackupArgs,
    config::{self, Config},
    transport::tls,
};

/// Time for connecting to the server, and for closing the store.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An entry with a value of 1 GiB, the largest that a server can be set to keep, and what is around it.
const CHUNK_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// Writes all entries to the file `into`; nothing if the data folder has none.
pub(super) fn take(config: &Config, args: &BackupArgs, into: &Path) -> anyhow::Result<Option<Entries>> {
    let folder = config.data.join(FOLDER_NAME);
    if let Some(server) = &args.server {
        return from_server(server, config, args, into).map(Some);
    }
    if !folder.exists() {
        return Ok(None);
    }
    match KeyValue::open(&folder, settings(config), Clock::Wall) {
        Ok(store) => {
            let found = from_store(&store, into)?;
            store.close(TIMEOUT);
            Ok(Some(found))
        }
        Err(error) if error.is_in_use() => {
            let address = config.data.join(ADDRESS_FILE);
            let server = fs::read_to_string(&address).with_context(|| {
                format!(
                    "a server uses {}, and {} does not say where; name it with --server",
                    folder.display(),
                    address.display()
                )
            })?;
            from_server(server.trim(), config, args, into).map(Some)
        }
        Err(error) => Err(error.into()),
    }
}

/// Settings for durable entries, like those in the folder, regardless of the current `kv.durability`.
fn settings(config: &Config) -> ::kv::Settings {
    ::kv::Settings { durability: ::kv::Durability::Log, ..config.settings_of::<KvService>() }
}

/// Writes the entries of an open store to the file `into`.
pub(super) fn from_store(store: &KeyValue, into: &Path) -> anyhow::Result<Entries> {
    let mut writing = Writing::new(into)?;
    let mut snapshot = store.snapshot()?;
    while let Some(page) = snapshot.next_page()? {
        writing.add(&SnapshotChunk { entries: page.into_iter().map(Into::into).collect(), last_version: None })?;
    }
    let last_version = Some(snapshot.last_version()?.0);
    writing.add(&SnapshotChunk { entries: Vec::new(), last_version })?;
    writing.finish()
}

fn from_server(server: &str, config: &Config, args: &BackupArgs, into: &Path) -> anyhow::Result<Entries> {
    let target = Target::parse(server, config::PORT)?;
    let advice = match &args.access.ca {
        None if target.tls => {
            "; it speaks TLS: name it as its certificate does with --server, and the certificate of its authority with --ca FILE \
             unless the system trusts it"
        }
        _ => "",
    };
    let cannot = || format!("cannot get key-value entries from the server at {server}{advice}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let taken = runtime.block_on(async {
        let settings = Settings { connect_timeout: TIMEOUT, message_bytes_max: CHUNK_BYTES_MAX, ..Settings::default() };
        let mut channel = Channel::builder(&target.url())?.settings(settings);
        if target.tls {
            let own = args.access.certificate.as_deref().zip(args.access.key_file.as_deref());
            channel = channel.tls(tls::client(args.access.ca.as_deref(), own)?)?;
        }
        let client = KeyAdminServiceClient::new(channel.connect_lazy()?);
        let mut request = Request::new(SnapshotRequest {});
        if let Some(token) = args.access.token.as_deref().or(config.admin_token.as_deref()) {
            request.metadata_mut().insert("authorization", &format!("Bearer {token}"))?;
        }
        let mut chunks = client.snapshot(request).await.map_err(|status| error_text(&status))?.into_inner();
        let mut writing = Writing::new(into)?;
        while let Some(chunk) = chunks.message().await.map_err(|status| error_text(&status))? {
            writing.add(&chunk)?;
        }
        writing.finish()
    });
    taken.with_context(cannot)
}

fn error_text(status: &quire_rpc::Status) -> anyhow::Error {
    anyhow::anyhow!("{:?}, {}", status.code(), status.message())
}

/// Writer of chunks to a file.
struct Writing<'a> {
    path: &'a Path,
    file: BufWriter<File>,
    found: Entries,
    ended: bool,
}

impl<'a> Writing<'a> {
    fn new(path: &'a Path) -> anyhow::Result<Self> {
        let file = private(path).with_context(|| cannot_write(path))?;
        Ok(Self { path, file: BufWriter::new(file), found: Entries::default(), ended: false })
    }

    fn add(&mut self, chunk: &SnapshotChunk) -> anyhow::Result<()> {
        count(chunk, &mut self.found);
        self.ended = chunk.last_version.is_some();
        self.file.write_all(&chunk.encode_length_delimited_to_vec()).with_context(|| cannot_write(self.path))
    }

    fn finish(mut self) -> anyhow::Result<Entries> {
        ensure!(self.ended, "the entries end before the last one; try again");
        self.file.flush().with_context(|| cannot_write(self.path))?;
        Ok(self.found)
    }
}

fn count(chunk: &SnapshotChunk, found: &mut Entries) {
    found.entries += u64::try_from(chunk.entries.len()).unwrap_or(0);
    found.last_version = chunk.last_version.unwrap_or(found.last_version);
}

/// Restores the entries of the file `saved` to the new folder `folder`.
pub(super) fn put(saved: &Path, folder: &Path, config: &Config) -> anyhow::Result<Entries> {
    let mut file = BufReader::new(File::open(saved)?);
    let (mut restore, mut found) = (Restore::begin(folder)?, Entries::default());
    while let Some(chunk) = next(&mut file)? {
        count(&chunk, &mut found);
        restore.chunk(chunk)?;
    }
    restore.finish()?;
    // Opens them as a server would, so that errors come before anything is in place.
    let store = KeyValue::open(folder, settings(config), Clock::Wall)?;
    let levels = store.levels();
    store.close(TIMEOUT);
    // Expired entries are left out.
    ensure!(u64::try_from(levels.entries)? <= found.entries, "the entries read back are others than those written");
    Ok(found)
}

fn next(file: &mut BufReader<File>) -> anyhow::Result<Option<SnapshotChunk>> {
    let mut prefix = Vec::new();
    loop {
        let mut byte = [0];
        match file.read(&mut byte)? {
            0 if prefix.is_empty() => return Ok(None),
            0 => bail!("damaged: the key-value entries end in the middle"),
            _ => prefix.push(byte[0]),
        }
        if byte[0] < 0x80 || prefix.len() == 10 {
            break;
        }
    }
    let length = prost::decode_length_delimiter(&prefix[..])?;
    ensure!(length <= CHUNK_BYTES_MAX, "damaged: the key-value entries make no sense");
    let mut bytes = Vec::new();
    file.take(u64::try_from(length)?).read_to_end(&mut bytes)?;
    Ok(Some(SnapshotChunk::decode(&bytes[..])?))
}
