//! Commands on books.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use anyhow::{Context as _, ensure};
use quire_client::{
    Book, Cents,
    cli::Exit,
    wire::bookstore::{AddBookRequest, EditBookRequest},
};
use quire_terminal::{pager::Pager, screen};
use serde_json::json;

use super::{
    desk::{Desk, write_line},
    show, terminal,
};

/// Books that a restock raises at a terminal without asking.
const RAISED_MAX: usize = 100;

impl Desk {
    pub(super) async fn list(&self, out: &mut Pager) -> anyhow::Result<()> {
        self.pages(self.operator.list(), |books| self.write(out, books, show::book, show::books)).await
    }

    pub(super) async fn topics(&self, near: &str, out: &mut Pager) -> anyhow::Result<()> {
        if near.is_empty() {
            let show = |topics: &[_]| self.write(out, topics, show::topic, show::topics);
            return self.pages(self.client.topics(), show).await;
        }
        let found = self.client.topics_near(near).await?;
        if found.is_empty() && !self.connection.json {
            return write_line(out, &format!("no topic is near '{near}'"));
        }
        self.write(out, &found, show::topic, show::topics)
    }

    pub(super) async fn restock(&self, amount: i32, yes: bool, out: &mut Pager) -> anyhow::Result<Exit> {
        if !yes && screen::is_terminal() && !self.may_raise(amount).await? {
            return self.refused(out, "nothing was changed");
        }
        self.sends();
        let raised = self.patient.restock(amount).await?;
        let books = if raised == 1 { "book" } else { "books" };
        let json = json!({ "amount": amount, "books_raised": raised });
        self.done(out, &format!("{raised} {books} raised to {amount}"), json)
    }

    /// Prompts before a restock of all books that raises many, or whose amount is a book's id; true to go on.
    async fn may_raise(&self, amount: i32) -> anyhow::Result<bool> {
        if self.has_book(amount).await? {
            let asked = format!(
                "this raises every book to {amount} copies; restock {amount} 20 raises book {amount} alone. Raise them all?"
            );
            return Ok(terminal::agrees(&asked).await?);
        }
        let (mut books, mut below) = (self.operator.list(), 0);
        while let Some(book) = books.try_next().await? {
            below += usize::from(book.listed && book.stock < amount);
            if below > RAISED_MAX {
                let asked = format!("this raises more than {RAISED_MAX} books to {amount} copies; do it?");
                return Ok(terminal::agrees(&asked).await?);
            }
        }
        Ok(true)
    }

    async fn has_book(&self, id: i32) -> anyhow::Result<bool> {
        let mut books = self.client.with_page_size(1).operator(None)?.list_after(id - 1);
        Ok(id > 0 && books.try_next().await?.is_some_and(|book| book.id == id))
    }

    pub(super) async fn restock_book(&self, id: i32, amount: i32, out: &mut Pager) -> anyhow::Result<Exit> {
        self.sends();
        let reply = self.operator.restock_book(id, amount).await?;
        let Some((before, after)) = reply.stock_before.zip(reply.stock_after) else {
            return self.refused(out, &no_such_book(id));
        };
        let text = if before < after {
            format!("book {id} has {after} copies now, {before} before")
        } else {
            format!("book {id} keeps its {after} copies")
        };
        let number = Some(reply.number).filter(|number| *number > 0);
        self.done(out, &text, json!({ "id": id, "number": number, "stock_after": after, "stock_before": before }))
    }

    pub(super) async fn price(&self, id: i32, price: Cents, out: &mut Pager) -> anyhow::Result<Exit> {
        self.sends();
        let Some(change) = self.operator.update_price(id, price).await? else {
            return self.refused(out, &no_such_book(id));
        };
        let (before, after) = (change.before, change.after);
        let text = format!("book {id} costs {after} now, {before} before");
        let json = json!({
            "id": id,
            "number": change.number,
            "price_cents_after": after.0,
            "price_cents_before": before.0,
        });
        self.done(out, &text, json)
    }

    pub(super) async fn add(&self, book: &AddBookRequest, out: &mut Pager) -> anyhow::Result<Exit> {
        self.sends();
        let reply = self.operator.add_book(book.clone()).await?;
        let Some(book) = reply.book.map(Book::from).filter(|_| reply.success) else {
            return self.refused(out, &reply.message);
        };
        let json = json!({ "book": show::book(&book), "number": reply.number });
        self.done(out, &format!("book {} was added", book.id), json)
    }

    pub(super) async fn edit(&self, edit: &EditBookRequest, out: &mut Pager) -> anyhow::Result<Exit> {
        self.sends();
        let reply = self.operator.edit_book(edit.clone()).await?;
        let Some((before, after)) = reply.before.map(Book::from).zip(reply.after.map(Book::from)) else {
            return self.refused(out, &no_such_book(edit.id));
        };
        let changed = match show::difference(&before, &after) {
            same if same.is_empty() => "is as it was".to_owned(),
            difference => format!("is changed: {difference}"),
        };
        let number = Some(reply.number).filter(|number| *number > 0);
        let json = json!({ "after": show::book(&after), "before": show::book(&before), "number": number });
        self.done(out, &format!("book {} {changed}", edit.id), json)
    }

    /// Compares a file with the catalogue, and carries it out if its user agrees.
    pub(super) async fn import(&self, file: &Path, yes: bool, skip_bad: bool, out: &mut Pager) -> anyhow::Result<Exit> {
        let csv: bytes::Bytes = self.read(file)?.into();
        let plan = self.patient.import(csv.clone(), false).await?;
        let is_json = self.connection.json;
        if !is_json {
            show::import_lines(&plan).iter().try_for_each(|line| write_line(out, line))?;
            write_line(out, &show::counts(&plan, false))?;
        }
        let is_bad = plan.refused > 0 && !skip_bad;
        let is_wanted = !is_bad && plan.added + plan.changed > 0;
        let advice = if is_bad {
            Some("nothing was changed; mend the bad rows, or leave them out with --skip-bad")
        } else if is_wanted && !yes && !self.agrees(out).await? {
            Some("nothing was changed; --yes does it without asking")
        } else {
            None
        };
        if let Some(advice) = advice.filter(|_| !is_json) {
            write_line(out, advice)?;
        }
        if is_wanted && advice.is_none() {
            self.sends();
            let done = self.patient.import(csv, true).await?;
            self.write(out, &[done], |done| show::import(done, true), |done| show::counts(&done[0], true))?;
        } else if is_json {
            self.write(out, &[plan], |plan| show::import(plan, false), |_| String::new())?;
        }
        Ok(if advice.is_some() { Exit::Refused } else { Exit::Done })
    }

    /// Prompts for confirmation of the changes shown; false without a terminal.
    async fn agrees(&self, out: &mut Pager) -> anyhow::Result<bool> {
        if !screen::is_terminal() || self.connection.json {
            return Ok(false);
        }
        std::mem::replace(out, Pager::new()).finish();
        Ok(terminal::agrees("do it?").await?)
    }

    fn read(&self, file: &Path) -> anyhow::Result<Vec<u8>> {
        let cannot = || format!("cannot read {}", file.display());
        if file != Path::new("-") {
            return fs::read(file).with_context(cannot);
        }
        ensure!(!self.is_prompt, "name a file: commands come from standard input");
        let mut csv = Vec::new();
        io::stdin().read_to_end(&mut csv).with_context(cannot)?;
        Ok(csv)
    }
}

fn no_such_book(id: i32) -> String {
    format!("there is no book {id}; list shows them all")
}
