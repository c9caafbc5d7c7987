//! Parameters: `$NAME=VALUE`, `$NAME` and `${NAME}`, `~SEQ(…)` and `~LST(…)`.

use std::collections::BTreeMap;

/// The most times that a line is repeated.
const MOST_ROUNDS: usize = 65_536;

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// The length of the name that a text begins with.
fn name_len(text: &str) -> usize {
    match text.starts_with(|it: char| it.is_ascii_digit()) {
        true => 0,
        false => text.find(|it| !is_of_name(it)).unwrap_or(text.len()),
    }
}

/// A definition's name and value.
pub fn definition(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('$')?;
    let len = name_len(text);
    let value = text.get(len..)?.strip_prefix('=')?;
    (len > 0).then(|| (&text[..len], value.trim()))
}

/// A line with its parameters put in, cut at `longest`; `None` when there are none.
pub fn substituted(
    text: &str,
    parameters: &BTreeMap<String, String>,
    longest: usize,
) -> Option<String> {
    let mut out = String::new();
    let (mut left, mut found) = (text, false);
    while let Some(at) = left.find('$') {
        let (before, rest) = left.split_at(at);
        out.push_str(before);
        let used = used(rest).and_then(|(name, len)| Some((parameters.get(name)?, len)));
        match used {
            Some((value, len)) if out.len() + value.len() <= longest => {
                out.push_str(value);
                found = true;
                left = &rest[len..];
            }
            _ => {
                out.push('$');
                left = &rest[1..];
            }
        }
    }
    out.push_str(left);
    found.then_some(out)
}

/// The name that a text beginning with `$` uses, and how much of the text that is.
fn used(text: &str) -> Option<(&str, usize)> {
    if let Some(rest) = text.strip_prefix("${") {
        let len = name_len(rest);
        return rest[len..].starts_with('}').then(|| (&rest[..len], len + 3));
    }
    let rest = text.strip_prefix('$')?;
    let len = name_len(rest);
    let ends = rest[len..].chars().next().is_none_or(char::is_whitespace);
    (len > 0 && ends).then(|| (&rest[..len], len + 1))
}

/// Values for parameters in each round.
type Rounds = Vec<Vec<(String, String)>>;

/// The rounds of a line that begins with `~SEQ(…)` or `~LST(…)`, and what is repeated.
pub fn repeats(text: &str) -> Option<(Rounds, &str)> {
    let text = text.strip_prefix('~')?;
    let (head, rest) = text.split_once('(')?;
    let (inside, rest) = rest.split_once(')')?;
    let rounds = match head.trim() {
        "SEQ" => sequence(inside, false)?,
        "SEQx" => sequence(inside, true)?,
        "LST" => list(inside)?,
        _ => return None,
    };
    Some((rounds, rest))
}

fn sequence(inside: &str, hexadecimal: bool) -> Option<Rounds> {
    let mut parts = inside.split(',').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?.to_owned();
    let numbers: Vec<i64> = parts.map(number).collect::<Option<_>>()?;
    let toward = |start: i64, end: i64| if end >= start { 1 } else { -1 };
    let (start, step, end) = match numbers[..] {
        [end] => {
            let start = if end > 0 { 1 } else { -1 };
            (start, toward(start, end), end)
        }
        [start, end] => (start, toward(start, end), end),
        [start, step, end] if step != 0 => (start, step, end),
        _ => return None,
    };
    let mut rounds = Vec::new();
    let mut at = start;
    while rounds.len() < MOST_ROUNDS && if step > 0 { at <= end } else { at >= end } {
        let value = if hexadecimal { format!("{at:x}") } else { at.to_string() };
        rounds.push(vec![(name.clone(), value)]);
        at = at.checked_add(step)?;
    }
    Some(rounds)
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn list(inside: &str) -> Option<Rounds> {
    let mut groups = groups(inside).into_iter();
    let names = groups.next().filter(|names| names.iter().all(|name| !name.is_empty()))?;
    let round = |values: Vec<String>| names.iter().cloned().zip(values).collect();
    Some(groups.map(round).take(MOST_ROUNDS).collect())
}

/// `a, b` as two groups of one, `{a, b}, {c, d}` as two groups of two.
fn groups(text: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut left = text.trim();
    while !left.is_empty() {
        let (group, rest) = match left.strip_prefix('{') {
            Some(inner) => {
                let (group, rest) = inner.split_once('}').unwrap_or((inner, ""));
                let words = group.split(',').map(|word| word.trim().to_owned()).collect();
                (words, rest.trim_start().strip_prefix(',').unwrap_or(""))
            }
            None => {
                let (word, rest) = left.split_once(',').unwrap_or((left, ""));
                (vec![word.trim().to_owned()], rest)
            }
        };
        all.push(group);
        left = rest.trim();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        let (rounds, _) = repeats(text).unwrap_or_default();
        rounds.into_iter().flatten().map(|(_, value)| value).collect()
    }

    #[test]
    fn sequences_are_those_of_the_manual() {
        assert_eq!(values("~SEQ(S, 0, 3) x"), ["0", "1", "2", "3"]);
        assert_eq!(values("~SEQ(S, 3) x"), ["1", "2", "3"]);
        assert_eq!(values("~SEQ(S, -2) x"), ["-1", "-2"]);
        assert_eq!(values("~SEQx(S, 0x90, 0x10, 0xc0) x"), ["90", "a0", "b0", "c0"]);
        assert_eq!(values("~LST(S, a, b) x"), ["a", "b"]);
        let (rounds, rest) = repeats("~LST({A, B}, {10,1}, {20,4}) y").expect("a list");
        let pair =
            |a: &str, b: &str| vec![("A".to_owned(), a.to_owned()), ("B".to_owned(), b.to_owned())];
        assert_eq!((rounds, rest), (vec![pair("10", "1"), pair("20", "4")], " y"));
        assert!(values("~SEQ(S, 1, 0, 3)").is_empty(), "a step of nothing never ends");
        assert_eq!(values("~SEQ(S, 1, 999999999)").len(), MOST_ROUNDS);
    }

    #[test]
    fn parameters_are_put_in_where_they_are_known() {
        let known = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        let with = |text: &str| substituted(text, &known, 100);
        assert_eq!(with("x $A y").as_deref(), Some("x 1 y"));
        assert_eq!(with("x${A}y$A").as_deref(), Some("x1y1"));
        assert_eq!(with("$A.5"), None, "a name without braces ends at a blank");
        assert_eq!(with("${B} $B $ ${"), None);
        assert_eq!(definition("$A=b c"), Some(("A", "b c")));
        assert_eq!(definition("$A =b"), None);
    }
}
