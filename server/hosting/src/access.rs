//! Access of callers: scopes, the credentials that have them, and the requirements of each port. Credentials are a file of
//! tokens and certificates, and the token of `admin.token`. No secret is stored: tokens are long random numbers, of
//! which the file and the server hold SHA-256 sums.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    hash::Hash,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use quire_net::Client;
use quire_rpc::Peer;
use ring::digest::{SHA256, digest};
use tokio::sync::watch;
use x509_cert::{
    der::Decode as _,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use crate::files;

/// A part of the server that callers are admitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Searches and purchases.
    Shop,
    /// The key-value service.
    Kv,
    /// Queries of records.
    Records,
    /// The RPC game.
    Play,
    /// Tasks.
    Tasks,
    /// The page `/metrics`.
    Metrics,
    /// Operator actions of every service.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 7] =
        [Self::Shop, Self::Kv, Self::Records, Self::Play, Self::Tasks, Self::Metrics, Self::Admin];

    /// Its name in files and flags.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shop => "shop",
            Self::Kv => "kv",
            Self::Records => "records",
            Self::Play => "play",
            Self::Tasks => "tasks",
            Self::Metrics => "metrics",
            Self::Admin => "admin",
        }
    }

    /// The setting that opens the scope to everyone; `None` if it cannot be opened.
    pub const fn open_setting(self) -> Option<&'static str> {
        match self {
            Self::Shop => Some("shop.open"),
            Self::Kv => Some("kv.open"),
            Self::Records => Some("records.open"),
            Self::Play => Some("rpcgame.open"),
            Self::Tasks => Some("tasks.open"),
            Self::Metrics => Some("metrics.open"),
            Self::Admin => None,
        }
    }

    /// Parses names separated by commas; the error is the unknown name.
    pub fn list(text: &str) -> Result<Vec<Self>, &str> {
        let named = |name: &str| Self::ALL.into_iter().find(|scope| scope.name() == name);
        text.split(',').map(str::trim).map(|name| named(name).ok_or(name)).collect()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The credentials, and the scopes that need none.
#[derive(Clone, Debug, Default)]
pub struct AuthPolicy {
    credentials: Arc<Credentials>,
    open: Arc<[Scope]>,
}

impl AuthPolicy {
    /// `open` are the scopes that need no credential anywhere.
    pub fn new(credentials: Arc<Credentials>, open: Vec<Scope>) -> Self {
        Self { credentials, open: open.into() }
    }

    /// The authenticator of a port for `scope`, or for a part without a scope.
    pub fn authenticator(&self, scope: Option<Scope>, address: SocketAddr) -> Authenticator {
        let is_open = scope.is_some_and(|scope| self.open.contains(&scope));
        let has_operator = scope == Some(Scope::Admin) && self.credentials.has_operator();
        let is_shut = !address.ip().is_loopback() || self.credentials.has_file() || has_operator;
        Authenticator { credentials: Arc::clone(&self.credentials), scope, is_required: is_shut && !is_open }
    }

    /// Reads the file of credentials again. Blocks.
    pub fn reload(&self) {
        self.credentials.reload();
    }
}

/// A caller that must show a credential before its first request.
#[derive(Clone, Debug)]
pub struct Challenge {
    authenticator: Authenticator,
    peer: Peer,
}

impl Challenge {
    /// The caller's credential.
    pub fn admit(&self, token: Option<&[u8]>) -> Result<Option<Admitted>, Denied> {
        self.authenticator.admit(token, &self.peer)
    }

    /// Error text for a denied caller.
    pub fn error_text(&self, denied: &Denied) -> String {
        self.authenticator.error_text(denied)
    }
}

/// Admits or denies callers.
#[derive(Clone, Debug)]
pub struct Authenticator {
    credentials: Arc<Credentials>,
    scope: Option<Scope>,
    is_required: bool,
}

impl Authenticator {
    /// True if callers need a credential.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// The challenge for a connection from this address, with these certificates.
    pub fn challenge(&self, address: Option<SocketAddr>, certificates: Vec<Bytes>) -> Challenge {
        let mut peer = Peer::default();
        (peer.address, peer.certificates) = (address, certificates);
        Challenge { authenticator: self.clone(), peer }
    }

    /// The scope they need.
    pub fn scope(&self) -> Option<Scope> {
        self.scope
    }

    /// The caller's credential; `None` if none is asked for.
    pub fn admit(&self, token: Option<&[u8]>, peer: &Peer) -> Result<Option<Admitted>, Denied> {
        if !self.is_required {
            return Ok(None);
        }
        let certificate = peer.certificates.first().map(|der| &der[..]);
        let address = peer.address.map(|address| address.ip());
        self.credentials.admit(self.scope, token, certificate, address).map(Some)
    }

    /// Error text for a denied caller.
    pub fn error_text(&self, denied: &Denied) -> String {
        let scope = self.scope.map_or("any", Scope::name);
        match denied {
            Denied::Off if self.scope == Some(Scope::Admin) => {
                "operator actions are off while the server listens beyond loopback without a token; set admin.token"
                    .to_owned()
            }
            Denied::Off => "this is off while the server listens beyond loopback without server.tokens".to_owned(),
            Denied::Missing => format!("send a token of the scope {scope} as 'authorization: Bearer TOKEN'"),
            Denied::Wrong => {
                format!(
                    "the credential is not known; send a token of the scope {scope} as 'authorization: Bearer TOKEN'"
                )
            }
            Denied::Guessing => {
                "the credential is not known, like too many from this address; try again in a minute, with one that is"
                    .to_owned()
            }
            Denied::Scope(name) => format!("the credential {name} does not have the scope {scope}"),
        }
    }
}

/// Maximum size of a file of credentials.
const FILE_BYTES_MAX: usize = 16 << 20;

/// An invalid file of credentials. The text is for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokensError(String);

/// Reason why a caller is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It sent no credential.
    Missing,
    /// Its token or certificate is unknown.
    Wrong,
    /// Its token is unknown, and its address has sent too many such tokens lately.
    Guessing,
    /// The credential of this name lacks the scope.
    Scope(Arc<str>),
    /// No credential is configured that could admit anyone.
    Off,
}

#[derive(Debug)]
struct Holder {
    name: Arc<str>,
    scopes: Vec<Scope>,
    /// Turns true when the file is read again and lacks the line.
    revoked: watch::Sender<bool>,
}

impl Holder {
    fn new(name: &str, scopes: Vec<Scope>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), scopes, revoked: watch::Sender::new(false) })
    }
}

/// A credential that admitted its caller.
#[derive(Clone, Debug)]
pub struct Admitted(Arc<Holder>);

impl Admitted {
    /// The credential's name.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// True once the credential is revoked.
    pub fn is_revoked(&self) -> bool {
        *self.0.revoked.borrow()
    }

    /// Completes when the credential is revoked: what it opened ends then.
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + use<> {
        let holder = Arc::clone(&self.0);
        async move {
            // Cannot fail: the holder keeps the sender.
            drop(holder.revoked.subscribe().wait_for(|revoked| *revoked).await);
        }
    }
}

type Sum = [u8; 32];

#[derive(Debug, Default)]
struct Holders {
    /// By the token's sum: the look-up time reveals nothing, because finding an entry requires the token itself.
    tokens: HashMap<Sum, Arc<Holder>>,
    /// By a subject alternative name of the certificate.
    certificates: HashMap<String, Arc<Holder>>,
}

impl Holders {
    /// Keeps the holders of `before` whose lines are unchanged, and revokes the others.
    fn succeed(&mut self, before: Self) {
        succeed(&mut self.tokens, before.tokens);
        succeed(&mut self.certificates, before.certificates);
    }

    fn len(&self) -> usize {
        self.tokens.len() + self.certificates.len()
    }
}

fn succeed<P: Eq + Hash>(now: &mut HashMap<P, Arc<Holder>>, before: HashMap<P, Arc<Holder>>) {
    for (proof, holder) in before {
        match now.get_mut(&proof) {
            Some(same) if same.name == holder.name && same.scopes == holder.scopes => *same = holder,
            _ => drop(holder.revoked.send_replace(true)),
        }
    }
}

/// The accepted credentials.
#[derive(Debug, Default)]
pub struct Credentials {
    file: Option<PathBuf>,
    known: RwLock<Holders>,
    /// Sum and holder of `admin.token`, which a person may have made up.
    operator: Option<(Sum, Arc<Holder>)>,
    rate_limit: RateLimit,
}

impl Credentials {
    /// Reads the file.
    pub fn open(file: Option<PathBuf>, admin_token: Option<&str>) -> Result<Self, TokensError> {
        let known = file.as_deref().map(read).transpose()?.unwrap_or_default();
        let operator = admin_token.map(|token| (sum(token.as_bytes()), Holder::new("admin.token", vec![Scope::Admin])));
        Ok(Self { file, known: RwLock::new(known), operator, rate_limit: RateLimit::default() })
    }

    /// Reads the file again, and ends what revoked credentials have opened. Keeps the last credentials if the file
    /// cannot be used. Blocks.
    pub fn reload(&self) {
        let Some(file) = &self.file else { return };
        match files::check_regular(file).map_err(|error| unread(file, &error)).and_then(|()| read(file)) {
            Ok(mut new) => {
                let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                new.succeed(std::mem::take(&mut *known));
                *known = new;
                tracing::info!(credentials = known.len(), "tokens are loaded again");
            }
            Err(error) => tracing::warn!(%error, "tokens were not loaded again; the last ones hold"),
        }
    }

    /// True if there is a file.
    fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// True if `admin.token` is set.
    fn has_operator(&self) -> bool {
        self.operator.is_some()
    }

    /// The caller's credential, if it has `scope`; with `None` any credential does.
    fn admit(
        &self,
        scope: Option<Scope>,
        token: Option<&[u8]>,
        certificate: Option<&[u8]>,
        address: Option<IpAddr>,
    ) -> Result<Admitted, Denied> {
        let holder = match (token, certificate) {
            (Some(token), _) => self.holder_of(token).ok_or_else(|| self.wrong(address))?,
            (None, Some(certificate)) => self.owner_of(certificate).ok_or(Denied::Wrong)?,
            (None, None) if self.file.is_none() && self.operator.is_none() => return Err(Denied::Off),
            (None, None) => return Err(Denied::Missing),
        };
        if scope.is_none_or(|scope| holder.scopes.contains(&scope)) {
            Ok(Admitted(holder))
        } else {
            Err(Denied::Scope(Arc::clone(&holder.name)))
        }
    }

    fn holder_of(&self, token: &[u8]) -> Option<Arc<Holder>> {
        let sum = sum(token);
        if let Some(holder) = self.known.read().unwrap_or_else(PoisonError::into_inner).tokens.get(&sum) {
            return Some(Arc::clone(holder));
        }
        let (operator, holder) = self.operator.as_ref()?;
        is_equal(operator, &sum).then(|| Arc::clone(holder))
    }

    /// Counts a wrong token and denies its caller. Right tokens from the address do not come here.
    fn wrong(&self, address: Option<IpAddr>) -> Denied {
        let is_slowed = self.rate_limit.is_exceeded(address, Instant::now());
        tracing::warn!(address = address.map(tracing::field::display), is_slowed, "a wrong token was sent");
        if is_slowed { Denied::Guessing } else { Denied::Wrong }
    }

    fn owner_of(&self, certificate: &[u8]) -> Option<Arc<Holder>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
        let (_, SubjectAltName(names)) = certificate.tbs_certificate.get().ok()??;
        names.iter().find_map(|name| match name {
            GeneralName::DnsName(name)
            | GeneralName::Rfc822Name(name)
            | GeneralName::UniformResourceIdentifier(name) => known.certificates.get(name.as_str()).cloned(),
            _ => None,
        })
    }
}

fn sum(token: &[u8]) -> Sum {
    let mut sum = Sum::default();
    sum.copy_from_slice(digest(&SHA256, token).as_ref());
    sum
}

/// Compares in constant time, so that the time does not reveal how many bytes match.
fn is_equal(one: &Sum, other: &Sum) -> bool {
    one.iter().zip(other).fold(0, |seen, (one, other)| seen | (one ^ other)) == 0
}

/// The file's form of a token.
pub fn hashed(token: &str) -> String {
    sum(token.as_bytes()).iter().fold("sha256:".to_owned(), |mut written, byte| {
        // Writing to a string cannot fail.
        let _ = write!(written, "{byte:02x}");
        written
    })
}

fn unread(file: &Path, error: &std::io::Error) -> TokensError {
    TokensError(format!("server.tokens: {} cannot be read: {error}", file.display()))
}

fn read(file: &Path) -> Result<Holders, TokensError> {
    let wrong = |why: String| TokensError(format!("server.tokens: {} {why}", file.display()));
    let bytes = files::read(file, FILE_BYTES_MAX).map_err(|error| unread(file, &error))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("cannot be read: it is not UTF-8".to_owned()))?;
    let is_ended = text.ends_with('\n');
    let last = text.lines().count();
    let mut known = Holders::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // The line is not shown: it may hold a token by mistake.
        let wrong = |why: &str| wrong(format!("has a wrong line {}: {why}", number + 1));
        let mut fields = line.split_whitespace();
        let (Some(name), Some(scopes), Some(proof), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(wrong(
                "it must be NAME SCOPES sha256:SUM, as `quire token new` makes it, or NAME SCOPES san:NAME",
            ));
        };
        let named = Scope::ALL.map(Scope::name).join(", ");
        let scopes = Scope::list(scopes).map_err(|_| wrong(&format!("the scopes are {named}, with commas between")))?;
        let holder = Holder::new(name, scopes);
        let is_new = match proof.split_once(':') {
            Some(("sha256", digits)) => {
                let sum = unhex(digits).ok_or_else(|| wrong("a sum has 64 hexadecimal digits"))?;
                known.tokens.insert(sum, holder).is_none()
            }
            // A sum that was cut off shows by its length, a name does not.
            Some(("san", _)) if number + 1 == last && !is_ended => return Err(wrong("the line has no end")),
            Some(("san", name)) if !name.is_empty() => known.certificates.insert(name.to_owned(), holder).is_none(),
            _ => return Err(wrong("a credential is sha256:SUM or san:NAME")),
        };
        if !is_new {
            return Err(wrong("the same credential stands above"));
        }
    }
    if known.len() == 0 {
        let instead = "to revoke all, leave one line of a new token that no one has";
        return Err(wrong(format!("has no credential, as a file that was cut off; {instead}")));
    }
    Ok(known)
}

fn unhex(digits: &str) -> Option<Sum> {
    let mut sum = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (place, byte) in sum.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(sum)
}

/// Wrong tokens at once; then one per [`PAUSE`].
const BURST: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);
/// Time in which an empty bucket is full again.
const REFILL: Duration = Duration::from_secs(BURST as u64 * PAUSE.as_secs());

/// Most addresses with a count of their own; further ones share one.
const ADDRESSES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    at: Instant,
}

impl Bucket {
    const fn full(now: Instant) -> Self {
        Self { left: BURST, at: now }
    }

    fn refilled(self, now: Instant) -> Self {
        let pauses = now.duration_since(self.at).as_secs() / PAUSE.as_secs();
        let pauses = u32::try_from(pauses).unwrap_or(BURST);
        let left = self.left.saturating_add(pauses).min(BURST);
        Self { left, at: if left == BURST { now } else { self.at + PAUSE * pauses } }
    }
}

/// Token buckets by address. Two generations: the older one is dropped once every bucket in it is full again, so that
/// forgetting an address costs no search.
#[derive(Debug, Default)]
struct RateLimit(Mutex<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    /// Addresses with a wrong token since the last turn.
    recent: HashMap<Option<IpAddr>, Bucket>,
    /// Further addresses with one between the last two turns.
    earlier: HashMap<Option<IpAddr>, Bucket>,
    turned_at: Option<Instant>,
}

impl Buckets {
    /// Forgets the addresses that have been quiet for long enough to have a full bucket.
    fn turn(&mut self, now: Instant) {
        let passed = now.duration_since(*self.turned_at.get_or_insert(now));
        if passed >= REFILL {
            self.earlier = std::mem::take(&mut self.recent);
            self.turned_at = Some(now);
        }
        if passed >= 2 * REFILL {
            self.earlier.clear();
        }
    }

    /// The address's bucket, or the one that further addresses share.
    fn of(&mut self, address: Option<IpAddr>, now: Instant) -> &mut Bucket {
        let mut key = address.map(Client::network);
        let mut known = self.earlier.remove(&key);
        let is_full = self.recent.len() + self.earlier.len() >= ADDRESSES_MAX;
        if is_full && known.is_none() && !self.recent.contains_key(&key) {
            key = None;
            known = self.earlier.remove(&key);
        }
        self.recent.entry(key).or_insert_with(|| known.unwrap_or(Bucket::full(now)))
    }
}

impl RateLimit {
    /// Counts a wrong token of this address; true if there were too many.
    fn is_exceeded(&self, address: Option<IpAddr>, now: Instant) -> bool {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.turn(now);
        let bucket = buckets.of(address, now);
        *bucket = bucket.refilled(now);
        let is_empty = bucket.left == 0;
        bucket.left = bucket.left.saturating_sub(1);
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        task::{Context, Waker},
    };

    use super::*;

    fn known(text: &str, operator: Option<&str>) -> Result<Credentials, String> {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let number = FILES.fetch_add(1, Relaxed);
        let file = std::env::temp_dir().join(format!("quire-tokens-{}-{number}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let opened = Credentials::open(Some(file.clone()), operator).map_err(|error| error.to_string());
        std::fs::remove_file(file).unwrap();
        opened
    }

    #[test]
    fn a_token_admits_to_its_scopes_alone() {
        let text = format!("# ours\n\n reader  shop,kv  {}\n", hashed("a long token"));
        let known = known(&text, Some("an operator's")).unwrap();
        let admit =
            |scope, token: &str| known.admit(scope, Some(token.as_bytes()), None, None).map(|by| by.name().to_string());
        assert_eq!(admit(Some(Scope::Shop), "a long token"), Ok("reader".to_owned()));
        assert_eq!(admit(None, "a long token"), Ok("reader".to_owned()));
        assert_eq!(admit(Some(Scope::Admin), "a long token"), Err(Denied::Scope("reader".into())));
        assert_eq!(admit(Some(Scope::Admin), "an operator's"), Ok("admin.token".to_owned()));
        assert_eq!(admit(Some(Scope::Shop), "a long toke"), Err(Denied::Wrong));
        assert_eq!(admit(Some(Scope::Shop), ""), Err(Denied::Wrong));
        assert_eq!(known.admit(Some(Scope::Shop), None, None, None).unwrap_err(), Denied::Missing);
        let guesses = (0..20).filter(|_| admit(Some(Scope::Admin), "a guess") == Err(Denied::Guessing)).count();
        assert!(guesses > 5);
        assert!(admit(Some(Scope::Admin), "an operator's").is_ok(), "a right token is never locked out");
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        let sum = hashed("t");
        for line in ["name shop", "name shop plain-secret", "name shop sha256:12", &format!("name shopp {sum}")] {
            let error = known(&format!("#\n{line}"), None).unwrap_err();
            assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
        }
        assert!(known(&format!("a shop {sum}\nb kv {sum}"), None).is_err());
        assert!(known("a shop san:shopper.example\n", None).is_ok());
    }

    #[test]
    fn a_file_that_was_cut_off_is_refused() {
        let whole = format!("# ours\na shop {}\nb kv,shop san:shopper.example\n", hashed("t"));
        let first_ends = whole.find("\nb").unwrap();
        for cut in 0..whole.len() {
            // A cut between two lines cannot be noticed.
            let is_taken = (first_ends..=first_ends + 1).contains(&cut);
            assert_eq!(known(&whole[..cut], None).is_ok(), is_taken, "{:?}", &whole[..cut]);
        }
    }

    #[test]
    fn a_line_that_goes_or_changes_revokes_its_credential_and_no_other() {
        let line = |name: &str, scope: &str| format!("{name} {scope} {}\n", hashed(name));
        let folder = std::env::temp_dir().join(format!("quire-revoked-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("tokens");
        std::fs::write(&file, [line("kept", "kv"), line("gone", "kv"), line("less", "kv,shop")].concat()).unwrap();
        let known = Credentials::open(Some(file.clone()), None).unwrap();
        let revoked = ["kept", "gone", "less"].map(|token| {
            let admitted = known.admit(Some(Scope::Kv), Some(token.as_bytes()), None, None).unwrap();
            admitted.revoked()
        });
        let mut revoked = revoked.map(Box::pin);
        let mut seen = || {
            revoked.each_mut().map(|revoked| revoked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready())
        };
        std::fs::write(&file, "").unwrap();
        known.reload();
        assert_eq!(seen(), [false; 3], "a damaged file revokes nothing");
        std::fs::write(&file, [line("kept", "kv"), line("less", "kv")].concat()).unwrap();
        known.reload();
        assert_eq!(seen(), [false, true, true]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_address_that_limit_is_found_and_others_are_not() {
        let (limit, now) = (RateLimit::default(), Instant::now());
        let (bad, good): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for _ in 0..BURST {
            assert!(!limit.is_exceeded(Some(bad), now));
        }
        assert!(limit.is_exceeded(Some(bad), now) && !limit.is_exceeded(Some(good), now));
        let later = now + Duration::from_secs(1);
        assert!(!limit.is_exceeded(Some(bad), later) && limit.is_exceeded(Some(bad), later));
        assert!(!limit.is_exceeded(Some(bad), later + Duration::from_mins(1)));
    }

    fn held(limit: &RateLimit) -> usize {
        let buckets = limit.0.lock().unwrap();
        buckets.recent.len() + buckets.earlier.len()
    }

    #[test]
    fn an_address_is_remembered_until_its_tokens_are_back_and_no_longer() {
        let (limit, now) = (RateLimit::default(), Instant::now());
        let (address, at) = (|last| Some([10, 0, 0, last].into()), |seconds| now + Duration::from_secs(seconds));
        limit.is_exceeded(address(2), at(0));
        for _ in 0..BURST {
            assert!(!limit.is_exceeded(address(1), at(9)));
        }
        assert_eq!([(); 3].map(|()| limit.is_exceeded(address(1), at(11))), [false, false, true]);
        assert_eq!(held(&limit), 2);
        limit.is_exceeded(address(2), at(60));
        assert_eq!(held(&limit), 1);
    }

    #[test]
    fn no_number_of_addresses_takes_more_memory() {
        let (limit, now) = (RateLimit::default(), Instant::now());
        for address in 0..20_000_u32 {
            limit.is_exceeded(Some(IpAddr::from(address.to_be_bytes())), now);
        }
        assert!(held(&limit) <= ADDRESSES_MAX + 1);
        assert!(limit.is_exceeded(Some([200, 0, 0, 1].into()), now), "the others share what is left");
        let network = |last| Some(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]));
        let limit = RateLimit::default();
        for _ in 0..BURST {
            limit.is_exceeded(network(1), now);
        }
        assert!(limit.is_exceeded(network(2), now));
    }
}
