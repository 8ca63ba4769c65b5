//! File descriptors: the process takes as many as the system lets it have, and connections take no more than leaves
//! enough for files. Must not know what is served.

use std::io;

use hosting::Connections;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept back for databases, journals, threads and connections that are being refused; at most half of all.
const RESERVE: u64 = 512;

/// Connections of a port that are being refused at the same time, of [`RESERVE`].
const REFUSALS: usize = 64;

/// The descriptors of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    most: u64,
    /// What held before, as the process was started.
    soft: u64,
}

impl Descriptors {
    /// Raises the soft limit to the hard one.
    pub(crate) fn raised() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let (soft, hard) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        if let Err(error) = raised.map_err(io::Error::from) {
            tracing::warn!(soft, hard, %error, "the soft limit of open files cannot be raised to the hard one");
            return Self { most: soft, soft };
        }
        Self { most: hard, soft }
    }

    fn reserve(self) -> u64 {
        RESERVE.min(self.most / 2)
    }

    /// Connections of a port that may be refused at the same time.
    pub(crate) fn refusals(self) -> usize {
        REFUSALS.min(usize::try_from(self.most / 32).unwrap_or(REFUSALS)).max(1)
    }

    /// Shares the descriptors out to the settings that bound connections, and says which get fewer than they want.
    pub(crate) fn share(self, wanted: hosting::Wanted) -> Connections {
        let reserve = self.reserve();
        let available = usize::try_from(self.most - reserve).unwrap_or(usize::MAX);
        tracing::info!(limit = self.most, soft_limit_at_start = self.soft, reserve, "open files");
        let connections = Connections::share(wanted.clone(), available);
        let mut told = Vec::new();
        for (setting, wanted) in wanted {
            let granted = connections.granted(setting, wanted);
            if granted < wanted && !told.contains(&setting) {
                told.push(setting);
                tracing::warn!(
                    "{setting} is {wanted}, but the hard limit of open files (RLIMIT_NOFILE) is {}: {granted} \
                     connections are accepted; raise that limit (LimitNOFILE, `ulimit -Hn`) or lower the setting",
                    self.most
                );
            }
        }
        connections
    }
}
