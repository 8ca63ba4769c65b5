//! Cosignatures of the log by witnesses, by <https://c2sp.org/tlog-witness>. A witness signs a checkpoint only if it
//! extends the last one that it has signed, so a log from which entries are gone gets no signature.

use std::{io, sync::Arc, thread, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tlog::submission;
use tokio::{
    sync::{oneshot, watch},
    time::{MissedTickBehavior, interval},
};
use tokio_rustls::rustls::crypto::ring;
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig},
};

use crate::{
    Bookstore, Fault,
    fault::Unavailable,
    store::Page,
    witness::{Head, Witness},
};

/// Shortest time between two checkpoints; a shorter setting is this one.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Longest that one request takes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of an answer that are read: signatures have some 150 each.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Requests for one signature: the answer to the first may be the size that the second begins at.
const TRIES: usize = 2;

/// Reason why a witness has not signed.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "it has signed {0} entries of this log, which has fewer: entries are gone, as after an older copy of the data \
         folder was put back"
    )]
    Longer(u64),
    #[error(
        "the {0} entries of this log that it has signed differ from those in this log: other entries took the place of \
         some, as after sales from an older copy of the data folder"
    )]
    Other(u64),
    #[error("this log is not among its logs (404); its operator needs the log's public key, which /log/key has")]
    Unknown,
    #[error(
        "it has another public key for this log (403); its operator needs the one that /log/key has, and a store that \
         was restored, or started with --accept-loss, another ledger.origin"
    )]
    Key,
    #[error("its answer has no valid signature by the key {0} of the settings")]
    Unsigned(String),
    #[error("its answer has status {status}: {text}")]
    Status { status: u16, text: String },
    #[error("no answer: {0}")]
    Http(#[from] ureq::Error),
    #[error("cannot start a thread for the request: {0}")]
    Thread(#[from] io::Error),
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Refusal {
    fn status(status: u16, text: &str) -> Self {
        let text = text.chars().filter(|letter| !letter.is_control()).take(200).collect();
        Self::Status { status, text }
    }

    /// True if the log contradicts what the witness has signed.
    fn is_contradiction(&self) -> bool {
        matches!(self, Self::Longer(_) | Self::Other(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    witness: String,
}

/// A witness and its state.
struct Asked {
    witness: Witness,
    agent: Agent,
    /// Entries that it has signed, as far as is known.
    signed: u64,
    /// Size of the newest checkpoint with its signature that was published.
    published: Option<u64>,
    /// Its last refusal, to log each once.
    refusal: Option<String>,
    cosigned: Gauge,
    contradicted: Gauge,
}

/// Submits checkpoints to the witnesses while the log grows, until the store's tails end.
pub(crate) fn start(store: &Bookstore, registry: &mut Registry) {
    let settings = &store.inner.settings;
    if settings.witnesses.is_empty() {
        return;
    }
    let (cosigned, contradicted) = (Family::<Named, Gauge>::default(), Family::<Named, Gauge>::default());
    registry.register("log_cosigned_number", "Newest log entry that the witness has signed", cosigned.clone());
    let help = "1 if the witness has signed entries that the log does not have";
    registry.register("log_contradicted", help, contradicted.clone());
    let signed = Gauge::default();
    registry.register(
        "log_signed_number",
        "Newest log entry in the checkpoint that is submitted to witnesses",
        signed.clone(),
    );
    let (heads, agent) = (watch::Sender::new(None), agent(&settings.witnesses));
    for witness in settings.witnesses.iter().cloned() {
        let name = Named { witness: witness.key.name().to_owned() };
        let (cosigned, contradicted) = (cosigned.get_or_create_owned(&name), contradicted.get_or_create_owned(&name));
        let agent = agent.clone();
        let asked = Asked { witness, agent, signed: 0, published: None, refusal: None, cosigned, contradicted };
        spawn(store, asked.follow(store.clone(), heads.subscribe()));
    }
    spawn(store, publish_heads(store.clone(), heads, signed));
}

/// Runs a task until the store's tails end.
fn spawn(store: &Bookstore, task: impl Future<Output = ()> + Send + 'static) {
    let mut ending = store.inner.ending.subscribe();
    tokio::spawn(async move {
        tokio::select! {
            () = task => {}
            _ = ending.wait_for(|ending| *ending) => {}
        }
    });
}

/// Publishes the log's newest checkpoint once an interval.
async fn publish_heads(store: Bookstore, heads: watch::Sender<Option<Arc<Head>>>, signed: Gauge) {
    let mut turns = interval(store.inner.settings.witness_interval.max(INTERVAL_MIN));
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failure = None;
    loop {
        turns.tick().await;
        match store.head().await {
            Ok(head) => {
                failure = None;
                signed.set(i64::try_from(head.size).unwrap_or(i64::MAX));
                heads.send_replace(Some(Arc::new(head)));
            }
            Err(fault) => {
                // Entries come that no checkpoint covers.
                signed.set(store.levels().log_number);
                let reason = Some(fault.to_string());
                if failure != reason {
                    tracing::warn!(error = %fault, "a witness does not sign the log, as it has no checkpoint");
                    failure = reason;
                }
            }
        }
    }
}

impl Asked {
    /// Submits each checkpoint that the witness has not signed, one at a time.
    async fn follow(mut self, store: Bookstore, mut heads: watch::Receiver<Option<Arc<Head>>>) {
        while heads.changed().await.is_ok() {
            let head = heads.borrow_and_update().clone();
            if let Some(head) = head.filter(|head| head.size > 0 && self.published != Some(head.size)) {
                let answer = self.sign(&store, &head).await;
                self.note(&store, &head, answer);
            }
        }
    }

    /// Publishes a signature, or logs the reason why there is none.
    fn note(&mut self, store: &Bookstore, head: &Head, answer: Result<Option<String>, Refusal>) {
        let (witness, url) = (self.witness.key.name(), &self.witness.url);
        match answer {
            Ok(None) => {}
            Ok(Some(line)) => {
                if self.refusal.take().is_some() || self.published.is_none() {
                    tracing::info!(witness, url, size = head.size, "a witness signs the log");
                }
                store.inner.cosigned.add(head, &line);
                self.published = Some(head.size);
                self.contradicted.set(0);
                self.cosigned.set(i64::try_from(head.size).unwrap_or(i64::MAX));
            }
            Err(refusal) => {
                let reason = refusal.to_string();
                let is_new = self.refusal.as_ref() != Some(&reason);
                if refusal.is_contradiction() {
                    self.contradicted.set(1);
                    if is_new {
                        tracing::error!(
                            witness,
                            url,
                            head.size,
                            reason,
                            "the log contradicts what a witness has signed"
                        );
                    }
                } else if is_new {
                    tracing::warn!(witness, url, reason, "a witness does not sign the log");
                }
                self.refusal = Some(reason);
            }
        }
    }

    /// The line of the signature; `None` if there is a reason to ask again at the next checkpoint.
    async fn sign(&mut self, store: &Bookstore, head: &Head) -> Result<Option<String>, Refusal> {
        for _ in 0..TRIES {
            let proof = match store.consistency(self.signed, head).await {
                Ok(Some(proof)) => proof,
                // Another server of this file is ahead, or the hashes of a long log are being computed.
                Ok(None) | Err(Fault::Unavailable(Unavailable::Hashing)) => return Ok(None),
                Err(fault) => return Err(fault.into()),
            };
            let url = format!("{}/add-checkpoint", self.witness.url);
            let (status, text) = post(self.agent.clone(), url, submission(self.signed, &proof, &head.note)).await?;
            match (status, text.trim().parse::<u64>()) {
                (200, _) => {
                    let line = self.signature(head, &text);
                    self.signed = head.size;
                    return line.map(Some).ok_or_else(|| Refusal::Unsigned(self.witness.key.to_string()));
                }
                (409, Ok(signed)) if signed > head.size => {
                    // Another server of this file may have a newer checkpoint.
                    let newest = store.log(Page::Before(i64::MAX), 1).await?.items.pop();
                    let is_there =
                        newest.is_some_and(|entry| u64::try_from(entry.number).is_ok_and(|number| number >= signed));
                    return if is_there { Ok(None) } else { Err(Refusal::Longer(signed)) };
                }
                (409, Ok(signed)) if signed != self.signed => self.signed = signed,
                // The proof leads to our root from the root of as many entries here: those of the witness are others.
                (409, Ok(_)) | (422, _) if self.signed > 0 => return Err(Refusal::Other(self.signed)),
                (404, _) => return Err(Refusal::Unknown),
                (403, _) => return Err(Refusal::Key),
                _ => return Err(Refusal::status(status, &text)),
            }
        }
        Err(Refusal::status(409, "the size that it has signed is another in each answer"))
    }

    /// The line of an answer that has this witness's signature.
    fn signature(&self, head: &Head, answer: &str) -> Option<String> {
        let (text, _) = head.note.split_once("\n\n")?;
        let is_ours = |line: &&str| self.witness.key.open(&format!("{text}\n\n{line}\n")).is_ok();
        answer.lines().find(is_ours).map(str::to_owned)
    }
}

fn agent(witnesses: &[Witness]) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .max_redirects(0)
        .proxy(None)
        .http_status_as_error(false)
        .user_agent(concat!("quire/", env!("CARGO_PKG_VERSION")));
    if !witnesses.iter().any(|witness| witness.url.starts_with("https:")) {
        return config.build().new_agent();
    }
    let roots = rustls_native_certs::load_native_certs().certs;
    if roots.is_empty() {
        tracing::warn!("the system has no certificate authorities, so witnesses at https: cannot be reached");
    }
    let roots: Vec<_> = roots.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots));
    config.tls_config(tls.build()).build().new_agent()
}

/// Posts a text; returns status and text of the answer. Uses a thread of its own, because the runtime's blocking
/// threads would hold up a stop of the server.
async fn post(agent: Agent, url: String, body: String) -> Result<(u16, String), Refusal> {
    let (answer, answered) = oneshot::channel();
    let request = move || -> Result<(u16, String), ureq::Error> {
        let mut response = agent.post(url).content_type("text/plain; charset=utf-8").send(body)?;
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).lossy_utf8(true).read_to_string()?;
        Ok((response.status().as_u16(), text))
    };
    thread::Builder::new().name("witness".to_owned()).spawn(move || _ = answer.send(request()))?;
    Ok(answered.await.map_err(|_| io::Error::other("the thread ended"))??)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::TcpListener,
        sync::mpsc,
    };

    use super::*;
    use crate::{domain::BookId, metrics::Metrics, settings::Settings};

    /// A witness with these answers, in turn; returns the requests.
    fn scripted(answers: &[(u16, &str)]) -> (Asked, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asks, asked) = mpsc::channel();
        let answers: Vec<_> = answers.iter().map(|(status, text)| (*status, (*text).to_owned())).collect();
        thread::spawn(move || {
            for (status, text) in answers {
                let (mut connection, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(&connection);
                let (mut line, mut length) = (String::new(), 0);
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line).unwrap();
                    length =
                        line.strip_prefix("content-length: ").map_or(length, |length| length.trim().parse().unwrap());
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                asks.send(String::from_utf8(body).unwrap()).unwrap();
                let length = text.len();
                write!(
                    connection,
                    "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
                )
                .unwrap();
            }
        });
        let witness = Witness::parse(&format!("{url} {}", crate::witness::tests::KEY)).unwrap();
        let (agent, gauge) = (agent(&[]), Gauge::default);
        let asked_by = Asked {
            witness,
            agent,
            signed: 0,
            published: None,
            refusal: None,
            cosigned: gauge(),
            contradicted: gauge(),
        };
        (asked_by, asked)
    }

    fn shop(folder: &tempfile::TempDir) -> Bookstore {
        let path = folder.path().join("bookstore.db");
        Bookstore::open(&path, Settings::default(), Metrics::default()).unwrap()
    }

    #[tokio::test]
    async fn a_witness_is_asked_from_the_size_that_it_has_signed() {
        let folder = tempfile::tempdir().unwrap();
        let shop = shop(&folder);
        let head = shop.head().await.unwrap();
        let (mut witness, asked) =
            scripted(&[(409, "3\n"), (200, "\u{2014} other AAAA\n"), (409, "2\n"), (409, "3\n")]);
        let refused = witness.sign(&shop, &head).await;
        assert!(matches!(refused, Err(Refusal::Unsigned(_))), "{refused:?}");
        assert_eq!(asked.recv().unwrap(), format!("old 0\n\n{}", head.note));
        let proof = shop.consistency(3, &head).await.unwrap().unwrap();
        assert_eq!(asked.recv().unwrap(), submission(3, &proof, &head.note));
        let refused = witness.sign(&shop, &head).await;
        assert!(matches!(refused, Err(Refusal::Status { status: 409, .. })), "{refused:?}");
    }

    #[tokio::test]
    async fn the_answer_of_a_witness_gives_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let shop = shop(&folder);
        let head = shop.head().await.unwrap();
        let long = "x".repeat(usize::try_from(ANSWER_BYTES_MAX).unwrap() + 1);
        for (signed, answer, is_expected) in [
            (0, &[(404, "")], (|refusal| matches!(refusal, Refusal::Unknown)) as fn(&Refusal) -> bool),
            (0, &[(403, "")], |refusal| matches!(refusal, Refusal::Key)),
            (0, &[(200, &*long)], |refusal| matches!(refusal, Refusal::Http(ureq::Error::BodyExceedsLimit(_)))),
            (0, &[(422, "")], |refusal| matches!(refusal, Refusal::Status { status: 422, .. })),
            (0, &[(302, "elsewhere")], |refusal| matches!(refusal, Refusal::Status { status: 302, .. })),
            (0, &[(409, "many")], |refusal| matches!(refusal, Refusal::Status { status: 409, .. })),
            (0, &[(409, "1000")], |refusal| matches!(refusal, Refusal::Longer(1000))),
            (2, &[(422, "")], |refusal| matches!(refusal, Refusal::Other(2))),
            (2, &[(409, "2")], |refusal| matches!(refusal, Refusal::Other(2))),
        ] {
            let (mut witness, _asked) = scripted(answer);
            witness.signed = signed;
            let refusal = witness.sign(&shop, &head).await.expect_err("it does not sign");
            assert!(is_expected(&refusal), "{answer:?}: {refusal:?}");
            witness.note(&shop, &head, Err(refusal));
            let is_contradicted = matches!(answer, [(409, "1000" | "2")]) || signed > 0;
            assert_eq!(witness.contradicted.get(), i64::from(is_contradicted), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_witness_ahead_of_this_servers_checkpoint_contradicts_nothing_if_the_entries_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let shop = shop(&folder);
        let head = shop.head().await.unwrap();
        shop.buy(BookId::new(53477).unwrap(), 1, None, None).await.unwrap();
        let newer = shop.head().await.unwrap().size;
        assert!(newer > head.size);
        let (mut witness, _asked) = scripted(&[(409, &newer.to_string())]);
        let answer = witness.sign(&shop, &head).await;
        assert!(matches!(answer, Ok(None)), "{answer:?}");
    }

    #[tokio::test]
    async fn a_checkpoint_that_the_hashes_do_not_lead_to_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let shop = shop(&folder);
        let mut head = shop.head().await.unwrap();
        head.root.0[0] ^= 1;
        let (mut witness, _asked) = scripted(&[(200, "")]);
        let answer = witness.sign(&shop, &head).await;
        assert!(matches!(answer, Err(Refusal::Fault(Fault::Failed(_)))), "{answer:?}");
    }
}
