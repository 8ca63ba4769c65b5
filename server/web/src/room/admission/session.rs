//! Sessions of operators: in memory, bounded, ended by time and by a revoked credential.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hosting::{Client, Share, Shares, access::Admitted};
use rand_core::{OsRng, RngCore as _};

/// Most sessions, shared fairly by credentials; beyond its share, a credential's session that was used least lately ends.
pub(crate) const SESSIONS_MAX: usize = 256;

/// Longest time without a request, and longest time altogether.
const IDLE_MAX: Duration = Duration::from_hours(1);
const AGE_MAX: Duration = Duration::from_hours(12);

/// A secret of 256 bits, as text.
pub(crate) fn secret() -> String {
    let mut bytes = [0; 32];
    OsRng.fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// True if two secrets are equal; the time does not reveal how many bytes match.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |seen, (one, other)| seen | (one ^ other)) == 0
}

/// An operator who is signed in.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) admitted: Admitted,
    /// The secret in the browser's cookie.
    pub(crate) cookie: Arc<str>,
    /// The secret that its forms carry.
    pub(crate) form_secret: Arc<str>,
}

#[derive(Debug)]
struct Open {
    session: Session,
    opened: Instant,
    used: Instant,
    _share: Share,
}

impl Open {
    fn is_over(&self, now: Instant) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        since(self.used) > IDLE_MAX || since(self.opened) > AGE_MAX || self.session.admitted.is_revoked()
    }
}

type OpenSessions = HashMap<Arc<str>, Open>;

/// The sessions of a server, by the secret in the browser's cookie. The map's own hash has a key of the process, so that the
/// time of a look-up reveals nothing about secrets that exist.
#[derive(Debug)]
pub(crate) struct Sessions {
    open: Mutex<OpenSessions>,
    places: Shares,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { open: Mutex::default(), places: Shares::new(SESSIONS_MAX) }
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, OpenSessions> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session, which is in use now.
    pub(crate) fn open(&self, admitted: Admitted, now: Instant) -> Session {
        let mut open = self.lock();
        open.retain(|_, session| !session.is_over(now));
        let share = loop {
            match self.places.take(Client::Credential(Arc::clone(admitted.name()))) {
                Some(share) => break share,
                None => end_oldest(&mut open, admitted.name()),
            }
        };
        let session = Session { admitted, cookie: secret().into(), form_secret: secret().into() };
        let kept = Open { session: session.clone(), opened: now, used: now, _share: share };
        open.insert(Arc::clone(&session.cookie), kept);
        session
    }

    /// The session of a cookie, which is in use now; `None` if it is over.
    pub(crate) fn take_up(&self, cookie: &str, now: Instant) -> Option<Session> {
        let mut open = self.lock();
        let found = open.get_mut(cookie)?;
        if found.is_over(now) {
            open.remove(cookie);
            return None;
        }
        found.used = now;
        Some(found.session.clone())
    }

    /// The session of a cookie, which is not thereby in use; `None` if it is over.
    pub(crate) fn look_at(&self, cookie: &str, now: Instant) -> Option<Session> {
        let open = self.lock();
        open.get(cookie).filter(|found| !found.is_over(now)).map(|found| found.session.clone())
    }

    /// Ends a session.
    pub(crate) fn close(&self, cookie: &str) {
        self.lock().remove(cookie);
    }
}

/// Ends the session of a credential that was used least lately, or of any credential if it has none.
fn end_oldest(open: &mut OpenSessions, name: &str) {
    let is_own = |open: &Open| &**open.session.admitted.name() == name;
    let oldest = open.iter().min_by_key(|(_, open)| (!is_own(open), open.used)).map(|(cookie, _)| Arc::clone(cookie));
    if let Some(cookie) = oldest {
        open.remove(&cookie);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::SocketAddr,
        sync::Arc,
        time::{Duration, Instant},
    };

    use hosting::access::{Admitted, AuthPolicy, Credentials, Scope, hashed};

    use super::{AGE_MAX, IDLE_MAX, SESSIONS_MAX, Sessions, is_same, secret};

    /// The holders of a file with these names.
    fn admitted<const COUNT: usize>(names: [&str; COUNT]) -> [Admitted; COUNT] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let lines = names.map(|name| format!("{name} admin {}\n", hashed(name)));
        std::fs::write(&file, lines.concat()).unwrap();
        let credentials = Credentials::open(Some(file), None).unwrap();
        let auth = AuthPolicy::new(Arc::new(credentials), Vec::new());
        let door = auth.authenticator(Some(Scope::Admin), SocketAddr::from(([0, 0, 0, 0], 80)));
        names.map(|name| door.admit(Some(name.as_bytes()), &quire_rpc::Peer::default()).unwrap().unwrap())
    }

    #[test]
    fn a_session_ends_an_hour_after_its_last_use_and_after_half_a_day_in_any_case() {
        let (sessions, began, [admitted]) = (Sessions::default(), Instant::now(), admitted(["one"]));
        let second = Duration::from_secs(1);
        let idle = sessions.open(admitted.clone(), began).cookie;
        assert!(sessions.take_up(&idle, began + IDLE_MAX).is_some());
        assert!(sessions.look_at(&idle, began + IDLE_MAX * 2).is_some());
        assert!(sessions.look_at(&idle, began + IDLE_MAX * 2 + second).is_none(), "a look is no use");
        assert!(sessions.take_up(&idle, began + IDLE_MAX * 2 + second).is_none());
        assert!(sessions.take_up(&idle, began).is_none(), "it is gone");
        let busy = sessions.open(admitted, began).cookie;
        let mut now = began;
        while now + IDLE_MAX / 2 <= began + AGE_MAX {
            now += IDLE_MAX / 2;
            assert!(sessions.take_up(&busy, now).is_some());
        }
        assert!(sessions.take_up(&busy, began + AGE_MAX + second).is_none());
    }

    #[test]
    fn of_too_many_sessions_the_credentials_own_ends_that_was_used_least_lately() {
        let (sessions, began, [one, other]) = (Sessions::default(), Instant::now(), admitted(["one", "other"]));
        let at = |number: usize| began + Duration::from_millis(number as u64);
        let others = sessions.open(other, began).cookie;
        let all: Vec<_> = (0..SESSIONS_MAX * 2).map(|number| sessions.open(one.clone(), at(number)).cookie).collect();
        let now = at(all.len());
        let left: Vec<bool> = all.iter().map(|cookie| sessions.look_at(cookie, now).is_some()).collect();
        let gone = left.iter().position(|is_left| *is_left).unwrap();
        assert!(left[gone..].iter().all(|is_left| *is_left) && gone >= SESSIONS_MAX, "the oldest {gone} are gone");
        assert!(sessions.take_up(&all[gone], now).is_some());
        sessions.open(one, now + Duration::from_millis(1));
        assert!(sessions.look_at(&all[gone], now).is_some() && sessions.look_at(&all[gone + 1], now).is_none());
        assert!(sessions.look_at(&others, now).is_some(), "the other credential's");
        sessions.close(&others);
        assert!(sessions.take_up(&others, now).is_none());
    }

    #[test]
    fn a_credential_without_a_session_gets_one_when_all_are_taken() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let all = admitted(["a", "b", "c", "d", "e", "f", "g"]);
        for one in &all {
            for _ in 0..SESSIONS_MAX {
                let cookie = sessions.open(one.clone(), now).cookie;
                assert!(sessions.take_up(&cookie, now).is_some());
            }
        }
        assert!(sessions.lock().len() <= SESSIONS_MAX);
    }

    #[test]
    fn secrets_differ() {
        let (one, other) = (secret(), secret());
        assert!(one.len() == 43 && is_same(&one, &one.clone()) && !is_same(&one, &other) && !is_same(&one, ""));
    }
}
