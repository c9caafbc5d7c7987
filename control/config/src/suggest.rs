//! "Did you mean": the known word nearest to a misspelt one.

/// The longest word that is compared, in characters: the cost grows with the square.
const LONGEST: usize = 40;

/// The candidate nearest to `word`, if it is near enough to have been meant.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    if word.len() > LONGEST {
        return None;
    }
    let allowed = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.chars().collect::<Vec<_>>()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// ` (did you mean "rr"?)`, or nothing when no candidate is near.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!(" (did you mean {near:?}?)"))
}

/// How many characters must be added, removed, changed or swapped with their neighbour to make
/// one word of the other (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, &y) in b.iter().enumerate() {
            let change = above[j] + usize::from(x != y);
            row[j + 1] = change.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_far() {
        let keys = ["scheduler", "service", "sessions", "port", "rr", "neighbour"];
        assert_eq!(nearest("schedular", keys), Some("scheduler"));
        assert_eq!(nearest("Neighbor", keys), Some("neighbour"));
        assert_eq!(nearest("prot", keys), Some("port"));
        assert_eq!(nearest("rrr", keys), Some("rr"));
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest(&"s".repeat(100_000), keys), None);
    }

    #[test]
    fn distance_counts_edits() {
        let of = |a: &str, b: &str| {
            distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
        };
        assert_eq!(of("", ""), 0);
        assert_eq!(of("abc", ""), 3);
        assert_eq!(of("", "abc"), 3);
        assert_eq!(of("kitten", "sitting"), 3);
        assert_eq!(of("ab", "ba"), 1);
    }
}
