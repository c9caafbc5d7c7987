//! Lines as statements: words, and a block of further statements.

use crate::keepalived::lines::Line;
use crate::note::{Place, Report};

/// Blocks may be nested so deep; keepalived itself needs five.
const DEEPEST: usize = 64;

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Where it begins.
    pub place: Place,
    /// Its words, without quotes.
    pub words: Vec<String>,
    /// What is between its braces.
    pub block: Option<Vec<Statement>>,
    /// Its last line.
    pub end: usize,
}

impl Statement {
    /// A word, from 0; empty where there is none.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The words behind the first, as they would be written.
    pub fn rest(&self) -> String {
        self.words.get(1..).unwrap_or_default().join(" ")
    }

    /// What is between its braces.
    pub fn inside(&self) -> &[Statement] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// A part of a line.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
}

/// Makes statements of lines. Braces that do not fit are spoken of.
pub fn build(lines: Vec<Line>, report: &mut Report) -> Vec<Statement> {
    // The statements of each open block; the last of the one above is the block's own.
    let mut open: Vec<Vec<Statement>> = vec![Vec::new()];
    let mut last = None;
    for Line { place, text } in lines {
        let mut words = Vec::new();
        for token in tokens(&text) {
            match token {
                Token::Word(word) => words.push(word),
                Token::Open => {
                    put(&mut open, &place, std::mem::take(&mut words));
                    begin(&mut open, &place, report);
                }
                Token::Close => {
                    put(&mut open, &place, std::mem::take(&mut words));
                    close(&mut open, &place, report);
                }
            }
        }
        put(&mut open, &place, words);
        last = Some(place);
    }
    if let Some(place) = last.filter(|_| open.len() > 1) {
        let means = "a block is not closed at the end of the file";
        report.lost(&place, "}", means, "close it; what is in it was converted all the same");
        while open.len() > 1 {
            close(&mut open, &place, report);
        }
    }
    open.pop().unwrap_or_default()
}

/// Adds a statement, if there are words.
fn put(open: &mut [Vec<Statement>], place: &Place, words: Vec<String>) {
    if let (false, Some(around)) = (words.is_empty(), open.last_mut()) {
        around.push(Statement { place: place.clone(), words, block: None, end: place.line });
    }
}

fn begin(open: &mut Vec<Vec<Statement>>, place: &Place, report: &mut Report) {
    report.done(place);
    if open.len() >= DEEPEST {
        report.lost(place, "{", "blocks are nested too deep", "what is in it counts as outside");
        return;
    }
    // A brace without a word before it, or a second one behind another block.
    if let Some(around) = open.last_mut()
        && around.last().is_none_or(|statement| statement.block.is_some())
    {
        let words = vec!["{".to_owned()];
        around.push(Statement { place: place.clone(), words, block: None, end: place.line });
    }
    open.push(Vec::new());
}

fn close(open: &mut Vec<Vec<Statement>>, place: &Place, report: &mut Report) {
    report.done(place);
    if open.len() == 1 {
        report.lost(place, "}", "it closes no block", "take it out");
        return;
    }
    let block = open.pop();
    if let Some(statement) = open.last_mut().and_then(|around| around.last_mut()) {
        statement.block = block;
        if statement.place.file == place.file {
            statement.end = place.line;
        }
    }
}

/// Splits a line. Between double quotes everything is one word, and a backslash takes the special
/// meaning of what follows, or gives it one.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    let (mut is_word, mut quoted) = (false, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => (quoted, is_word) = (!quoted, true),
            '\\' if quoted => match characters.next() {
                Some(escaped) => word.push(unescaped(escaped)),
                None => word.push('\\'),
            },
            '{' | '}' if !quoted && !is_word => {
                tokens.push(if character == '{' { Token::Open } else { Token::Close });
            }
            // `url{` is a word and a brace; a brace within a word is the word's.
            '{' if !quoted && characters.peek().is_none_or(|next| next.is_whitespace()) => {
                tokens.push(Token::Word(std::mem::take(&mut word)));
                tokens.push(Token::Open);
                is_word = false;
            }
            blank if blank.is_whitespace() && !quoted => {
                if is_word {
                    tokens.push(Token::Word(std::mem::take(&mut word)));
                    is_word = false;
                }
            }
            other => {
                word.push(other);
                is_word = true;
            }
        }
    }
    if is_word {
        tokens.push(Token::Word(word));
    }
    tokens
}

fn unescaped(character: char) -> char {
    match character {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let words = |token: Token| match token {
            Token::Word(word) => format!("<{word}>"),
            Token::Open => "{".to_owned(),
            Token::Close => "}".to_owned(),
        };
        tokens(text).into_iter().map(words).collect()
    }

    #[test]
    fn lines_are_words_and_braces() {
        assert_eq!(shown("virtual_server 192.0.2.1 80 {"), "<virtual_server><192.0.2.1><80>{");
        assert_eq!(shown("url { path / }"), "<url>{<path></>}");
        assert_eq!(shown("url{"), "<url>{");
        assert_eq!(shown("regex a{2}b"), "<regex><a{2}b>");
        assert_eq!(shown(r#"misc_path "/bin/x a \"b\" {c}""#), r#"<misc_path></bin/x a "b" {c}>"#);
        assert_eq!(shown("path \"\""), "<path><>");
    }
}
