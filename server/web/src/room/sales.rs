//! Sums of sales by day and by book.

use axum::{body::Body, extract::State, http::StatusCode, response::Response};
use bookstore::{
    BookId, Cents,
    domain::{SalesBy, SalesQuery, SalesRow, Sold},
    exchange,
};

use super::{
    backups::file,
    export::csv,
    log::time_ms,
    operator::Operator,
    state::{Room, respond},
    views::{SalesLine, SalesPage},
};
use crate::{
    locale::Locale,
    request::{encoded, query},
    visit::Visit,
};

/// Rows on a page; all are in the file.
const PAGE_ROWS: usize = 400;

/// The names of summaries in queries, and their labels.
const BY: [(&str, &str, SalesBy); 3] = [
    ("day", "By day", SalesBy::Day),
    ("book", "By book", SalesBy::Book),
    ("day-and-book", "By day and book", SalesBy::DayAndBook),
];

pub(crate) async fn sales(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let field = |name| query(&visit.uri, name).unwrap_or_default();
    let chosen = BY.into_iter().find(|(name, ..)| *name == field("by")).unwrap_or(BY[0]);
    let asked = SalesQuery {
        from_ms: time_ms(&field("from")),
        to_ms: time_ms(&field("to")),
        by: chosen.2,
        book: BookId::parse(&field("book")).ok(),
    };
    let (from, to, book) = (field("from"), field("to"), field("book"));
    let found = room.store().sales(asked, operator.client(&visit)).await;
    if field("as") == "csv"
        && let Ok(sales) = &found
    {
        operator.log(&visit, "export sales");
        return file("sales.csv", "text/csv; charset=utf-8", Body::from(as_csv(&sales.rows)));
    }
    let (rows, total, count, fault) = match found {
        Ok(sales) => {
            let rows = sales.rows.iter().take(PAGE_ROWS).map(|row| line(row, visit.locale)).collect();
            (rows, Some(sums(&sales.total, visit.locale)), sales.rows.len(), None)
        }
        Err(fault) => (Vec::new(), None, 0, Some(format!("{fault}."))),
    };
    let path =
        |by: &str| format!("/admin/sales?by={by}&from={}&to={}&book={}", encoded(&from), encoded(&to), encoded(&book));
    let page = SalesPage {
        frame: room.frame(&visit, &operator, "/admin/sales"),
        tabs: BY.map(|(name, label, _)| (label, path(name), name == chosen.0)).to_vec(),
        by: chosen.0,
        has_day: chosen.2 != SalesBy::Book,
        has_book: chosen.2 != SalesBy::Day,
        csv: path(chosen.0) + "&as=csv",
        left_out: count.checked_sub(PAGE_ROWS).filter(|count| *count > 0).map(|count| visit.locale.count(count as u64)),
        rows,
        total,
        fault,
        from,
        to,
        book,
    };
    respond(StatusCode::OK, &page)
}

fn sums(sold: &Sold, locale: Locale) -> [String; 3] {
    let money = locale.price(Cents::new(sold.cents).unwrap_or(Cents::MAX));
    [locale.count(sold.purchases), locale.count(sold.copies), money]
}

fn line(row: &SalesRow, locale: Locale) -> SalesLine {
    SalesLine {
        day: row.day.map(|day| day.to_string()).unwrap_or_default(),
        book: row.book.map(|book| book.to_string()).unwrap_or_default(),
        title: row.title.as_deref().unwrap_or_default().to_owned(),
        sums: sums(&row.sold, locale),
        is_unpriced: row.sold.copies_unpriced > 0,
    }
}

fn as_csv(rows: &[SalesRow]) -> String {
    let mut text = "day,book,title,purchases,copies,money,copies_without_price\n".to_owned();
    for row in rows {
        let Sold { purchases, copies, cents, copies_unpriced } = row.sold;
        text += &csv([
            row.day.map(|day| day.to_string()).unwrap_or_default().into(),
            row.book.map(|book| book.to_string()).unwrap_or_default().into(),
            exchange::marked(row.title.as_deref().unwrap_or_default()),
            purchases.to_string().into(),
            copies.to_string().into(),
            Cents::new(cents).unwrap_or(Cents::MAX).to_string().into(),
            copies_unpriced.to_string().into(),
        ]);
    }
    text
}
