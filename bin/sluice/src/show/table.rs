//! Tables: titles, aligned columns, two spaces between them, no lines.
//!
//! The last column of a table may flow: on a terminal its text is broken into lines that fit.
//! Elsewhere each row is one line, so that `grep` and `awk` see whole rows.

use anstyle::Style;

use super::{TITLE, styled};

const GAP: &str = "  ";
/// A flowing column is not made narrower than this.
const NARROWEST: usize = 24;
/// A column of names is not made narrower than this.
const SHORTEST: usize = 20;
/// Stands for what was left out.
const CUT: char = '…';

/// How a column's text is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
    /// Words whose end may be left out where there is no room, such as names; nothing that
    /// somebody copies, such as addresses.
    Name,
}

/// One cell's text and how it is shown.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// The same text in another style.
    pub fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }

    /// The same text in another style if that holds.
    pub fn style_if(self, holds: bool, style: Style) -> Self {
        if holds { self.style(style) } else { self }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), style: Style::new() }
    }
}

/// Rows under titles.
#[derive(Clone, Debug)]
pub struct Table<const N: usize> {
    columns: [(&'static str, Align); N],
    /// Columns that are left out.
    out: [bool; N],
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    /// A table without rows.
    pub fn new(columns: [(&'static str, Align); N]) -> Self {
        Self { columns, out: [false; N], rows: Vec::new() }
    }

    /// The same without the column of this title, if there is nothing to say in it.
    #[must_use]
    pub fn without(mut self, title: &str, nothing: bool) -> Self {
        for (out, (column, _)) in self.out.iter_mut().zip(&self.columns) {
            *out |= nothing && *column == title;
        }
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells);
    }

    /// The text with names cut so that lines have at most `width` columns, as far as that goes.
    pub fn within(&self, width: Option<usize>) -> String {
        let Some(width) = width else { return self.text() };
        let mut widths = self.widths();
        let all = |widths: &[usize; N]| (self.beginning(widths, N)).saturating_sub(GAP.len());
        let names = |at: &usize| self.columns[*at].1 == Align::Name && !self.out[*at];
        while all(&widths) > width {
            let widest = (0..N).filter(names).max_by_key(|&at| widths[at]);
            match widest.filter(|&at| widths[at] > SHORTEST) {
                Some(at) => widths[at] -= 1,
                None => break,
            }
        }
        let mut cut = self.clone();
        for row in &mut cut.rows {
            for (at, cell) in row.iter_mut().enumerate() {
                if length(&cell.text) > widths[at] {
                    cell.text = shortened(&cell.text, widths[at]);
                }
            }
        }
        cut.text()
    }

    /// The text, each line ended.
    pub fn text(&self) -> String {
        self.flowing(None)
    }

    /// The text with the last column broken so that lines have at most `width` columns.
    pub fn flowing(&self, width: Option<usize>) -> String {
        let widths = self.widths();
        let before = self.beginning(&widths, N - 1);
        let room = width.map(|width| width.saturating_sub(before).max(NARROWEST));
        let titles = self.columns.map(|(title, _)| Cell::from(title).style(TITLE));
        let mut out = String::new();
        self.line(&mut out, &widths, &titles, None);
        for row in &self.rows {
            self.line(&mut out, &widths, row, room);
        }
        out
    }

    fn widths(&self) -> [usize; N] {
        std::array::from_fn(|at| {
            let cells = self.rows.iter().map(|row| length(&row[at].text));
            cells.chain([length(self.columns[at].0)]).max().unwrap_or(0)
        })
    }

    fn line(&self, out: &mut String, widths: &[usize; N], cells: &[Cell; N], room: Option<usize>) {
        let mut line = String::new();
        // Spaces are only written before a cell that has text: lines do not end in spaces.
        let mut owed = 0;
        for (at, cell) in cells.iter().enumerate().filter(|(at, _)| !self.out[*at]) {
            let indent = self.beginning(widths, at);
            if indent > 0 {
                owed += GAP.len();
            }
            let pad = widths[at].saturating_sub(length(&cell.text));
            let (left, right) = match self.columns[at].1 {
                Align::Left | Align::Name => (0, pad),
                Align::Right => (pad, 0),
            };
            if cell.text.is_empty() {
                owed += pad;
                continue;
            }
            let indent = indent + left;
            let text = match room.filter(|_| at + 1 == N) {
                Some(room) => broken(&cell.text, room).join(&format!("\n{}", " ".repeat(indent))),
                None => cell.text.clone(),
            };
            line.push_str(&" ".repeat(owed + left));
            line.push_str(&match cell.style == Style::new() {
                true => text,
                false => styled(cell.style, &text),
            });
            owed = right;
        }
        out.push_str(&line);
        out.push('\n');
    }

    /// Where a column begins.
    fn beginning(&self, widths: &[usize], column: usize) -> usize {
        let before = widths.iter().zip(&self.out).take(column);
        before.filter(|(_, out)| !**out).map(|(width, _)| width + GAP.len()).sum()
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// The beginning of a text, in at most `room` columns.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if length(text) <= room {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(room.saturating_sub(1)).collect();
    short.push(CUT);
    short
}

/// Breaks text at spaces into lines of at most `room` characters; a longer word has its own line.
pub(crate) fn broken(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if length(line) + 1 + length(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use Align::{Left, Right};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new([("NAME", Left), ("N", Right), ("WORD", Left)]);
        table.row(["a".into(), "1,000".into(), "x".into()]);
        table.row(["longer".into(), "2".into(), "".into()]);
        table.row(["é".into(), "".into(), "y".into()]);
        let text = anstream::adapter::strip_str(&table.text()).to_string();
        assert_eq!(
            text,
            "NAME        N  WORD\na       1,000  x\nlonger      2\né              y\n"
        );
    }

    #[test]
    fn a_column_with_nothing_to_say_is_left_out() {
        for (nothing, wanted) in [(true, "A  C\n1  3\n"), (false, "A  B  C\n1  2  3\n")] {
            let mut table = Table::new([("A", Left), ("B", Align::Name), ("C", Right)]);
            table.row(["1".into(), "2".into(), "3".into()]);
            let text = table.without("B", nothing).within(Some(80));
            assert_eq!(anstream::adapter::strip_str(&text).to_string(), wanted);
        }
    }

    #[test]
    fn the_last_column_flows() {
        let mut table = Table::new([("N", Right), ("MEANING", Left)]);
        let text = "one two three four five six seven eight";
        table.row(["10".into(), text.into()]);
        let flowing = table.flowing(Some(30));
        let lines: Vec<_> = flowing.lines().skip(1).collect();
        assert_eq!(lines, ["10  one two three four five", "    six seven eight"]);
        assert_eq!(table.text().lines().nth(1), Some(&*format!("10  {text}")));
        assert!(table.flowing(Some(1)).lines().skip(1).all(|line| line.len() <= 4 + NARROWEST));
    }

    #[test]
    fn names_are_cut_and_addresses_are_not() {
        let mut table = Table::new([("NAME", Align::Name), ("ADDRESS", Left), ("N", Right)]);
        let (name, address) = ("a-name-of-thirty-columns-so-it-is", "2001:db8:1:2:3:4:5:6");
        table.row([name.into(), address.into(), "7".into()]);
        let row = |width| table.within(width).lines().nth(1).map(str::to_owned).unwrap_or_default();
        assert_eq!(row(None), format!("{name}  {address}  7"));
        assert_eq!(row(Some(50)), format!("a-name-of-thirty-columns…  {address}  7"));
        let narrow = row(Some(10));
        assert_eq!(narrow, format!("a-name-of-thirty-co…  {address}  7"), "no further");
        assert_eq!(table.within(Some(200)), table.text());
    }

    #[test]
    fn styles_take_no_room() {
        let mut table = Table::new([("A", Left), ("B", Left)]);
        table.row([Cell::from("down").style(super::super::BAD), "x".into()]);
        table.row([Cell::from("up").style_if(false, super::super::BAD), "y".into()]);
        let text = table.text();
        assert!(text.contains('\u{1b}'));
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(plain, "A     B\ndown  x\nup    y\n");
    }
}
