//! The live screen.

use std::{collections::VecDeque, thread};

use operate::grpc::wire::Figures;
use quire_rpc::Streaming;
use quire_terminal::screen;
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize as _},
    text::Line,
    widgets::{LineGauge, Paragraph, Row, Sparkline, Table},
};
use tokio::sync::mpsc;

use super::{
    samples::{Failure, UNREACHABLE, next},
    text,
};

/// Seconds in the lines: an hour.
const SECONDS_MAX: usize = 3600;
/// Levels from which on a bar is yellow, and red.
const HIGH_PERCENT: u16 = 70;
const FULL_PERCENT: u16 = 90;

/// A key or a change of the terminal.
enum Input {
    Leave,
    Redraw,
}

/// Shows samples until the user leaves.
pub(super) async fn show(samples: &mut Streaming<Figures>, url: &str) -> Result<(), Failure> {
    let mut terminal = ratatui::init();
    let done = draw_each(&mut terminal, samples, url).await;
    ratatui::restore();
    done
}

async fn draw_each(terminal: &mut DefaultTerminal, samples: &mut Streaming<Figures>, url: &str) -> Result<(), Failure> {
    let (mut inputs, mut shown) = (inputs(), Shown::default());
    loop {
        tokio::select! {
            sample = next(samples) => shown.add(sample?),
            input = inputs.recv() => match input {
                Some(Input::Redraw) => {}
                Some(Input::Leave) | None => return Ok(()),
            },
        }
        let drawn = terminal.draw(|frame| shown.draw(frame, url));
        drawn.map_err(|error| (anyhow::Error::from(error).context("cannot draw on the terminal"), UNREACHABLE))?;
    }
}

/// Reads the terminal on a thread of its own, which ends with the process.
fn inputs() -> mpsc::Receiver<Input> {
    let (send, inputs) = mpsc::channel(8);
    thread::spawn(move || {
        while let Ok(read) = event::read() {
            let input = match read {
                Event::Key(key) => {
                    let is_interrupt = key.modifiers == KeyModifiers::CONTROL && key.code == KeyCode::Char('c');
                    let leaves = is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
                    if leaves { Input::Leave } else { continue }
                }
                Event::Resize(..) => Input::Redraw,
                _ => continue,
            };
            if send.blocking_send(input).is_err() {
                return;
            }
        }
    });
    inputs
}

/// The newest sample, and the rates of those before.
#[derive(Default)]
struct Shown {
    newest: Figures,
    purchases: VecDeque<u64>,
    calls: VecDeque<u64>,
}

impl Shown {
    fn add(&mut self, sample: Figures) {
        let bought = sample.purchases.as_ref().map_or(0.0, |purchases| purchases.per_second);
        let called = sample.calls.map_or(0.0, |calls| calls.per_second);
        for (line, rate) in [(&mut self.purchases, bought), (&mut self.calls, called)] {
            line.truncate(SECONDS_MAX - 1);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate; `as` saturates")]
            line.push_front(rate as u64);
        }
        self.newest = sample;
    }

    fn draw(&self, frame: &mut Frame<'_>, url: &str) {
        let figures = &self.newest;
        let levels = text::levels(figures);
        let rows = [1, 1, 3, 1, 1, u16::try_from(levels.len()).unwrap_or(0), 1, 2, 2, 2, 1].map(Constraint::Length);
        let rows: [Rect; 11] = Layout::vertical(rows).areas(frame.area());
        let rest = Rect {
            y: rows[10].bottom(),
            height: frame.area().bottom().saturating_sub(rows[10].bottom()),
            ..frame.area()
        };
        frame.render_widget(Line::from(text::title(figures, url)).bold(), rows[0]);
        let is_lost = figures.purchases.as_ref().is_some_and(|all| all.acknowledged > all.durable);
        let wrong = [is_lost, !figures.refusals.is_empty(), !figures.errors.is_empty()];
        let colours = [Color::Red, Color::Yellow, Color::Yellow];
        let losses = text::losses(figures).into_iter().zip(wrong).zip(colours);
        let losses = losses.map(|((line, is_wrong), colour)| coloured(&line, is_wrong.then_some(colour)));
        frame.render_widget(Paragraph::new(losses.collect::<Vec<_>>()), rows[2]);
        frame.render_widget(coloured(&text::health(figures), (!figures.healthy).then_some(Color::Red)), rows[4]);
        for (place, (name, level, is_bytes)) in (0..).zip(levels) {
            let area = Rect { y: rows[5].y + place, height: 1, ..rows[5] };
            if area.y < frame.area().bottom() {
                let label = format!("{name:<10} {}", text::level_text(level, is_bytes));
                let percent = text::percent(level);
                let gauge = LineGauge::default().label(label).ratio(f64::from(percent) / 100.0);
                frame.render_widget(gauge.filled_style(Style::new().fg(bar(percent))), area);
            }
        }
        frame.render_widget(Paragraph::new(text::speed(figures).map(Line::from).to_vec()), rows[7]);
        for (line, area, colour) in [(&self.purchases, rows[8], Color::Green), (&self.calls, rows[9], Color::Cyan)] {
            let newest_right = line.iter().take(usize::from(area.width)).rev().copied().collect::<Vec<u64>>();
            frame.render_widget(Sparkline::default().data(newest_right).style(Style::new().fg(colour)), area);
        }
        let methods = figures
            .methods
            .iter()
            .map(|method| Row::new(text::row(method).map(|cell| screen::line(&cell).into_owned())));
        let widths = [Constraint::Fill(1), Constraint::Length(10), Constraint::Length(8)];
        let widths = widths.into_iter().chain([Constraint::Length(9); 3]);
        let header = Row::new(text::COLUMNS.map(|(name, _)| name)).add_modifier(Modifier::BOLD);
        frame.render_widget(Table::new(methods, widths).header(header), rest);
    }
}

/// A line from the server on the terminal.
fn coloured(line: &str, colour: Option<Color>) -> Line<'static> {
    let line = Line::from(screen::line(line).into_owned());
    colour.map_or(line.clone(), |colour| line.fg(colour).bold())
}

fn bar(percent: u16) -> Color {
    match percent {
        FULL_PERCENT.. => Color::Red,
        HIGH_PERCENT.. => Color::Yellow,
        _ => Color::Green,
    }
}

#[cfg(test)]
mod tests {
    use operate::grpc::wire::{Calls, Level, Levels, Purchases};
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    #[test]
    fn the_screen_has_everything_and_marks_a_lost_purchase_at_any_size() {
        let mut shown = Shown::default();
        shown.add(Figures {
            purchases: Some(Purchases { acknowledged: 2, durable: 1, per_second: 7.0, ..Purchases::default() }),
            calls: Some(Calls { per_second: 9.0, ..Calls::default() }),
            levels: Some(Levels { queue: Some(Level { used: 95, limit: 100 }), ..Levels::default() }),
            healthy: true,
            ..Figures::default()
        });
        let screen = |width, height| {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            terminal.draw(|frame| shown.draw(frame, "http://a")).expect("a screen");
            terminal.backend().to_string()
        };
        let whole = screen(80, 24);
        for part in
            ["acknowledged 2, committed 1: TOO FEW", "95 of 100, 95%", "7.0 purchases and 9.0 calls", "calls/min"]
        {
            assert!(whole.contains(part), "{part} is missing in\n{whole}");
        }
        for (width, height) in [(1, 1), (20, 5), (300, 100)] {
            screen(width, height);
        }
    }
}
