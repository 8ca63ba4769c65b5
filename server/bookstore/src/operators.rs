//! Operators' actions: each is durable once it is answered, and stands in the log with its actor.

use std::sync::Arc;

use hosting::Client;

use crate::{
    bookstore::{Bookstore, Paged},
    catalogue::Books,
    domain::{
        self, Actor, Addition, BookId, Day, Draft, Edit, Edited, Entry, LogFilter, NewBook, PriceChange, Raised,
        Restocked, STOCK_MAX, Sales, SalesQuery, SalesRow, Sold, TITLE_BYTES_MAX,
    },
    fault::{Fault, Limit, Unavailable},
    ledger::{Change, Write, Written},
    money::{Cents, WANTED},
    settings::Reads,
    store::Which,
};

impl From<&Client> for Actor {
    /// The credential's name, or [`Actor::unnamed`] without one.
    fn from(client: &Client) -> Self {
        match client {
            Client::Credential(name) => Self::named(Arc::clone(name)),
            Client::Unknown | Client::Address(_) => Self::unnamed(),
        }
    }
}

impl Bookstore {
    /// Books by id, delisted ones too; a size of 0 is the largest page.
    pub async fn list_all(&self, after: Option<BookId>, size: usize) -> Result<Paged<Books, BookId>, Fault> {
        let size = self.page_size(size)?;
        let items: Books = match self.inner.settings.reads {
            Reads::Memory => self.inner.shelf.load().after_any(after).take(size).cloned().collect(),
            Reads::Database => self.inner.store.books(Which::All, after, size).await?,
        };
        let next = items.last().filter(|_| items.len() == size).map(|book| book.id());
        Ok(Paged { items, next })
    }

    /// Raises every listed book with fewer copies to `amount`.
    pub async fn restock(&self, amount: i64, actor: Actor) -> Result<Restocked, Fault> {
        self.inner.ledger.restock(stock("amount", amount)?, actor).await
    }

    /// Raises a book with fewer copies to `amount`; `None` if the book does not exist.
    pub async fn restock_book(&self, id: BookId, amount: i64, actor: Actor) -> Result<Option<Raised>, Fault> {
        self.inner.ledger.restock_book(id, stock("amount", amount)?, actor).await
    }

    /// Sets a price; `None` if the book does not exist.
    pub async fn update_price(&self, id: BookId, cents: i64, actor: Actor) -> Result<Option<PriceChange>, Fault> {
        self.inner.ledger.set_price(id, price(cents)?, actor).await
    }

    /// Adds a book to the shop.
    pub async fn add_book(&self, draft: Draft, actor: Actor) -> Result<Addition, Fault> {
        let id = draft.id.map(BookId::from_wire).transpose()?;
        let book = NewBook {
            // Replaced by the next one if absent.
            id: id.unwrap_or(BookId::FIRST),
            title: title(&draft.title)?,
            topic: self.topic(&draft.topic)?,
            stock: stock("stock", draft.stock)?,
            price: price(draft.price_cents)?,
            listed: true,
        };
        let write = if id.is_some() { Write::Add(book) } else { Write::AddNext(book) };
        match self.write_one(write, actor).await? {
            Written { before: None, after: Some(added), number: Some(number) } => Ok(Addition::Added(added, number)),
            Written { before: Some(taken), .. } => Ok(Addition::Taken(taken)),
            _ => {
                let highest = format!("a free id: the book {} is there, so no next one is", i32::MAX);
                Err(Fault::invalid("id", "absent", highest))
            }
        }
    }

    /// Changes a book's texts and price, delists it or lists it again; `None` if the book does not exist.
    pub async fn edit_book(&self, id: BookId, edit: Edit, actor: Actor) -> Result<Option<Edited>, Fault> {
        let change = Change {
            title: edit.title.map(|text| title(&text)).transpose()?,
            topic: edit.topic.map(|topic| self.topic(&topic)).transpose()?,
            price: edit.price_cents.map(price).transpose()?,
            listed: edit.listed,
        };
        let Written { before, after, number } = self.write_one(Write::Edit(id, change), actor).await?;
        Ok(before.zip(after).map(|(before, after)| Edited { before, after, number }))
    }

    async fn write_one(&self, write: Write, actor: Actor) -> Result<Written, Fault> {
        self.inner.ledger.write(vec![write], actor).await?.pop().ok_or(Fault::OutcomeUnknown)
    }

    /// A page of the chosen log entries before the number `before`, newest first; a size of 0 is the largest page. A page
    /// may have fewer entries, or none, and still not be the last one.
    pub async fn find_log(&self, before: i64, filter: LogFilter, size: usize) -> Result<Paged<Vec<Entry>, i64>, Fault> {
        let found = self.inner.store.find(before, filter, self.page_size(size)?).await?;
        Ok(Paged { items: found.entries, next: found.next })
    }

    /// A summary of sales, for this client.
    pub async fn sales(&self, query: SalesQuery, client: Client) -> Result<Sales, Fault> {
        let share = self.inner.sales.take(client);
        let share = share.ok_or_else(|| self.exceeded(Limit::Sales, self.inner.settings.limits.sales.get()))?;
        let inner = Arc::clone(&self.inner);
        // A caller that goes leaves a query that still runs, so the share is the query's.
        let scan = tokio::spawn(async move {
            let _share = share;
            let turn = inner.scans.acquire().await;
            let _turn = turn.map_err(|_| Fault::Unavailable(Unavailable::Closing))?;
            inner.store.sales(query).await
        });
        let sums = scan.await.unwrap_or(Err(Fault::Unavailable(Unavailable::Closing)))?.map_err(|most| {
            Fault::invalid("by", format!("more than {} rows", most.0), "by day or by book alone, or of a shorter time")
        })?;
        let (catalogue, mut total) = (self.inner.shelf.load_full(), Sold::default());
        let rows = sums.into_iter().map(|(day, book, sold)| {
            total.add_sums(&sold);
            let title = book.and_then(|id| Some(catalogue.get_any(id)?.title().into()));
            SalesRow { day: day.map(Day::since_epoch), book, title, sold }
        });
        let rows = rows.collect();
        Ok(Sales { rows, total })
    }

    fn topic(&self, text: &str) -> Result<String, Fault> {
        domain::checked_text("topic", text, self.inner.settings.limits.topic_bytes)
    }
}

/// Checks a title.
fn title(text: &str) -> Result<String, Fault> {
    domain::checked_text("title", text, TITLE_BYTES_MAX)
}

/// Checks a number of copies.
fn stock(field: &'static str, copies: i64) -> Result<u32, Fault> {
    let wanted = u32::try_from(copies).ok().filter(|copies| *copies <= STOCK_MAX);
    wanted.ok_or_else(|| Fault::invalid(field, copies, format!("a whole number from 0 to {STOCK_MAX}")))
}

/// Checks a price.
fn price(cents: i64) -> Result<Cents, Fault> {
    Cents::new(cents).ok_or_else(|| Fault::invalid("price_cents", cents, format!("{WANTED}, in cents")))
}
