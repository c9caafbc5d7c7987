//! How much memory the process really has: resident pages of every size.

use crate::error::BenchError;

/// Bytes of resident memory, reserved huge pages that are in use included.
pub fn resident_bytes() -> Result<u64, BenchError> {
    let path = "/proc/self/smaps_rollup";
    let text = std::fs::read_to_string(path)
        .map_err(|source| BenchError::Machine { what: path.into(), source })?;
    Ok(sum_of(&text))
}

/// Huge pages are not part of what the kernel calls `Rss`.
fn sum_of(rollup: &str) -> u64 {
    let lines = rollup.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let counts = ["Rss", "Private_Hugetlb", "Shared_Hugetlb"].contains(&name);
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
        assert_eq!(sum_of(text), 3048 * 1024);
    }

    #[test]
    fn touched_memory_shows() {
        let mut region = Region::<u64>::new(8 << 20, PagePolicy::Ordinary).unwrap();
        region.fill(1);
        // Other tests of this process come and go, so nothing can be said of less or more.
        let resident = resident_bytes().unwrap();
        assert!(resident >= 64 << 20, "{resident} of 64 MiB and more");
    }
}
