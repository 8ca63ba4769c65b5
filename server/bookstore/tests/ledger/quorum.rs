//! A COMMIT whose wait for the replicas is cancelled is no answer, and neither is what asks about it.

use std::time::{Duration, Instant};

use bookstore::{Bookstore, Fault, Settings, Verdict};
use postgres_testing::{Psql, Server, database_of};

use super::{Shop, close, id, key};

const TIMEOUT: Duration = Duration::from_secs(20);

/// The process of the server whose statement waits in this way, and is not `other`.
fn waiting(looks: &mut Psql, event: &str, statement: &str, other: &str) -> String {
    let sql = format!(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'quire' AND pid::text <> '{other}' \
         AND wait_event_type || '/' || wait_event LIKE '{event}' AND query LIKE '{statement}%';"
    );
    let begun = Instant::now();
    loop {
        let pid = looks.run(&sql);
        if !pid.is_empty() {
            return pid;
        }
        let all =
            "SELECT pid, wait_event_type, wait_event, query FROM pg_stat_activity WHERE application_name = 'quire';";
        assert!(begun.elapsed() < TIMEOUT, "{statement} does not wait for {event}: {}", looks.run(all));
    }
}

fn cancel(looks: &mut Psql, pid: &str) {
    assert_eq!(looks.run(&format!("SELECT pg_cancel_backend({pid});")), "t");
}

#[test]
fn nothing_is_acknowledged_before_a_wait_for_the_replicas_ended_by_itself() {
    let server = Server::start("synchronous_standby_names = '*'\n");
    let receiver = server.receiver();
    let shop = Shop::at(Some(server.database()));
    let store = shop.open(&Settings { database_timeout: TIMEOUT, ..Settings::default() });
    shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault");
    let database = database_of(shop.url.as_deref().expect("a database"));
    let (mut looks, mut holds) = (server.session(database), server.session(database));
    let (quorum, insert) = ("IPC/SyncRep", "INSERT INTO ledger_session");
    receiver.freeze();
    let bought = {
        let store = store.clone();
        shop.runtime.spawn(async move { store.buy(id(53477), 1, Some(key("a")), None).await })
    };
    let commit = waiting(&mut looks, quorum, "COMMIT", "");
    cancel(&mut looks, &commit);
    // The row that records the outcome, in a session whose own commit was not waited for.
    let first = waiting(&mut looks, quorum, insert, "");
    cancel(&mut looks, &first);
    let second = waiting(&mut looks, quorum, insert, &first);
    // The next session is waited for, and the statement that settles is not.
    holds.run("BEGIN; SELECT FROM ledger_session WHERE batch = 2 FOR UPDATE;");
    receiver.thaw();
    let settles = waiting(&mut looks, "Lock/%", "UPDATE ledger_session", "");
    assert_eq!(settles, second);
    receiver.freeze();
    holds.run("ROLLBACK;");
    assert_eq!(waiting(&mut looks, quorum, "UPDATE ledger_session", ""), settles);
    cancel(&mut looks, &settles);
    waiting(&mut looks, quorum, insert, &settles);
    assert!(!bought.is_finished(), "the purchase is on one machine alone");
    receiver.thaw();
    let receipt = shop.runtime.block_on(bought).expect("no panic").expect("no fault");
    assert_eq!((receipt.verdict, receipt.replayed), (Verdict::Bought, false));
    close(&store);
}

#[test]
fn a_commit_in_doubt_whose_session_is_gone_is_unknown_and_its_key_finds_it() {
    let server = Server::start("synchronous_standby_names = '*'\n");
    let receiver = server.receiver();
    let shop = Shop::at(Some(server.database()));
    let store = shop.open(&Settings { database_timeout: TIMEOUT, ..Settings::default() });
    let mut looks = server.session(database_of(shop.url.as_deref().expect("a database")));
    let buy = |store: &Bookstore| {
        let store = store.clone();
        shop.runtime.spawn(async move { store.buy(id(53477), 1, Some(key("a")), None).await })
    };
    shop.runtime.block_on(store.buy(id(53477), 1, None, None)).expect("no fault");
    receiver.freeze();
    let bought = buy(&store);
    let commit = waiting(&mut looks, "IPC/SyncRep", "COMMIT", "");
    cancel(&mut looks, &commit);
    waiting(&mut looks, "IPC/SyncRep", "INSERT INTO ledger_session", "");
    looks.run("SET synchronous_commit = off; DELETE FROM ledger_session WHERE batch = 2;");
    receiver.thaw();
    assert_eq!(shop.runtime.block_on(bought).expect("no panic"), Err(Fault::OutcomeUnknown));
    shop.runtime.block_on(store.healthy().wait_for(|healthy| *healthy)).expect("a ledger");
    let receipt = shop.runtime.block_on(buy(&store)).expect("no panic").expect("no fault");
    assert_eq!((receipt.verdict, receipt.replayed), (Verdict::Bought, true));
    close(&store);
}
