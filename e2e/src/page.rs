//! Text of the documentation that tests run as it stands there, so that it stays true.

use crate::error::LabError;

/// docs/high-availability.md.
pub const HIGH_AVAILABILITY: &str = include_str!("../../docs/high-availability.md");

/// The first fenced block of a language (empty for none) that follows some words of a page.
///
/// # Errors
/// When the page has no such words, or no such block behind them.
pub fn block(page: &str, words: &str, language: &str) -> Result<String, LabError> {
    let mut lines = page.split_once(words).map_or("", |(_, after)| after).lines();
    // A line of this kind begins a block and ends one: all blocks are read, in order.
    while let Some(opening) = lines.find_map(|line| line.strip_prefix("```")) {
        let block: String =
            lines.by_ref().take_while(|line| *line != "```").flat_map(|it| [it, "\n"]).collect();
        if opening == language {
            return Ok(block);
        }
    }
    Err(LabError::Wrong(format!("no block of `{language}` after `{words}`")))
}

/// A text in which every one of some words is replaced; each must be there.
///
/// # Errors
/// When one is not: the page has changed, and who replaces it must follow.
pub fn replaced<'a>(
    text: &str,
    words: impl IntoIterator<Item = (&'a str, String)>,
) -> Result<String, LabError> {
    words.into_iter().try_fold(text.to_owned(), |text, (from, to)| {
        if !text.contains(from) {
            return Err(LabError::Wrong(format!("no `{from}` in the page's\n{text}")));
        }
        Ok(text.replace(from, &to))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_behind_the_words() {
        let page = "one\n```sh\na\n```\ntwo\n```toml\nb = 1\n```\n```sh\nc\nd\n```\n";
        assert_eq!(block(page, "one", "sh").ok().as_deref(), Some("a\n"));
        assert_eq!(block(page, "two", "sh").ok().as_deref(), Some("c\nd\n"));
        assert_eq!(block(page, "one", "toml").ok().as_deref(), Some("b = 1\n"));
        assert!(block(page, "three", "sh").is_err() && block(page, "two", "").is_err());
        assert!(replaced("a b", [("c", String::new())]).is_err());
        assert_eq!(replaced("a b", [("a", "c".to_owned())]).ok().as_deref(), Some("c b"));
    }
}
