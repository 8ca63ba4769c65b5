//! Connection limits of the ports: as configured, or lower if the process may not open so many files.

/// The connection limits with their values, each once for every port it limits.
pub type Wanted = Vec<(&'static str, usize)>;

/// Connections granted to each limit.
#[derive(Clone, Debug, Default)]
pub struct Connections(Wanted);

impl Connections {
    /// Distributes `available` descriptors. The first limit, of the main port, gets its value, up to three quarters. Of
    /// the others, those within an even share get their value, and the rest share the remainder.
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

    /// Connections granted to `key` with the value `wanted`: at least 1.
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
