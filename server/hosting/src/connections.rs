//! How many connections each port may have open: as many as its setting says, or fewer if the process may not open so
//! many files. Must not know how many that are, nor what is served on any port.

/// The settings that bound connections, each once for every port that it bounds, with their values.
pub type Wanted = Vec<(&'static str, usize)>;

/// How many connections each of these settings gets.
#[derive(Clone, Debug, Default)]
pub struct Connections(Wanted);

impl Connections {
    /// Shares `available` descriptors out. The first setting, of the main port, gets what it says, up to three quarters.
    /// Of the others, one that wants no more than an even share gets what it says, and those that want more share what
    /// it leaves.
    pub fn share(mut wanted: Wanted, mut available: usize) -> Self {
        let Some(((_, first), others)) = wanted.split_first_mut() else { return Self(wanted) };
        *first = (*first).min(if others.is_empty() { available } else { available / 4 * 3 });
        available -= *first;
        others.sort_by_key(|(_, wanted)| *wanted);
        for (place, (_, granted)) in (0..others.len()).rev().zip(others.iter_mut()) {
            *granted = (*granted).min(available / (place + 1));
            available -= *granted;
        }
        Self(wanted)
    }

    /// What the setting `key` gets if it says `wanted`: at least 1.
    pub fn granted(&self, key: &str, wanted: usize) -> usize {
        let granted = self.0.iter().filter(|(other, _)| *other == key).map(|(_, granted)| *granted);
        granted.fold(wanted, usize::min).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::Connections;

    #[test]
    fn the_main_port_comes_first_and_small_wants_before_large_ones() {
        let wanted = vec![("main", 10_000), ("b", 16_384), ("c", 256), ("d", 4096)];
        let granted = |available| {
            let connections = Connections::share(wanted.clone(), available);
            wanted.clone().into_iter().map(|(key, wanted)| connections.granted(key, wanted)).collect::<Vec<_>>()
        };
        assert_eq!(granted(1 << 20), [10_000, 16_384, 256, 4096]);
        assert_eq!(granted(20_000), [10_000, 5648, 256, 4096]);
        assert_eq!(granted(400), [300, 34, 33, 33]);
        assert_eq!(granted(0), [1, 1, 1, 1]);
        assert_eq!(Connections::default().granted("a", 7), 7);
    }
}
