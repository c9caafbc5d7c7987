//! Makes secrets unreadable, wherever they come from: a token in a request that a library prints,
//! a line of the configuration that an error quotes.
//!
//! No code of ours logs a secret. This is for the day when some does.

/// Names whose values are secret: followed by `=` or `:`, or by a space for `bearer`.
const NAMES: [&str; 9] = [
    "authorization",
    "bearer",
    "token",
    "password",
    "passwd",
    "secret",
    "private_key",
    "api_key",
    "cookie",
];
const INSTEAD: &str = "[redacted]";
const PEM: &str = "-----BEGIN ";

/// The text with secrets replaced.
pub(super) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((start, end)) = next_secret(rest) {
        out.push_str(&rest[..start]);
        out.push_str(INSTEAD);
        rest = &rest[end..];
    }
    out + rest
}

/// Where the next secret is.
fn next_secret(text: &str) -> Option<(usize, usize)> {
    let lower = text.to_ascii_lowercase();
    let named = NAMES.iter().flat_map(|name| {
        lower.match_indices(name).filter_map(|(at, _)| value(text, at + name.len(), name))
    });
    let pem = text.find(PEM).filter(|at| text[*at..].contains("PRIVATE KEY"));
    let pem = pem.map(|at| (at, text.len()));
    named.chain(pem).min()
}

/// The value behind a name that ends at `at`.
fn value(text: &str, at: usize, name: &str) -> Option<(usize, usize)> {
    let rest = &text[at..];
    // `token`, `"token"`, `tokens`: what is between a name and its value.
    let sign = rest.find(|c: char| !matches!(c, '"' | '\\' | '\'' | 's' | ' '))?;
    let behind = match rest[sign..].chars().next()? {
        '=' | ':' => sign + 1,
        _ if name == "bearer" && rest.starts_with(' ') => 1,
        _ => return None,
    };
    let open = |c: char| matches!(c, '"' | '\\' | '\'' | ' ' | '[' | '{');
    let start = behind + rest[behind..].find(|c| !open(c))?;
    // A scheme is no secret, what follows it is.
    let scheme = ["bearer ", "basic "].into_iter().find(|scheme| {
        rest[start..].get(..scheme.len()).is_some_and(|found| found.eq_ignore_ascii_case(scheme))
    });
    let start = start + scheme.map_or(0, str::len);
    let close =
        |c: char| c.is_whitespace() || matches!(c, '"' | '\\' | '\'' | ',' | '&' | '}' | ']');
    let end = rest[start..].find(close).map_or(rest.len(), |length| start + length);
    let found = &rest[start..end];
    (!found.is_empty() && found != INSTEAD.trim_end_matches(']') && !found.starts_with("[redacted"))
        .then_some((at + start, at + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_every_kind_are_replaced() {
        for text in [
            "authorization: Bearer s3cr3t",
            "headers: {\"authorization\": \"Bearer s3cr3t\", \"host\": \"director\"}",
            "Authorization: Basic s3cr3t and more",
            "got bearer s3cr3t",
            "3 | token = \"s3cr3t\"",
            "3 | tokens = [\"s3cr3t\"]",
            "GET /path?token=s3cr3t&x=1",
            "{\"password\":\"s3cr3t\"}",
            "Error { text: \"token = \\\"s3cr3t\\\"\" }",
            "secret=s3cr3t token=s3cr3t",
            "-----BEGIN PRIVATE KEY-----\ns3cr3t\n-----END PRIVATE KEY-----",
        ] {
            let shown = redact(text);
            assert!(!shown.contains("s3cr3t") && shown.contains(INSTEAD), "{text}: {shown}");
        }
        assert_eq!(redact("x token=s3cr3t&y=1 z"), "x token=[redacted]&y=1 z");
    }

    #[test]
    fn everything_else_stays() {
        for text in [
            "a real server is down service=web real=192.0.2.11 port=80 reason=\"refused\"",
            "the bearer",
            "a token has expired",
            "-----BEGIN CERTIFICATE-----",
            "Größe: 7",
            "token",
            "token=",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
