//! What the RPC game's experiment found, as a page, as rows and as named figures, beside what was published.

use crate::lab::CONFIDENCE;
use crate::rpcgame::{Game, Games, SAME_MESSAGES, SUBJECTS, Subject, WINDOWS};
use crate::{Findings, experiment_page};
use bench::report::page::{Card, Figure, Page, Table, Tone, Value};
use bench::report::plot::{Axis, Chart, Colour, Series, Shape, Unit};
use bench::report::units;
use bench::stats::interval::{self, Interval, median};

/// Pairs of ours and the peer's that are compared.
const PAIRS: [(&str, &str); 2] = [("unary", "cpp_unary"), ("windowed", "cpp_windowed")];

/// Puts everything together.
pub(super) fn findings(games: &Games) -> anyhow::Result<Findings> {
    let page = experiment_page("The RPC game's experiment")
        .lead(
            "Numbered messages, handled in order and hashed at both ends, over four transports. The server has one \
             core and the driver another; in every game both ends came to the checksums that were worked out apart.",
        )
        .cards(cards(games))
        .heading("Every transport")
        .paragraph(
            "Messages a second from the first message to the server's checksums; medians over the rounds. The server's \
             CPU is that of its process, the driver's that of its thread; user and system together.",
        )
        .table(transports(games))
        .heading("By window")
        .chart(curve(games));
    let page = if games.has_peer { against(page, games) } else { without_peer(page) };
    let page = match games.same {
        Some(sums) => page.footer(format!("Every subject came to {sums} with {SAME_MESSAGES} messages.")),
        None => page,
    };
    let csvs = vec![("games.csv".to_owned(), csv(&games.measured)?), ("windows.csv".to_owned(), csv(&games.curve)?)];
    Ok(Findings { page: page.finish(), csvs, summary: summary(games) })
}

fn against(page: Page, games: &Games) -> Page {
    page.heading("Against gRPC C++")
        .paragraph(
            "The same contract and the same pattern of calls with gRPC C++ at both ends (a callback server, a \
             completion-queue client), its server on the same core as ours and its client on the driver's, in turns.",
        )
        .table(peers(games))
}

fn without_peer(page: Page) -> Page {
    page.heading("Against gRPC C++").paragraph(
        "Not measured: the programs of peers/rpcgame-cpp are not there. `make reproduce` builds them where libgrpc++ is \
         installed.",
    )
}

fn subjects(games: &Games) -> impl Iterator<Item = Subject> + use<'_> {
    SUBJECTS.into_iter().filter(|subject| games.has_peer || !subject.is_peer)
}

fn figures(games: &Games, name: &str, figure: impl Fn(&Game) -> f64) -> Vec<f64> {
    games.measured.iter().filter(|game| game.subject.name == name).map(figure).collect()
}

fn rate(games: &Games, name: &str) -> f64 {
    median(&figures(games, name, Game::rate))
}

fn ratio(games: &Games, name: &str, other: &str) -> Option<Interval> {
    let rates = |name| figures(games, name, Game::rate);
    interval::paired_ratio(&rates(other), &rates(name), CONFIDENCE)
}

fn cards(games: &Games) -> Vec<Card> {
    ["windowed", "stream", "lean"]
        .into_iter()
        .filter_map(|name| SUBJECTS.into_iter().find(|subject| subject.name == name))
        .map(|subject| {
            let rate = rate(games, subject.name);
            Card {
                name: subject.title.to_owned(),
                value: Value::figure(
                    format!("{}_per_second", subject.name),
                    rate,
                    format!("{} million/s", units::number(rate / 1e6)),
                ),
                note: subject.published.map_or_else(String::new, |published| {
                    format!("{:.0} times the published {}", rate / published, units::number(published))
                }),
                tone: Tone::Main,
            }
        })
        .collect()
}

fn transports(games: &Games) -> Table {
    let heads =
        ["transport", "published", "messages/s", "least", "most", "server CPU, µs", "driver CPU, µs", "messages"];
    subjects(games).fold(Table::of_numbers("Messages a second", heads), |table, subject| {
        let name = subject.name;
        let rates = figures(games, name, Game::rate);
        let rate = median(&rates);
        let (least, most) =
            rates.iter().fold((f64::NAN, f64::NAN), |(least, most), rate| (rate.min(least), rate.max(most)));
        let server = median(&figures(games, name, Game::server_cpu_us));
        let driver = median(&figures(games, name, |game| game.driver_cpu_us().unwrap_or(f64::NAN)));
        table.row([
            Value::text(subject.title),
            Value::text(subject.published.map_or_else(String::new, units::number)),
            Value::figure(format!("{name}_per_second"), rate, units::number(rate)),
            Value::text(units::number(least)),
            Value::text(units::number(most)),
            Value::figure(format!("{name}_server_cpu_us"), server, units::number(server)),
            Value::figure(format!("{name}_driver_cpu_us"), driver, units::number(driver)),
            Value::text(units::count(subject.messages)),
        ])
    })
}

fn peers(games: &Games) -> Table {
    let heads = ["", "Quire", "gRPC C++", "ratio", "95% interval", "server CPU, µs", "C++ server CPU, µs"];
    PAIRS.into_iter().fold(Table::of_numbers("Messages a second", heads), |table, (name, other)| {
        let title = SUBJECTS.into_iter().find(|subject| subject.name == name).map_or(name, |subject| subject.title);
        let shown = |name: &str| {
            let rate = rate(games, name);
            Value::figure(format!("{name}_per_second"), rate, units::number(rate))
        };
        let cpu = |name: &str| {
            let cpu = median(&figures(games, name, Game::server_cpu_us));
            Value::figure(format!("{name}_server_cpu_us"), cpu, units::number(cpu))
        };
        let (ratio, interval) = match ratio(games, name, other) {
            Some(ratio) => (
                Value::figure(format!("{name}_ratio"), ratio.estimate, format!("{:.1}", ratio.estimate)),
                format!("{:.1} to {:.1}", ratio.low, ratio.high),
            ),
            None => (Value::text(""), "needs two rounds".to_owned()),
        };
        table.row([Value::text(title), shown(name), shown(other), ratio, Value::text(interval), cpu(name), cpu(other)])
    })
}

fn curve(games: &Games) -> Figure {
    let of = |name: &'static str, window| {
        let games = games.curve.iter().filter(|game| game.subject.name == name && game.window == window);
        median(&games.map(Game::rate).collect::<Vec<_>>())
    };
    let series = ["windowed", "stream", "lean"].into_iter().enumerate().map(|(colour, name)| {
        let points = WINDOWS.map(|window| (units::float(window), of(name, window))).to_vec();
        Series::new(name, Colour::Series(colour), Shape::Line(points))
    });
    Figure {
        title: "Messages a second against the window".to_owned(),
        caption: "The window is how many messages may be sent and not yet answered; medians over the rounds."
            .to_owned(),
        chart: Chart {
            x: Axis::log("window", Unit::Count),
            y: Axis::log("messages a second", Unit::Count),
            series: series.collect(),
            ..Chart::default()
        },
    }
}

fn csv(games: &[Game]) -> anyhow::Result<String> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record([
        "subject",
        "window",
        "round",
        "messages",
        "seconds",
        "messages_per_second",
        "server_cpu_us_a_message",
        "driver_cpu_us_a_message",
    ])?;
    for game in games {
        rows.write_record([
            game.subject.name.to_owned(),
            game.window.to_string(),
            game.round.to_string(),
            game.messages.to_string(),
            game.elapsed.as_secs_f64().to_string(),
            game.rate().to_string(),
            game.server_cpu_us().to_string(),
            game.driver_cpu_us().map_or_else(String::new, |cpu| cpu.to_string()),
        ])?;
    }
    Ok(String::from_utf8(rows.into_inner()?)?)
}

fn summary(games: &Games) -> Vec<(String, f64)> {
    let mut summary = Vec::new();
    for subject in subjects(games) {
        let name = subject.name;
        summary.push((format!("{name}_per_second"), rate(games, name)));
        summary.push((format!("{name}_server_cpu_us"), median(&figures(games, name, Game::server_cpu_us))));
        if !subject.is_peer {
            let driver = figures(games, name, |game| game.driver_cpu_us().unwrap_or(f64::NAN));
            summary.push((format!("{name}_driver_cpu_us"), median(&driver)));
        }
        if let Some(published) = subject.published {
            summary.push((format!("{name}_published_per_second"), published));
        }
    }
    for (name, other) in PAIRS {
        if let Some(ratio) = ratio(games, name, other) {
            summary.push((format!("{name}_ratio"), ratio.estimate));
            summary.push((format!("{name}_ratio_low"), ratio.low));
            summary.push((format!("{name}_ratio_high"), ratio.high));
        }
    }
    summary
}
