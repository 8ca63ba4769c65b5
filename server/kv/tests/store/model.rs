//! Random concurrent calls from several tasks against a model. Each task has its own keys, so that a map predicts every
//! answer, while the tasks share the store's tables, limits and journal.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use futures_util::future::join_all;
use kv::{Durability, Fault, KeyValue, Limits, Scan, StoreKind, Version};
use proptest::prelude::*;

use super::{KINDS, Store, value};

#[derive(Clone, Debug)]
enum Step {
    Create(u8, u16),
    Retrieve(u8),
    Update(u8, u16),
    /// With the model's version, or with a wrong one.
    Compare(u8, u16, bool),
    Put(u8, u16),
    Delete(u8),
}

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Version)>;

fn step() -> impl Strategy<Value = Step> {
    let (key, size) = (0u8..6, prop_oneof![0u16..40, Just(20_000)]);
    prop_oneof![
        (key.clone(), size.clone()).prop_map(|(key, size)| Step::Create(key, size)),
        key.clone().prop_map(Step::Retrieve),
        (key.clone(), size.clone()).prop_map(|(key, size)| Step::Update(key, size)),
        (key.clone(), size.clone()).prop_map(|(key, size)| Step::Put(key, size)),
        (key.clone(), size, any::<bool>()).prop_map(|(key, size, right)| Step::Compare(key, size, right)),
        key.prop_map(Step::Delete),
    ]
}

/// Runs the steps of one task and checks every answer.
async fn run(kv: KeyValue, task: u8, steps: Vec<Step>) -> Model {
    let mut model = Model::new();
    let name = |key: u8| vec![key; usize::from(key) * 3].into_iter().chain([b'-', task]).collect::<Vec<u8>>();
    for (number, step) in steps.into_iter().enumerate() {
        let bytes = |size: u16| vec![u8::try_from(number % 256).unwrap(); size.into()];
        match step {
            Step::Create(key, size) => {
                let done = kv.create(&name(key), value(&bytes(size)), None).await;
                match model.get(&name(key)) {
                    Some(_) => assert_eq!(done, Err(Fault::Exists)),
                    None => drop(model.insert(name(key), (bytes(size), done.unwrap()))),
                }
            }
            Step::Retrieve(key) => {
                let found = kv.retrieve(&name(key)).await.ok();
                let found = found.map(|entry| (entry.value.bytes().to_vec(), entry.version));
                assert_eq!(found.as_ref(), model.get(&name(key)));
            }
            Step::Update(key, size) => {
                let done = kv.update(&name(key), value(&bytes(size)), None, None).await;
                match model.get_mut(&name(key)) {
                    None => assert_eq!(done, Err(Fault::Missing)),
                    Some(place) => *place = (bytes(size), done.unwrap()),
                }
            }
            Step::Compare(key, size, right) => {
                let known = model.get(&name(key)).map_or(Version(0), |known| known.1);
                let expected = if right { known } else { Version(known.0 + 1_000_000) };
                let done = kv.update(&name(key), value(&bytes(size)), Some(expected), None).await;
                match model.get_mut(&name(key)) {
                    None => assert_eq!(done, Err(Fault::Missing)),
                    Some(_) if !right => assert_eq!(done, Err(Fault::Conflict(known))),
                    Some(place) => *place = (bytes(size), done.unwrap()),
                }
            }
            Step::Put(key, size) => {
                let version = kv.put(&name(key), value(&bytes(size)), None).await.unwrap();
                model.insert(name(key), (bytes(size), version));
            }
            Step::Delete(key) => {
                let was = model.remove(&name(key)).is_some();
                assert_eq!(kv.delete(&name(key), None).await, Ok(was));
            }
        }
    }
    model
}

async fn everything(kv: &KeyValue) -> Model {
    let (mut all, mut after) = (Model::new(), None);
    loop {
        let scan = Scan { start_after: after.as_deref(), entries: 7, ..Scan::default() };
        let next = kv.scan(&scan, |key, entry| {
            let place = all.insert(key.to_vec(), (entry.value.bytes().to_vec(), entry.version));
            assert!(place.is_none(), "a key comes once");
            ControlFlow::Continue(())
        });
        after = next.await.unwrap();
        if after.is_none() {
            return all;
        }
    }
}

fn check(kind: (StoreKind, Durability), tasks: Vec<Vec<Step>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut store = Store::open(kind, Limits::default());
        let running = tasks.into_iter().zip(0u8..).map(|(steps, task)| {
            let kv = store.kv.clone();
            tokio::spawn(run(kv, task, steps))
        });
        let mut expected = Model::new();
        for model in join_all(running).await {
            expected.extend(model.unwrap());
        }
        assert_eq!(everything(&store.kv).await, expected);
        let levels = store.kv.levels();
        assert_eq!(levels.entries, expected.len());
        if kind.1 == Durability::Log {
            store.reopen();
            assert_eq!(everything(&store.kv).await, expected, "the disk holds what memory held");
            assert_eq!(store.kv.levels(), levels);
        }
        for key in expected.keys() {
            store.kv.delete(key, None).await.unwrap();
        }
        assert_eq!((store.kv.levels().entries, store.kv.levels().bytes), (0, 0), "all memory is accounted for");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_answer_is_the_models(
        tasks in prop::collection::vec(prop::collection::vec(step(), 0..120), 1..6),
        kind in 0..KINDS.len(),
    ) {
        check(KINDS[kind], tasks);
    }
}

/// All tasks use the same keys: each is created once, and each increment counts once.
#[test]
fn of_callers_who_want_the_same_key_one_wins_and_no_increment_is_lost() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for kind in KINDS {
        runtime.block_on(async {
            let store = Arc::new(Store::open(kind, Limits::default()));
            let creates = join_all((0..64u8).map(|task| {
                let kv = store.kv.clone();
                tokio::spawn(async move { kv.create(b"one", value(&[task]), None).await.is_ok() })
            }));
            assert_eq!(creates.await.into_iter().filter(|won| *won.as_ref().unwrap()).count(), 1);
            store.kv.create(b"count", value(&0u32.to_be_bytes()), None).await.unwrap();
            let counts = join_all((0..8).map(|_| {
                let kv = store.kv.clone();
                tokio::spawn(async move {
                    for _ in 0..50 {
                        loop {
                            let entry = kv.retrieve(b"count").await.unwrap();
                            let count = u32::from_be_bytes(entry.value.bytes()[..].try_into().unwrap());
                            let next = value(&(count + 1).to_be_bytes());
                            match kv.update(b"count", next, Some(entry.version), None).await {
                                Ok(_) => break,
                                Err(fault) => assert!(matches!(fault, Fault::Conflict(_)), "{fault}"),
                            }
                        }
                    }
                })
            }));
            counts.await.into_iter().for_each(|done| done.unwrap());
            assert_eq!(store.value(b"count").await.unwrap(), 400u32.to_be_bytes());
        });
    }
}
