//! A table that can be sorted, filtered and fitted into a width: what every view of `top` is.

use std::cmp::Ordering;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its title.
    pub title: &'static str,
    /// Whether it holds numbers, which stand to the right.
    pub number: bool,
}

/// How much attention a cell deserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// None.
    #[default]
    Plain,
    /// Some.
    Note,
    /// All.
    Bad,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// What is shown.
    pub text: String,
    /// What it is sorted by, if it is a number.
    pub value: Option<f64>,
    /// How it is shown.
    pub tone: Tone,
}

impl Cell {
    /// Words.
    pub fn word(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number by its text.
    pub fn number(value: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), value: Some(value), tone: Tone::Plain }
    }

    /// A rate; unknown ones are shown as such and are the least.
    pub fn rate(value: Option<f64>) -> Self {
        Self::number(value.unwrap_or(-1.0), value.map_or("-".to_owned(), short))
    }

    /// In another tone, if that holds.
    #[must_use]
    pub fn tone_if(self, holds: bool, tone: Tone) -> Self {
        if holds { Self { tone, ..self } } else { self }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is about; the same from look to look.
    pub key: String,
    /// As many as there are columns.
    pub cells: Vec<Cell>,
}

/// Rows under titles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// Columns, the most important first.
    pub columns: Vec<Column>,
    /// Rows.
    pub rows: Vec<Row>,
    /// The column that it is sorted by unless somebody says otherwise.
    pub sorted_by: usize,
}

impl Grid {
    /// A grid without rows. A title that begins with `>` is one of numbers, one with `*` the one
    /// that is sorted by.
    pub fn new(titles: &[&'static str]) -> Self {
        let column = |title: &&'static str| {
            let title = title.trim_start_matches('*');
            let number = title.starts_with('>');
            Column { title: title.trim_start_matches('>'), number }
        };
        let sorted_by = titles.iter().position(|title| title.starts_with('*')).unwrap_or(0);
        Self { columns: titles.iter().map(column).collect(), rows: Vec::new(), sorted_by }
    }

    /// Adds a row.
    pub fn row(&mut self, key: impl Into<String>, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(Row { key: key.into(), cells });
    }

    /// The rows that hold all words of `filter`, sorted: numbers from the greatest, words from A,
    /// or the other way around.
    pub fn arranged(&self, filter: &str, by: usize, reversed: bool) -> Vec<&Row> {
        let filter = filter.to_lowercase();
        let holds = |row: &&Row| {
            let mut words = filter.split_whitespace();
            words.all(|word| row.cells.iter().any(|it| it.text.to_lowercase().contains(word)))
        };
        let mut rows: Vec<&Row> = self.rows.iter().filter(holds).collect();
        let order = |one: &&Row, other: &&Row| {
            let (Some(one), Some(other)) = (one.cells.get(by), other.cells.get(by)) else {
                return Ordering::Equal;
            };
            let order = match (one.value, other.value) {
                (Some(one), Some(other)) => other.total_cmp(&one),
                _ => one.text.cmp(&other.text),
            };
            if reversed { order.reverse() } else { order }
        };
        rows.sort_by(order);
        rows
    }

    /// Widths of the columns that fit into `width`, one blank between two: the first column gives
    /// way down to 12, then the last columns go.
    pub fn widths(&self, rows: &[&Row], width: usize) -> Vec<usize> {
        const LEAST: usize = 12;
        let of = |(at, column): (usize, &Column)| {
            let cells = rows.iter().map(|row| row.cells[at].text.chars().count());
            cells.chain([column.title.len()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(of).collect();
        let all = |widths: &[usize]| widths.iter().sum::<usize>() + widths.len().saturating_sub(1);
        while all(&widths) > width && widths.len() > 1 {
            let over = all(&widths) - width;
            let last = widths.len() - 1;
            let (number, room) = (self.columns[last].number, widths[last]);
            if widths[0] > LEAST {
                widths[0] = widths[0].saturating_sub(over).max(LEAST);
            } else if !number && room > LEAST + over {
                // Words at the end may be cut: there is more of them in the detail.
                widths[last] -= over;
            } else {
                widths.pop();
            }
        }
        widths
    }
}

/// A number in a few columns: `0`, `7.5`, `999`, `1.23k`, `45.6M`.
pub fn short(value: f64) -> String {
    let mut value = value.max(0.0);
    for unit in ["", "k", "M", "G", "T", "P"] {
        if value < 999.5 || unit == "P" {
            let digits = match value {
                _ if value == value.round() && unit.is_empty() => 0,
                _ if value < 9.995 => 2,
                _ if value < 99.95 => 1,
                _ => 0,
            };
            let digits = if unit.is_empty() { digits.min(1) } else { digits };
            return format!("{value:.digits$}{unit}");
        }
        value /= 1000.0;
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.25, 7.5, 999.0, 999.6, 1234.0, 45_600.0, 999_400.0, 1e6, 1.5e15];
        let expected = ["0", "0.2", "7.5", "999", "1.00k", "1.23k", "45.6k", "999k", "1.00M"];
        assert_eq!(all.map(short)[..9], expected);
        assert_eq!(short(1.5e15), "1.50P");
        assert!(all.iter().all(|&it| short(it).len() <= 5));
    }

    fn grid() -> Grid {
        let mut grid = Grid::new(&["NAME", "*>N", "WORDS"]);
        for (name, number) in [("web", 2.0), ("mail-of-a-very-long-name", 30.0), ("dns", -1.0)] {
            let words = Cell::word("some words that are of no use to anybody");
            grid.row(name, vec![Cell::word(name), Cell::number(number, short(number)), words]);
        }
        grid
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        let grid = grid();
        let names = |filter: &str, by, reversed| -> Vec<String> {
            grid.arranged(filter, by, reversed).iter().map(|row| row.key[..3].to_owned()).collect()
        };
        assert_eq!(grid.sorted_by, 1);
        assert_eq!(names("", 1, false), ["mai", "web", "dns"]);
        assert_eq!(names("", 1, true), ["dns", "web", "mai"]);
        assert_eq!(names("", 0, false), ["dns", "mai", "web"]);
        assert_eq!(names("WEB no", 0, false), ["web"]);
        assert!(names("x", 0, false).is_empty());
    }

    #[test]
    fn columns_are_made_to_fit() {
        let grid = grid();
        let rows = grid.arranged("", 0, false);
        for width in 1..100 {
            let widths = grid.widths(&rows, width);
            let all = widths.iter().sum::<usize>() + widths.len() - 1;
            assert!(all <= width || widths.len() == 1, "{width}: {widths:?}");
        }
        assert_eq!(grid.widths(&rows, 100), [24, 2, 40]);
        assert_eq!(grid.widths(&rows, 60), [16, 2, 40]);
        assert_eq!(grid.widths(&rows, 40), [12, 2, 24]);
        assert_eq!(grid.widths(&rows, 20), [12, 2]);
    }
}
