//! How much memory the process really has: resident pages of every size.

use crate::error::BenchError;

/// Resident memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// All of it, reserved huge pages that are in use included.
    pub bytes: u64,
    /// Of them in huge pages, reserved ones and such as the kernel merged.
    pub huge_bytes: u64,
}

/// Resident memory of the process.
pub fn resident() -> Result<Resident, BenchError> {
    let path = "/proc/self/smaps_rollup";
    let text = std::fs::read_to_string(path)
        .map_err(|source| BenchError::Machine { what: path.into(), source })?;
    Ok(read(&text))
}

fn read(rollup: &str) -> Resident {
    // Reserved huge pages are not part of what the kernel calls `Rss`, merged ones are.
    let reserved = ["Private_Hugetlb", "Shared_Hugetlb"];
    let [rss, merged] = ["Rss", "AnonHugePages"].map(|name| sum_of(rollup, &[name]));
    let reserved = sum_of(rollup, &reserved);
    Resident { bytes: rss + reserved, huge_bytes: merged + reserved }
}

fn sum_of(rollup: &str, names: &[&str]) -> u64 {
    let lines = rollup.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let counts = names.contains(&name);
        let kilobytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        counts.then_some(kilobytes * 1024)
    });
    lines.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_table::{PagePolicy, Region};

    #[test]
    fn the_kernels_words_are_understood() {
        let text = "00400000-7ffd000 ---p 00000000 00:00 0 [rollup]\n\
                    Rss:                1000 kB\nPss:  900 kB\nAnonHugePages:  400 kB\n\
                    Shared_Hugetlb:        0 kB\nPrivate_Hugetlb:    2048 kB\n";
        let expected = Resident { bytes: 3048 * 1024, huge_bytes: 2448 * 1024 };
        assert_eq!(read(text), expected);
    }

    #[test]
    fn touched_memory_shows() {
        let mut region = Region::<u64>::new(8 << 20, PagePolicy::Ordinary).unwrap();
        region.fill(1);
        // Other tests of this process come and go, so nothing can be said of less or more.
        let resident = resident().unwrap().bytes;
        assert!(resident >= 64 << 20, "{resident} of 64 MiB and more");
    }
}
