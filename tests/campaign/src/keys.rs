//! A key-value store's work on the disk, and what must be true of its files afterwards.

use std::{collections::HashMap, path::Path, time::Duration};

use kv::{Clock, Durability, Fault, KeyValue, Settings, Value};
use rand_core::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::runtime::Runtime;

use crate::{
    judge::{Finding, Work, say},
    random::Random as _,
};

const FOLDER: &str = "kv";
const KEYS: usize = 12;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn open(folder: &Path) -> Result<KeyValue, kv::OpenError> {
    let settings = Settings { durability: Durability::Log, ..Settings::default() };
    KeyValue::open(&folder.join(FOLDER), settings, Clock::Wall)
}

/// The text that a number stands for; some are longer than a page.
fn text(number: usize) -> String {
    format!("{number} ").repeat(1 + number * 37 % 900)
}

/// Writes into the store in `work`'s folder, and prints each write before it and, once it is acknowledged, after it.
pub(crate) fn work(work: &Work) {
    let store = match open(&work.folder) {
        Ok(store) => store,
        Err(reason) => return say(&format!("refused {reason}")),
    };
    say("open");
    let (runtime, mut random) = (runtime(), Xoshiro256PlusPlus::seed_from_u64(work.seed));
    for step in 0..4 * work.steps {
        let (key, value) = (random.place(KEYS), (!random.one_in(5)).then(|| random.below(100_000)));
        let value = value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        say(&format!("try {key} {value}"));
        let name = format!("key {key}");
        let done = match value.parse() {
            Ok(number) => {
                runtime.block_on(store.put(name.as_bytes(), Value::copied(text(number).as_bytes()), None)).map(|_| ())
            }
            Err(_) => match runtime.block_on(store.delete(name.as_bytes(), None)) {
                Ok(_) | Err(Fault::Missing) => Ok(()),
                Err(fault) => Err(fault),
            },
        };
        match done {
            Ok(()) => say(&format!("done {key}")),
            Err(fault) => {
                say(&format!("fault {fault}, step {step}"));
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    if work.closes {
        store.close(Duration::from_secs(20));
    }
}

/// The values that each key may have: that of the newest acknowledged write, and those of later ones.
fn allowed(said: &[String]) -> HashMap<String, Vec<String>> {
    let mut allowed: HashMap<String, Vec<String>> = HashMap::new();
    for line in said {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["try", key, value] => {
                allowed.entry(key.to_owned()).or_insert_with(|| vec!["-".to_owned()]).push(value.to_owned());
            }
            ["done", key] => {
                let values = allowed.get_mut(key).expect("it was tried");
                values.drain(..values.len() - 1);
            }
            _ => {}
        }
    }
    allowed
}

/// Judges the files by the lines that processes printed.
pub(crate) fn audit(folder: &Path, said: &[String]) -> Finding {
    let store = match open(folder) {
        Ok(store) => store,
        Err(reason) => return Finding::Noticed(format!("refused: {reason}")),
    };
    let (runtime, allowed) = (runtime(), allowed(said));
    let mut finding = Finding::Whole(said.iter().filter(|line| line.starts_with("done ")).count());
    for (key, values) in &allowed {
        let found = match runtime.block_on(store.retrieve(format!("key {key}").as_bytes())) {
            Ok(entry) => Some(entry.value.bytes().clone()),
            Err(Fault::Missing) => None,
            Err(fault) => return Finding::Noticed(format!("a call failed: {fault}")),
        };
        let fits = |value: &String| {
            value.parse().ok().map(text).map(String::into_bytes) == found.as_deref().map(<[u8]>::to_vec)
        };
        if !values.iter().any(fits) {
            let found = found.map(|found| String::from_utf8_lossy(&found[..found.len().min(8)]).into_owned());
            finding = Finding::Wrong(format!("key {key} has {found:?}, and may have {values:?}"));
        }
    }
    store.close(Duration::from_secs(20));
    finding
}
