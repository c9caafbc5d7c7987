//! `sluice top`: a dashboard in the terminal.
//!
//! A thread asks the director, so that keys are answered while it is slow or away; this one draws.
//! What is drawn comes from plain data: two samples make [`grid::Grid`]s (`rates`), keys change a
//! [`state::State`], and `draw` puts both on a screen. Only this file and `sample` do I/O.

mod draw;
mod grid;
mod rates;
mod sample;
mod state;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use sluice_api::{ApiError, Client};

use crate::Socket;
use crate::cli::machine::Top;
use crate::output::Output;
use crate::show::Shown;

use rates::Board;
use sample::Sample;
use state::{State, Step};

/// How long a key may wait for its answer, and a sample to be shown.
const TURN: Duration = Duration::from_millis(50);

/// Runs the dashboard until somebody ends it, or prints it so many times.
///
/// # Errors
/// When there is no terminal to draw on, it fails, or nobody answers at the beginning.
pub fn run(asked: &Top, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let client = socket.client_at(asked.socket.as_deref());
    let first = sample::take(&client)?;
    if let Some(times) = asked.batch {
        return batch(&client, first, times, asked);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let command = socket.reached(asked.socket.as_deref()).sluice("top --batch 1");
        return Err(format!("a dashboard needs a terminal: `{command}` prints it as text").into());
    }
    let colour = anstream::stdout().current_choice() != anstream::ColorChoice::Never;
    let state = State::new(asked.interval, colour);
    let mut terminal = ratatui::try_init()?;
    let outcome = dashboard(&mut terminal, state, client, first);
    ratatui::restore();
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Plain text, once an interval.
fn batch(
    client: &Client,
    first: Sample,
    times: u32,
    asked: &Top,
) -> Result<ExitCode, Box<dyn Error>> {
    let mut before = first;
    for at in 0..times {
        std::thread::sleep(Duration::from_secs_f64(asked.interval));
        let now = sample::take(client)?;
        let board = Board::of(Some(&before), &now);
        let text = match (asked.json, at) {
            (true, _) => board.json().to_string() + "\n",
            (false, 0) => board.text(),
            (false, _) => format!("\n{}", board.text()),
        };
        Output::write(&Shown::new(text))?;
        if !Output::is_read() {
            break;
        }
        before = now;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks every so often, until nobody listens; the interval may change meanwhile.
fn ask(client: &Client, intervals: &Receiver<f64>, samples: &Sender<Result<Sample, ApiError>>) {
    // The first rates come soon, whatever the interval.
    let mut wait = Duration::from_millis(500);
    let mut interval = None;
    loop {
        match intervals.recv_timeout(wait) {
            Ok(seconds) => interval = Some(Duration::from_secs_f64(seconds)),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if samples.send(sample::take(client)).is_err() {
                    return;
                }
                wait = interval.unwrap_or(wait);
            }
        }
    }
}

fn dashboard(
    terminal: &mut DefaultTerminal,
    mut state: State,
    client: Client,
    first: Sample,
) -> Result<(), Box<dyn Error>> {
    let (to_thread, intervals) = mpsc::channel();
    let (to_us, samples) = mpsc::channel();
    std::thread::spawn(move || ask(&client, &intervals, &to_us));
    to_thread.send(state.interval)?;
    let mut last = first;
    let mut board = Board::of(None, &last);
    terminal.draw(|frame| draw::screen(frame, &mut state, &board))?;
    loop {
        let mut changed = false;
        // All keys that wait, but not for longer than a turn: over a slow line drawing costs most.
        let until = Instant::now() + TURN;
        while event::poll(until.saturating_duration_since(Instant::now()))? {
            changed = true;
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match state.key(key, &board) {
                Step::On => {}
                Step::Interval(seconds) => to_thread.send(seconds)?,
                Step::End => return Ok(()),
            }
        }
        for sample in samples.try_iter() {
            changed = true;
            match sample {
                Ok(sample) => {
                    state.trouble = None;
                    if !state.held {
                        board = Board::of(Some(&last), &sample);
                    }
                    last = sample;
                }
                Err(error) => state.trouble = Some(error.to_string()),
            }
        }
        if changed {
            terminal.draw(|frame| draw::screen(frame, &mut state, &board))?;
        }
    }
}
