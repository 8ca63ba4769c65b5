//! Method paths, and their slots in connections' tables.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::message::transcode::{self, Json};
use crate::protocol::Codec;
use crate::status::{Reach, Status};

/// The path of a method; generated code has one static for each.
#[derive(Debug)]
pub struct Path {
    pub(crate) text: Cow<'static, str>,
    cache_slot: OnceLock<CacheSlot>,
    /// An encoded `FileDescriptorSet`; empty if the contract is unknown.
    contract: &'static [u8],
    pub(crate) has_side_effects: bool,
    json: OnceLock<Option<(Json, Json)>>,
}

impl Path {
    /// `/package.Service/Method`.
    pub const fn new(text: &'static str) -> Self {
        let text = Cow::Borrowed(text);
        Self { text, cache_slot: OnceLock::new(), contract: &[], has_side_effects: true, json: OnceLock::new() }
    }

    /// Adds the contract, an encoded `FileDescriptorSet`; calls in JSON need it.
    #[must_use]
    pub const fn of_contract(mut self, contract: &'static [u8]) -> Self {
        self.contract = contract;
        self
    }

    /// Marks the method as free of side effects: Connect may call it by GET.
    #[must_use]
    pub const fn without_side_effects(mut self) -> Self {
        self.has_side_effects = false;
        self
    }

    /// JSON codecs of the method's requests and responses; `None` in protobuf.
    pub(crate) fn json(&self, codec: Codec) -> Result<Option<&(Json, Json)>, Status> {
        if codec == Codec::Proto {
            return Ok(None);
        }
        let known = self.json.get_or_init(|| transcode::json_of(self.contract, &self.text)).as_ref();
        let unknown = || format!("the contract of {} is not known here, so it has no JSON: send protobuf", self.text);
        known.map(Some).ok_or_else(|| Status::unimplemented(unknown()).with_reach(Reach::Untouched))
    }

    /// The path of a method known only at run time. Connections cache data of the path while it lives, so create it
    /// once and clone it for each call.
    pub fn named(text: impl Into<String>) -> PathRef {
        let text = Cow::Owned(text.into());
        PathRef(Kept::Shared(Arc::new(Self { text, ..Self::new("") })))
    }

    /// Cache slot of the path in connections' tables.
    pub(crate) fn cache_slot(&self) -> &CacheSlot {
        self.cache_slot.get_or_init(CacheSlot::new)
    }
}

/// A path held by a call: static, or created at run time and shared by its clones.
#[derive(Clone, Debug)]
pub struct PathRef(Kept);

#[derive(Clone, Debug)]
enum Kept {
    Static(&'static Path),
    Shared(Arc<Path>),
}

impl From<&'static Path> for PathRef {
    fn from(path: &'static Path) -> Self {
        Self(Kept::Static(path))
    }
}

impl From<&PathRef> for PathRef {
    fn from(path: &PathRef) -> Self {
        path.clone()
    }
}

impl Deref for PathRef {
    type Target = Path;

    #[inline]
    fn deref(&self) -> &Path {
        match &self.0 {
            Kept::Static(path) => path,
            Kept::Shared(path) => path,
        }
    }
}

/// A slot in connections' tables. Dropping it frees its index for reuse; the generation identifies the owner.
#[derive(Debug)]
pub(crate) struct CacheSlot {
    pub(crate) index: usize,
    pub(crate) generation: u64,
}

/// Free indexes, and the number ever allocated.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

impl CacheSlot {
    pub(crate) fn new() -> Self {
        // The first generation is 1, so that an empty table entry matches no owner.
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let index = free.0.pop().unwrap_or_else(|| {
            free.1 += 1;
            free.1 - 1
        });
        Self { index, generation: GENERATION.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for CacheSlot {
    fn drop(&mut self) {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).0.push(self.index);
    }
}
