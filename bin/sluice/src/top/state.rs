//! What somebody at the dashboard has chosen, and what each key does to it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::rates::{Board, VIEWS};

/// View of real servers: the one that a service's line opens.
const REALS: usize = 1;
/// Bounds of the interval in seconds.
const INTERVALS: (f64, f64) = (0.1, 3600.0);

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Go on.
    On,
    /// Look every so many seconds.
    Interval(f64),
    /// End.
    End,
}

/// What is on top of the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    #[default]
    Nothing,
    /// What keys there are.
    Help,
    /// What lies below the chosen row.
    Detail,
    /// The filter is being typed.
    Filter,
}

/// How one view is arranged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The column that it is sorted by; `None`: the usual one.
    pub by: Option<usize>,
    /// The other way around.
    pub reversed: bool,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Which view.
    pub view: usize,
    /// How each is arranged.
    pub orders: [Order; VIEWS.len()],
    /// Words that rows must hold.
    pub filter: String,
    /// The chosen row, by its key; `None`: the first.
    pub chosen: Option<String>,
    /// The first row that is shown, by its place.
    pub first: usize,
    /// What is on top.
    pub over: Over,
    /// The view and the filter that Esc goes back to.
    pub back: Option<(usize, String)>,
    /// Whether it stands still.
    pub held: bool,
    /// Seconds between two looks.
    pub interval: f64,
    /// Why the last look failed.
    pub trouble: Option<String>,
    /// Whether there are colours.
    pub colour: bool,
}

impl State {
    /// At the beginning.
    pub fn new(interval: f64, colour: bool) -> Self {
        Self { interval, colour, ..Self::default() }
    }

    /// The column that the view is sorted by, and whether the other way around.
    pub fn order(&self, board: &Board) -> (usize, bool) {
        let order = &self.orders[self.view];
        let usual = board.grids.get(self.view).map_or(0, |grid| grid.sorted_by);
        (order.by.unwrap_or(usual), order.reversed)
    }

    /// Keys of the rows that are shown, in order.
    pub fn keys<'b>(&self, board: &'b Board) -> Vec<&'b str> {
        let (by, reversed) = self.order(board);
        let grid = board.grids.get(self.view);
        let rows = grid.map(|grid| grid.arranged(&self.filter, by, reversed)).unwrap_or_default();
        rows.iter().map(|row| row.key.as_str()).collect()
    }

    /// The place of the chosen row; the first when it is not there any more.
    pub fn place(&self, keys: &[&str]) -> usize {
        keys.iter().position(|key| Some(*key) == self.chosen.as_deref()).unwrap_or(0)
    }

    /// Does what a key asks for.
    pub fn key(&mut self, key: KeyEvent, board: &Board) -> Step {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Step::End;
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            // Over a slow line Esc and the key behind it arrive together, which is how terminals
            // write Alt. No key here has Alt.
            self.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE), board);
            return self.key(KeyEvent::new(key.code, KeyModifiers::NONE), board);
        }
        match self.over {
            Over::Filter => self.type_filter(key.code),
            Over::Help | Over::Detail => {
                if matches!(key.code, KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?')) {
                    self.over = Over::Nothing;
                }
            }
            Over::Nothing => return self.command(key.code, board),
        }
        Step::On
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.over = Over::Nothing,
            KeyCode::Esc => {
                self.filter.clear();
                self.over = Over::Nothing;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    fn command(&mut self, key: KeyCode, board: &Board) -> Step {
        match key {
            KeyCode::Char('q') => return Step::End,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.over = Over::Help,
            KeyCode::Char('/') => self.over = Over::Filter,
            KeyCode::Char(' ') => self.held = !self.held,
            KeyCode::Char('r') => {
                let order = &mut self.orders[self.view];
                order.reversed = !order.reversed;
            }
            KeyCode::Char('s') => self.sort(board, 1),
            KeyCode::Char('S') => self.sort(board, -1),
            KeyCode::Char('+') => return self.look_every(self.interval * 2.0),
            KeyCode::Char('-') => return self.look_every(self.interval / 2.0),
            KeyCode::Char(digit @ '1'..='9') => {
                let view = usize::from(digit as u8 - b'1');
                if view < VIEWS.len() {
                    self.show(view);
                }
            }
            KeyCode::Tab | KeyCode::Right => self.show((self.view + 1) % VIEWS.len()),
            KeyCode::BackTab | KeyCode::Left => {
                self.show((self.view + VIEWS.len() - 1) % VIEWS.len());
            }
            KeyCode::Enter => self.open(board),
            KeyCode::Esc => self.close(),
            KeyCode::Up | KeyCode::Char('k') => self.step(board, -1),
            KeyCode::Down | KeyCode::Char('j') => self.step(board, 1),
            KeyCode::PageUp => self.step(board, -10),
            KeyCode::PageDown => self.step(board, 10),
            KeyCode::Home | KeyCode::Char('g') => self.step(board, isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(board, isize::MAX),
            _ => {}
        }
        Step::On
    }

    fn show(&mut self, view: usize) {
        if let Some((_, filter)) = self.back.take() {
            self.filter = filter;
        }
        (self.view, self.chosen, self.first) = (view, None, 0);
    }

    fn sort(&mut self, board: &Board, by: isize) {
        let columns = board.grids.get(self.view).map_or(0, |grid| grid.columns.len()).max(1);
        let (now, _) = self.order(board);
        let next = now.checked_add_signed(by).map_or(columns - 1, |next| next % columns);
        self.orders[self.view] = Order { by: Some(next), reversed: false };
    }

    fn look_every(&mut self, seconds: f64) -> Step {
        self.interval = seconds.clamp(INTERVALS.0, INTERVALS.1);
        Step::Interval(self.interval)
    }

    fn step(&mut self, board: &Board, by: isize) {
        let keys = self.keys(board);
        let place = self.place(&keys).saturating_add_signed(by);
        self.chosen = keys.get(place.min(keys.len().saturating_sub(1))).map(|&key| key.to_owned());
    }

    /// A service opens its real servers, all else what is known of it.
    fn open(&mut self, board: &Board) {
        let keys = self.keys(board);
        let Some(key) = keys.get(self.place(&keys)).map(|&key| key.to_owned()) else { return };
        let of = format!("{key} ");
        let reals = board.grids.get(REALS).map(|grid| &grid.rows);
        let has = reals.is_some_and(|rows| rows.iter().any(|row| row.key.starts_with(&of)));
        if self.view == 0 && has {
            let back = (self.view, self.filter.clone());
            self.show(REALS);
            self.back = Some(back);
            self.filter = key;
        } else {
            self.chosen = Some(key);
            self.over = Over::Detail;
        }
    }

    fn close(&mut self) {
        match self.back.take() {
            Some((view, filter)) => {
                let chosen = std::mem::replace(&mut self.filter, filter);
                (self.view, self.chosen, self.first) = (view, Some(chosen), 0);
            }
            None => self.filter.clear(),
        }
    }
}
