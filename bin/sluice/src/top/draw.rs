//! The dashboard on a screen of any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::grid::{Grid, Row, Tone};
use super::rates::{Board, VIEWS};
use super::state::{Over, State};

const HELP: &[(&str, &str)] = &[
    ("Tab, 1 to 6", "next view, or that view"),
    ("Up, Down, PgUp, PgDn", "choose a line"),
    ("Enter", "a service's real servers; what is known of a line"),
    ("Esc", "back"),
    ("s, S", "sort by the next, the previous column"),
    ("r", "sort the other way around"),
    ("/", "show lines with these words only; Esc ends it"),
    ("space", "hold still, go on"),
    ("+, -", "look half as often, twice as often"),
    ("q, Ctrl-C", "end"),
];

/// Draws all of it; `state` learns which rows fit.
pub fn screen(frame: &mut Frame<'_>, state: &mut State, board: &Board) {
    let parts = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [head, tabs, body, foot] = parts.areas(frame.area());
    frame.render_widget(Paragraph::new(head_of(state, board)), head);
    frame.render_widget(Paragraph::new(tabs_of(state)), tabs);
    if let Some(grid) = board.grids.get(state.view) {
        let lines = rows(state, board, grid, body);
        frame.render_widget(Paragraph::new(lines), body);
    }
    frame.render_widget(Paragraph::new(foot_of(state)), foot);
    match state.over {
        Over::Help => {
            let lines = HELP.iter().map(|(key, what)| ((*key).to_owned(), (*what).to_owned()));
            over(frame, "Keys", &lines.collect::<Vec<_>>());
        }
        Over::Detail => {
            let chosen = state.chosen.clone().unwrap_or_default();
            over(frame, &chosen, &board.detail(state.view, &chosen));
        }
        Over::Nothing | Over::Filter => {}
    }
}

fn head_of<'b>(state: &State, board: &'b Board) -> Vec<Line<'b>> {
    let held = if state.held { "  held" } else { "" };
    let first = match &state.trouble {
        Some(trouble) => Line::styled(format!("no answer: {trouble}"), style(state, Tone::Bad)),
        None => Line::styled(
            format!("{}  every {} s{held}", board.title, state.interval),
            Modifier::BOLD,
        ),
    };
    vec![first, Line::raw(&board.summary), Line::raw(&board.sessions)]
}

fn tabs_of(state: &State) -> Line<'static> {
    let tab = |(at, name): (usize, &&'static str)| {
        let chosen = at == state.view;
        let style = if chosen { Modifier::REVERSED | Modifier::BOLD } else { Modifier::empty() };
        [Span::styled(format!(" {} {name} ", at + 1), style), Span::raw(" ")]
    };
    Line::from(VIEWS.iter().enumerate().flat_map(tab).collect::<Vec<_>>())
}

fn foot_of(state: &State) -> Line<'_> {
    match (&state.over, state.filter.is_empty()) {
        (Over::Filter, _) => Line::raw(format!("/{}_", state.filter)),
        (_, false) => Line::raw(format!("only lines with: {}  (Esc: all)", state.filter)),
        (_, true) => Line::raw("? keys  Tab view  s sort  / filter  Enter open  q end"),
    }
}

/// Titles and as many rows as fit, the chosen one among them.
fn rows<'b>(state: &mut State, board: &Board, grid: &'b Grid, area: Rect) -> Vec<Line<'b>> {
    let (by, reversed) = state.order(board);
    let all = grid.arranged(&state.filter, by, reversed);
    if all.is_empty() {
        let none = if state.filter.is_empty() { "nothing yet" } else { "no line has these words" };
        return vec![Line::raw(none)];
    }
    let keys: Vec<&str> = all.iter().map(|row| row.key.as_str()).collect();
    let (place, room) = (state.place(&keys), usize::from(area.height).saturating_sub(1).max(1));
    // The window moves only as far as it must.
    state.first = state.first.min(place).max((place + 1).saturating_sub(room));
    state.first = state.first.min(all.len().saturating_sub(room));
    let widths = grid.widths(&all, usize::from(area.width));
    let mut lines = vec![titles(state, grid, &widths, by)];
    for (at, row) in all.iter().enumerate().skip(state.first).take(room) {
        lines.push(line(state, grid, row, &widths, at == place));
    }
    lines
}

fn titles<'b>(_: &State, grid: &'b Grid, widths: &[usize], by: usize) -> Line<'b> {
    let cell = |(at, width): (usize, &usize)| {
        let column = grid.columns[at];
        let style = if at == by { Modifier::UNDERLINED | Modifier::BOLD } else { Modifier::BOLD };
        placed(column.title, *width, column.number, at, style.into())
    };
    Line::from(widths.iter().enumerate().flat_map(cell).collect::<Vec<_>>())
}

fn line<'b>(
    state: &State,
    grid: &'b Grid,
    row: &'b Row,
    widths: &[usize],
    chosen: bool,
) -> Line<'b> {
    let cell = |(at, width): (usize, &usize)| {
        let cell = &row.cells[at];
        placed(&cell.text, *width, grid.columns[at].number, at, style(state, cell.tone))
    };
    let line = Line::from(widths.iter().enumerate().flat_map(cell).collect::<Vec<_>>());
    if chosen { line.style(Modifier::REVERSED) } else { line }
}

/// A cell in its column; a blank before all but the first.
fn placed(text: &str, width: usize, number: bool, at: usize, style: Style) -> [Span<'_>; 2] {
    let text = crate::show::shortened(text, width);
    let pad = " ".repeat(width.saturating_sub(text.chars().count()));
    let gap = if at > 0 { " " } else { "" };
    match number {
        true => [Span::raw(format!("{gap}{pad}")), Span::styled(text, style)],
        false => [Span::styled(format!("{gap}{text}"), style), Span::raw(pad)],
    }
}

fn style(state: &State, tone: Tone) -> Style {
    let (colour, without) = match tone {
        Tone::Plain => return Style::new(),
        Tone::Note => (Color::Yellow, Modifier::UNDERLINED),
        Tone::Bad => (Color::Red, Modifier::BOLD),
    };
    if state.colour { Style::new().fg(colour) } else { Style::new().add_modifier(without) }
}

/// A box in the middle; what is long goes on below its beginning.
fn over(frame: &mut Frame<'_>, title: &str, lines: &[(String, String)]) {
    let area = frame.area();
    let names = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + 2;
    let room = usize::from(area.width).saturating_sub(4 + names).max(8);
    let mut text = Vec::new();
    for (name, what) in lines {
        for (at, part) in crate::show::broken(what, room).into_iter().enumerate() {
            let name = if at == 0 { name.as_str() } else { "" };
            let gap = " ".repeat(names - name.chars().count());
            let name = Span::styled(format!("{name}{gap}"), Modifier::BOLD);
            text.push(Line::from(vec![name, Span::raw(part)]));
        }
    }
    let longest = text.iter().map(Line::width).chain([title.chars().count()]).max().unwrap_or(0);
    let width = u16::try_from(longest + 4).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(text.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let title = crate::show::shortened(title, room + names);
    let block = Block::bordered().title(format!(" {title} "));
    let place = area.centered(Constraint::Length(width), Constraint::Length(height));
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(text).block(block), place);
}
