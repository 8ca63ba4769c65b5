//! Sessions of operators: in memory, bounded, ended by time and by a revoked credential.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hosting::access::Admitted;
use rand_core::{OsRng, RngCore as _};

/// Most sessions; the one that was used least lately makes room.
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
    /// The secret that its forms carry.
    pub(crate) form_secret: Arc<str>,
}

#[derive(Debug)]
struct Open {
    session: Session,
    opened: Instant,
    used: Instant,
}

impl Open {
    fn is_over(&self, now: Instant) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        since(self.used) > IDLE_MAX || since(self.opened) > AGE_MAX || self.session.admitted.is_revoked()
    }
}

/// The sessions of a server, by the secret in the browser's cookie. The map's own hash has a key of the process, so that the
/// time of a look-up reveals nothing about secrets that exist.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Open>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session; returns the secret for its cookie.
    pub(crate) fn open(&self, admitted: Admitted, now: Instant) -> String {
        let (cookie, session) = (secret(), Session { admitted, form_secret: secret().into() });
        let mut open = self.lock();
        open.retain(|_, session| !session.is_over(now));
        if open.len() >= SESSIONS_MAX
            && let Some(oldest) = open.iter().min_by_key(|(_, session)| session.used).map(|(cookie, _)| cookie.clone())
        {
            open.remove(&oldest);
        }
        open.insert(cookie.clone(), Open { session, opened: now, used: now });
        cookie
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

    /// Ends a session.
    pub(crate) fn close(&self, cookie: &str) {
        self.lock().remove(cookie);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::SocketAddr,
        sync::Arc,
        time::{Duration, Instant},
    };

    use hosting::access::{Admitted, AuthPolicy, Credentials, Scope};

    use super::{AGE_MAX, IDLE_MAX, SESSIONS_MAX, Sessions, is_same, secret};

    fn admitted() -> Admitted {
        let credentials = Credentials::open(None, Some("a token of operators")).unwrap();
        let auth = AuthPolicy::new(Arc::new(credentials), Vec::new());
        let door = auth.authenticator(Some(Scope::Admin), SocketAddr::from(([0, 0, 0, 0], 80)));
        door.admit(Some(b"a token of operators"), &quire_rpc::Peer::default()).unwrap().unwrap()
    }

    #[test]
    fn a_session_ends_an_hour_after_its_last_use_and_after_half_a_day_in_any_case() {
        let (sessions, began) = (Sessions::default(), Instant::now());
        let second = Duration::from_secs(1);
        let idle = sessions.open(admitted(), began);
        assert!(sessions.take_up(&idle, began + IDLE_MAX).is_some());
        assert!(sessions.take_up(&idle, began + IDLE_MAX * 2 + second).is_none());
        assert!(sessions.take_up(&idle, began).is_none(), "it is gone");
        let busy = sessions.open(admitted(), began);
        let mut now = began;
        while now + IDLE_MAX / 2 <= began + AGE_MAX {
            now += IDLE_MAX / 2;
            assert!(sessions.take_up(&busy, now).is_some());
        }
        assert!(sessions.take_up(&busy, began + AGE_MAX + second).is_none());
    }

    #[test]
    fn of_too_many_sessions_the_one_used_least_lately_ends() {
        let (sessions, began) = (Sessions::default(), Instant::now());
        let at = |number: usize| began + Duration::from_millis(number as u64);
        let all: Vec<String> = (0..SESSIONS_MAX).map(|number| sessions.open(admitted(), at(number))).collect();
        assert!(sessions.take_up(&all[0], at(SESSIONS_MAX)).is_some());
        sessions.open(admitted(), at(SESSIONS_MAX + 1));
        assert!(sessions.take_up(&all[1], at(SESSIONS_MAX + 1)).is_none());
        assert!(sessions.take_up(&all[0], at(SESSIONS_MAX + 1)).is_some());
        sessions.close(&all[0]);
        assert!(sessions.take_up(&all[0], at(SESSIONS_MAX + 2)).is_none());
    }

    #[test]
    fn secrets_differ() {
        let (one, other) = (secret(), secret());
        assert!(one.len() == 43 && is_same(&one, &one.clone()) && !is_same(&one, &other) && !is_same(&one, ""));
    }
}
