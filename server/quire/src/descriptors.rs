//! File descriptors: the process raises its limit to the maximum, and connections leave enough for files.

use hosting::{Connections, Wanted};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Reserved for databases, journals, threads and excess connections; at most half of all.
const RESERVE: u64 = 512;

/// Excess connections of a port that may be refused at the same time; part of [`RESERVE`].
const REFUSALS: usize = 64;

/// Descriptor limits of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    most: u64,
    /// The soft limit that the process was started with.
    soft: u64,
}

impl Descriptors {
    /// Raises the soft limit to the hard one.
    pub(crate) fn raised() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let soft = current.unwrap_or(u64::MAX);
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
        Self { most: if raised { maximum.unwrap_or(u64::MAX) } else { soft }, soft }
    }

    fn reserve(self) -> u64 {
        RESERVE.min(self.most / 2)
    }

    /// Excess connections of a port that may be refused at the same time.
    pub(crate) fn refusals(self) -> usize {
        REFUSALS.min(usize::try_from(self.most / 32).unwrap_or(REFUSALS)).max(1)
    }

    /// Distributes the descriptors to the connection limits.
    pub(crate) fn share(self, wanted: Wanted) -> Connections {
        Connections::share(wanted, usize::try_from(self.most - self.reserve()).unwrap_or(usize::MAX))
    }

    /// Logs the limits, and a warning for each setting in `set` that is granted fewer connections than its value.
    pub(crate) fn log(self, set: &Wanted, connections: &Connections) {
        tracing::info!(limit = self.most, soft_limit_at_start = self.soft, reserve = self.reserve(), "open files");
        for (setting, wanted) in set {
            let granted = connections.granted(setting, *wanted);
            if granted < *wanted {
                tracing::warn!(
                    "{setting} is {wanted}, but the hard limit of open files (RLIMIT_NOFILE) is {}: {granted} \
                     connections are accepted; raise that limit (LimitNOFILE, `ulimit -Hn`) or lower the setting",
                    self.most
                );
            }
        }
    }
}
