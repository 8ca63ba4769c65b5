//! Credentials of callers: a file of tokens and certificates, and the token of `admin.token`. No secret is stored:
//! tokens are long random numbers, of which the file and the server hold SHA-256 sums.

use std::{
    collections::HashMap,
    fmt::Write as _,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use sha2::{Digest as _, Sha256};
use x509_cert::{
    der::Decode as _,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use super::{guesses::Guesses, scope::Scope};

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
    /// Its address has sent too many wrong tokens recently.
    Guessing,
    /// The credential of this name lacks the scope.
    Scope(Arc<str>),
    /// There is no credential that could admit anyone.
    Off,
}

#[derive(Clone, Debug)]
struct Holder {
    name: Arc<str>,
    scopes: Vec<Scope>,
}

type Sum = [u8; 32];

#[derive(Debug, Default)]
struct Known {
    /// By the token's sum: the look-up time reveals nothing, because finding an entry requires the token itself.
    tokens: HashMap<Sum, Holder>,
    /// By a subject alternative name of the certificate.
    certificates: HashMap<String, Holder>,
}

/// The accepted credentials.
#[derive(Debug, Default)]
pub struct Credentials {
    file: Option<PathBuf>,
    known: RwLock<Known>,
    /// The sum of `admin.token`, which a person may have chosen.
    operator: Option<Sum>,
    guesses: Guesses,
}

impl Credentials {
    /// Reads the file.
    pub fn open(file: Option<PathBuf>, admin_token: Option<&str>) -> Result<Self, TokensError> {
        let known = file.as_deref().map(read).transpose()?.unwrap_or_default();
        let operator = admin_token.map(|token| sum(token.as_bytes()));
        Ok(Self { file, known: RwLock::new(known), operator, guesses: Guesses::default() })
    }

    /// Reloads the file; if it is invalid, the last credentials stay valid.
    pub fn reload(&self) {
        let Some(file) = &self.file else { return };
        match read(file) {
            Ok(known) => {
                tracing::info!(credentials = known.tokens.len() + known.certificates.len(), "tokens are loaded again");
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
            }
            Err(error) => tracing::error!(%error, "tokens were not loaded again; the last ones hold"),
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

    /// Name of the caller's credential, if it has `scope`, or any scope if that is `None`.
    pub(super) fn admit(
        &self,
        scope: Option<Scope>,
        token: Option<&[u8]>,
        certificate: Option<&[u8]>,
        address: Option<IpAddr>,
    ) -> Result<Arc<str>, Denied> {
        let holder = match (token, certificate) {
            (Some(token), _) => self.holder_of(token, address)?,
            (None, Some(certificate)) => self.owner_of(certificate).ok_or(Denied::Wrong)?,
            (None, None) if self.file.is_none() && self.operator.is_none() => return Err(Denied::Off),
            (None, None) => return Err(Denied::Missing),
        };
        if scope.is_none_or(|scope| holder.scopes.contains(&scope)) {
            Ok(holder.name)
        } else {
            Err(Denied::Scope(holder.name))
        }
    }

    fn holder_of(&self, token: &[u8], address: Option<IpAddr>) -> Result<Holder, Denied> {
        let (sum, now) = (sum(token), Instant::now());
        if let Some(holder) = self.known.read().unwrap_or_else(PoisonError::into_inner).tokens.get(&sum) {
            return Ok(holder.clone());
        }
        // Unlike the file's tokens, this one can be guessed, so frequent guesses are refused.
        if !self.guesses.may(address, now) {
            return Err(Denied::Guessing);
        }
        if self.operator.is_some_and(|operator| is_equal(&operator, &sum)) {
            return Ok(Holder { name: "admin.token".into(), scopes: vec![Scope::Admin] });
        }
        let left = self.guesses.wrong(address, now);
        let address = address.map(tracing::field::display);
        tracing::warn!(address, left, "a wrong token was sent");
        Err(Denied::Wrong)
    }

    fn owner_of(&self, certificate: &[u8]) -> Option<Holder> {
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

fn read(file: &Path) -> Result<Known, TokensError> {
    let wrong = |why: String| TokensError(format!("server.tokens: {} {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
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
        let holder = Holder { name: name.into(), scopes };
        let is_new = match proof.split_once(':') {
            Some(("sha256", digits)) => {
                let sum = unhex(digits).ok_or_else(|| wrong("a sum has 64 hexadecimal digits"))?;
                known.tokens.insert(sum, holder).is_none()
            }
            Some(("san", name)) if !name.is_empty() => known.certificates.insert(name.to_owned(), holder).is_none(),
            _ => return Err(wrong("a credential is sha256:SUM or san:NAME")),
        };
        if !is_new {
            return Err(wrong("the same credential stands above"));
        }
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
            |scope, token: &str| known.admit(scope, Some(token.as_bytes()), None, None).map(|name| name.to_string());
        assert_eq!(admit(Some(Scope::Shop), "a long token"), Ok("reader".to_owned()));
        assert_eq!(admit(None, "a long token"), Ok("reader".to_owned()));
        assert_eq!(admit(Some(Scope::Admin), "a long token"), Err(Denied::Scope("reader".into())));
        assert_eq!(admit(Some(Scope::Admin), "an operator's"), Ok("admin.token".to_owned()));
        assert_eq!(admit(Some(Scope::Shop), "a long toke"), Err(Denied::Wrong));
        assert_eq!(admit(Some(Scope::Shop), ""), Err(Denied::Wrong));
        assert_eq!(known.admit(Some(Scope::Shop), None, None, None), Err(Denied::Missing));
        let guesses = (0..20).filter(|_| admit(Some(Scope::Admin), "a guess") == Err(Denied::Guessing)).count();
        assert!(guesses > 5 && admit(Some(Scope::Admin), "an operator's") == Err(Denied::Guessing));
        assert!(admit(Some(Scope::Kv), "a long token").is_ok(), "what cannot be guessed goes on");
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        let sum = hashed("t");
        for line in ["name shop", "name shop plain-secret", "name shop sha256:12", &format!("name shopp {sum}")] {
            let error = known(&format!("#\n{line}"), None).unwrap_err();
            assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
        }
        assert!(known(&format!("a shop {sum}\nb kv {sum}"), None).is_err());
        assert!(known("a shop san:shopper.example", None).is_ok());
    }
}
