//! Credentials of callers: a file of tokens and certificates, and the token of `admin.token`. No secret is stored:
//! tokens are long random numbers, of which the file and the server hold SHA-256 sums.

use std::{
    collections::HashMap,
    fmt::Write as _,
    hash::Hash,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use x509_cert::{
    der::Decode as _,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use super::{guesses::Guesses, scope::Scope};
use crate::files;

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
struct Known {
    /// By the token's sum: the look-up time reveals nothing, because finding an entry requires the token itself.
    tokens: HashMap<Sum, Arc<Holder>>,
    /// By a subject alternative name of the certificate.
    certificates: HashMap<String, Arc<Holder>>,
}

impl Known {
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
    known: RwLock<Known>,
    /// Sum and holder of `admin.token`, which a person may have made up.
    operator: Option<(Sum, Arc<Holder>)>,
    guesses: Guesses,
}

impl Credentials {
    /// Reads the file.
    pub fn open(file: Option<PathBuf>, admin_token: Option<&str>) -> Result<Self, TokensError> {
        let known = file.as_deref().map(read).transpose()?.unwrap_or_default();
        let operator = admin_token.map(|token| (sum(token.as_bytes()), Holder::new("admin.token", vec![Scope::Admin])));
        Ok(Self { file, known: RwLock::new(known), operator, guesses: Guesses::default() })
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
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// True if `admin.token` is set.
    pub(super) fn has_operator(&self) -> bool {
        self.operator.is_some()
    }

    /// The caller's credential, if it has `scope`; with `None` any credential does.
    pub(super) fn admit(
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
        let is_slowed = self.guesses.is_too_many(address, Instant::now());
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
    Sha256::digest(token).into()
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

fn read(file: &Path) -> Result<Known, TokensError> {
    let wrong = |why: String| TokensError(format!("server.tokens: {} {why}", file.display()));
    let bytes = files::read(file, FILE_BYTES_MAX).map_err(|error| unread(file, &error))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("cannot be read: it is not UTF-8".to_owned()))?;
    let is_ended = text.ends_with('\n');
    let last = text.lines().count();
    let mut known = Known::default();
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::{Credentials, Denied, Scope, hashed};

    fn known(text: &str, operator: Option<&str>) -> Result<Credentials, String> {
        let folder = std::env::temp_dir().join(format!("quire-tokens-{}-{}", std::process::id(), text.len()));
        std::fs::write(&folder, text).unwrap();
        let opened = Credentials::open(Some(folder.clone()), operator).map_err(|error| error.to_string());
        std::fs::remove_file(folder).unwrap();
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
}
