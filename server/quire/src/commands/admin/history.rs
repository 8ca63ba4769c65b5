//! Commands on the transaction log and on sales.

use std::{
    io::{self, BufWriter, Write},
    pin::pin,
};

use anyhow::ensure;
use bookstore::exchange;
use quire_client::{
    Book,
    wire::bookstore::{LogRequest, SalesReply, SalesRequest, SalesRow},
};
use quire_terminal::{pager::Pager, screen};
use serde_json::Value;

use super::{
    desk::{Desk, is_late, print_line},
    show, terminal,
    verb::{self, Export},
};
use crate::{
    cli::{By, Exported},
    commands::data::Output,
};

impl Desk {
    pub(super) async fn log(&self, filter: &LogRequest, limit: u32, out: &mut Pager) -> anyhow::Result<()> {
        let (mut entries, mut newest) = (self.operator.log_of(filter.clone()), Vec::new());
        while newest.len() < limit as usize
            && let Some(entry) = entries.try_next().await?
        {
            newest.push(entry);
        }
        newest.reverse();
        self.write(out, &newest, show::entry, show::entries)
    }

    /// Shows entries as they come: at a terminal until Enter, else until the call or its time ends.
    pub(super) async fn tail(&self) -> anyhow::Result<()> {
        let is_terminal = screen::is_terminal();
        ensure!(is_terminal || self.console.is_none(), "tail is for a terminal; log shows recent entries");
        let mut entries = self.operator.tail_log(None).await?;
        if is_terminal && !self.connection.json {
            print_line(&format!("{}\nEnter ends it", show::entry_heads()))?;
        }
        let mut stopped =
            pin!(async { if is_terminal { terminal::line().await.map(drop) } else { std::future::pending().await } });
        loop {
            let next = tokio::select! {
                next = entries.try_next() => next,
                read = &mut stopped => return Ok(read?),
            };
            match next {
                Ok(Some(entry)) if self.connection.json => print_line(&screen::json(&show::entry(&entry)))?,
                Ok(Some(entry)) => print_line(&show::entry_line(&entry))?,
                Ok(None) => return Ok(()),
                // The requested duration is over.
                Err(error) if self.connection.timeout.is_some() && is_late(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) async fn sales(&self, request: SalesRequest, out: &mut Pager) -> anyhow::Result<()> {
        let (mut rows, mut total) = (Vec::new(), None);
        let mut replies = self.patient.sales(request).await?;
        while let Some(reply) = replies.try_next().await? {
            rows.extend(reply.rows);
            total = total.or(reply.total);
        }
        if !self.connection.json {
            rows.extend(total.map(|total| SalesRow { title: "all".to_owned(), ..total }));
        }
        self.write(out, &rows, show::sales_row, show::sales)
    }

    /// Writes books, entries or sales as CSV or JSON, to a file that gets its name once it is complete.
    pub(super) async fn export(&self, export: &Export) -> anyhow::Result<()> {
        let mut output = Output::open(export.out.as_deref())?;
        let is_json = self.connection.json;
        match export.what {
            Exported::Books => {
                let columns = exchange::COLUMNS.into_iter().chain([exchange::LISTED]);
                let (mut rows, mut books) = (Rows::new(is_json, output.writer(), columns)?, self.operator.list());
                while let Some(book) = books.try_next().await? {
                    rows.add(&book, show::book, cells)?;
                }
                rows.finish()?;
            }
            Exported::Log => {
                let mut rows = Rows::new(is_json, output.writer(), show::ENTRY_COLUMNS)?;
                let mut entries = self.operator.log_of(verb::entries(&export.choice));
                while let Some(entry) = entries.try_next().await? {
                    rows.add(&entry, show::entry, show::entry_row)?;
                }
                rows.finish()?;
            }
            Exported::Sales => {
                let mut rows = Rows::new(is_json, output.writer(), show::SALES_COLUMNS)?;
                let mut replies = self.patient.sales(verb::sales(&export.choice, By::Both)).await?;
                while let Some(SalesReply { rows: sales, .. }) = replies.try_next().await? {
                    let cells = |row: &SalesRow| show::sales_cells(row).to_vec();
                    sales.iter().try_for_each(|row| rows.add(row, show::sales_row, cells))?;
                }
                rows.finish()?;
            }
        }
        output.finish()?;
        Ok(())
    }
}

/// Rows of an export.
enum Rows<W: Write> {
    Csv(Box<csv::Writer<W>>),
    Json(BufWriter<W>),
}

impl<W: Write> Rows<W> {
    fn new(is_json: bool, into: W, columns: impl IntoIterator<Item = &'static str>) -> io::Result<Self> {
        if is_json {
            return Ok(Self::Json(BufWriter::new(into)));
        }
        let mut csv = Box::new(csv::Writer::from_writer(into));
        csv.write_record(columns)?;
        Ok(Self::Csv(csv))
    }

    fn add<T>(&mut self, item: &T, json: impl Fn(&T) -> Value, cells: impl Fn(&T) -> Vec<String>) -> io::Result<()> {
        match self {
            Self::Csv(csv) => Ok(csv.write_record(cells(item).iter().map(|cell| exchange::marked(cell).into_owned()))?),
            Self::Json(lines) => writeln!(lines, "{}", json(item)),
        }
    }

    fn finish(mut self) -> io::Result<()> {
        match &mut self {
            Self::Csv(csv) => csv.flush(),
            Self::Json(lines) => lines.flush(),
        }
    }
}

/// A book as a row of CSV.
fn cells(book: &Book) -> Vec<String> {
    let listed = if book.listed { "yes" } else { "no" };
    vec![
        book.id.to_string(),
        book.title.clone(),
        book.topic.clone(),
        book.stock.to_string(),
        book.price.to_string(),
        listed.to_owned(),
    ]
}
