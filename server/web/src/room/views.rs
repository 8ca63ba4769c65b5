//! The content of the room's pages, as types; each has its template in `templates/room`, which escapes everything.

use std::sync::Arc;

use askama::Template;
use bookstore::BookId;

use super::outcome::{Outcome, key};
use crate::{assets::Assets, views::Cover};

/// An entry of the navigation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) path: &'static str,
    pub(crate) label: &'static str,
    pub(crate) is_here: bool,
}

/// Parts of every page.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) assets: &'static Assets,
    pub(crate) version: &'static str,
    pub(crate) links: Vec<Link>,
    /// Name of the operator's credential, if one is asked for.
    pub(crate) name: Option<String>,
    /// The secret of the operator's forms.
    pub(crate) secret: Arc<str>,
    /// Result of the form that led here.
    pub(crate) outcome: Option<Outcome>,
    /// Trouble of the store.
    pub(crate) trouble: Option<String>,
}

impl Frame {
    /// The fields that every form has.
    pub(crate) fn fields(&self) -> Fields {
        Fields { secret: Arc::clone(&self.secret), once: key() }
    }
}

/// The operator's secret, and a key by which the form acts once.
#[derive(Debug, Template)]
#[template(path = "room/fields.html")]
pub(crate) struct Fields {
    secret: Arc<str>,
    once: String,
}

/// The page that asks for a token.
#[derive(Debug, Template)]
#[template(path = "room/sign-in.html")]
pub(crate) struct SignInPage {
    pub(crate) assets: &'static Assets,
    /// Reason for the refusal of the last request.
    pub(crate) refused: Option<String>,
    /// Path of the page that is shown then.
    pub(crate) next: String,
}

/// The page for a request that another site's page made.
#[derive(Debug, Template)]
#[template(path = "room/forged.html")]
pub(crate) struct ForgedPage {
    pub(crate) assets: &'static Assets,
}

/// The page for what cannot be shown: what happened, and what to do.
#[derive(Debug, Template)]
#[template(path = "room/sorry.html")]
pub(crate) struct SorryPage {
    pub(crate) frame: Frame,
    pub(crate) title: String,
    pub(crate) text: String,
}

/// `/admin`. The parts are HTML of their own templates.
#[derive(Debug, Template)]
#[template(path = "room/overview.html")]
pub(crate) struct OverviewPage {
    pub(crate) frame: Frame,
    pub(crate) lost: String,
    pub(crate) healthy: String,
    pub(crate) sparks: String,
    pub(crate) methods: String,
    pub(crate) recent: String,
    pub(crate) callers: String,
}

/// `/admin/errors`.
#[derive(Debug, Template)]
#[template(path = "room/errors.html")]
pub(crate) struct ErrorsPage {
    pub(crate) frame: Frame,
    pub(crate) errors: &'static [(&'static str, &'static str)],
}

/// A book in a list.
#[derive(Clone, Debug)]
pub(crate) struct BookRow {
    pub(crate) id: BookId,
    pub(crate) title: String,
    pub(crate) topic: String,
    pub(crate) stock: String,
    /// `in`, `low` or `out`.
    pub(crate) level: &'static str,
    pub(crate) price: String,
    /// Copies that reservations hold, if there are any.
    pub(crate) held: Option<String>,
    pub(crate) is_listed: bool,
}

/// `/admin/catalogue`.
#[derive(Debug, Template)]
#[template(path = "room/catalogue.html")]
pub(crate) struct CataloguePage {
    pub(crate) frame: Frame,
    pub(crate) typed: String,
    pub(crate) rows: Vec<BookRow>,
    pub(crate) books: String,
    /// A restock of all has to be confirmed.
    pub(crate) is_asked: bool,
    pub(crate) amount: u32,
    pub(crate) stock_max: u32,
    pub(crate) first: Option<String>,
    pub(crate) next: Option<String>,
}

/// `/admin/catalogue/book`.
#[derive(Debug, Template)]
#[template(path = "room/book.html")]
pub(crate) struct BookPage {
    pub(crate) frame: Frame,
    pub(crate) cover: Cover,
    pub(crate) row: BookRow,
    /// The price as the form has it.
    pub(crate) plain_price: String,
    /// Its newest entries, as HTML of their own template.
    pub(crate) log: String,
    pub(crate) amount: u32,
    pub(crate) stock_max: u32,
}

/// `/admin/log`.
#[derive(Debug, Template)]
#[template(path = "room/log.html")]
pub(crate) struct LogPage {
    pub(crate) frame: Frame,
    /// The entries, as HTML of their own template.
    pub(crate) log: String,
    pub(crate) entries: String,
    /// The newest entries are shown, and followed.
    pub(crate) is_live: bool,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) book: String,
    pub(crate) kinds: Vec<KindChoice>,
    pub(crate) is_filtered: bool,
    /// Paths of the files.
    pub(crate) csv: String,
    pub(crate) json: String,
    pub(crate) first: Option<String>,
    pub(crate) next: Option<String>,
}

/// `/admin/backups`.
#[derive(Debug, Template)]
#[template(path = "room/backups.html")]
pub(crate) struct BackupsPage {
    pub(crate) frame: Frame,
    /// Of the newest one.
    pub(crate) age: Option<String>,
    /// Contents of the file that was verified, or the fault in it.
    pub(crate) verified: Option<Result<String, String>>,
}

/// A kind of entries to choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindChoice {
    pub(crate) name: &'static str,
    pub(crate) is_chosen: bool,
}

/// `/admin/catalogue/add`.
#[derive(Debug, Template)]
#[template(path = "room/add.html")]
pub(crate) struct AddPage {
    pub(crate) frame: Frame,
    pub(crate) stock_max: u32,
}

/// A row of a file that is left out.
#[derive(Debug)]
pub(crate) struct BadRowLine {
    pub(crate) line: String,
    pub(crate) column: &'static str,
    pub(crate) reason: String,
}

/// A book that a file changes: each value before, empty if it stays, and after.
#[derive(Debug)]
pub(crate) struct ChangeLine {
    pub(crate) id: BookId,
    pub(crate) title: (String, String),
    pub(crate) topic: (String, String),
    pub(crate) stock: (String, String),
    pub(crate) price: (String, String),
    pub(crate) listed: (String, String),
}

/// The changes that an import would make.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Key of the file that waits; empty if there is nothing to do.
    pub(crate) key: String,
    pub(crate) added: String,
    pub(crate) changed: String,
    pub(crate) unchanged: String,
    pub(crate) refused: String,
    pub(crate) bad: Vec<BadRowLine>,
    pub(crate) changes: Vec<ChangeLine>,
}

/// `/admin/catalogue/import`.
#[derive(Debug, Template)]
#[template(path = "room/import.html")]
pub(crate) struct ImportPage {
    pub(crate) frame: Frame,
    pub(crate) plan: Option<Plan>,
    pub(crate) fault: Option<String>,
}

/// A row of a summary of sales.
#[derive(Debug)]
pub(crate) struct SalesLine {
    pub(crate) day: String,
    pub(crate) book: String,
    pub(crate) title: String,
    /// Purchases, copies, money.
    pub(crate) sums: [String; 3],
    /// The money is not known in full.
    pub(crate) is_unpriced: bool,
}

/// `/admin/sales`.
#[derive(Debug, Template)]
#[template(path = "room/sales.html")]
pub(crate) struct SalesPage {
    pub(crate) frame: Frame,
    /// Label and path of each summary, and whether it is shown.
    pub(crate) tabs: Vec<(&'static str, String, bool)>,
    pub(crate) by: &'static str,
    pub(crate) has_day: bool,
    pub(crate) has_book: bool,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) book: String,
    pub(crate) rows: Vec<SalesLine>,
    pub(crate) total: Option<[String; 3]>,
    /// Number of rows that are not shown.
    pub(crate) left_out: Option<String>,
    pub(crate) csv: String,
    pub(crate) fault: Option<String>,
}

/// A piece of a line of Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) is_code: bool,
    pub(crate) text: String,
}

/// A setting.
#[derive(Debug)]
pub(crate) struct SettingRow {
    pub(crate) key: &'static str,
    /// `None` without a value.
    pub(crate) value: Option<String>,
    pub(crate) source: String,
    pub(crate) is_default: bool,
    pub(crate) is_reloaded: bool,
    pub(crate) meaning: Vec<Piece>,
    pub(crate) kind: Vec<Piece>,
}

/// `/admin/settings`.
#[derive(Debug, Template)]
#[template(path = "room/settings.html")]
pub(crate) struct SettingsPage {
    pub(crate) frame: Frame,
    /// By section.
    pub(crate) sections: Vec<(String, Vec<SettingRow>)>,
    pub(crate) given: usize,
    pub(crate) all: usize,
    /// True if only the given ones are shown.
    pub(crate) is_short: bool,
}

/// A number with its name.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: String,
}

/// Requests of tasks, by type and outcome.
#[derive(Debug)]
pub(crate) struct TaskRow {
    pub(crate) kind: &'static str,
    pub(crate) counts: Vec<String>,
}

/// `/admin/work`.
#[derive(Debug, Template)]
#[template(path = "room/work.html")]
pub(crate) struct WorkPage {
    pub(crate) frame: Frame,
    pub(crate) games: Option<Vec<Figure>>,
    /// Refused messages by reason, those that happened.
    pub(crate) refusals: Vec<(&'static str, String)>,
    pub(crate) tasks: Option<Vec<Figure>>,
    pub(crate) outcomes: Vec<&'static str>,
    pub(crate) requests: Vec<TaskRow>,
    /// Newest first.
    pub(crate) games_ended: Vec<GameRow>,
    /// Newest first.
    pub(crate) answered: Vec<AnsweredRow>,
}

/// A game that ended.
#[derive(Debug)]
pub(crate) struct GameRow {
    pub(crate) time: String,
    pub(crate) group: String,
    pub(crate) messages: String,
    pub(crate) client: String,
    pub(crate) server: String,
}

/// A task that was answered.
#[derive(Debug)]
pub(crate) struct AnsweredRow {
    pub(crate) time: String,
    pub(crate) kind: &'static str,
    pub(crate) seed: String,
    pub(crate) result: u8,
    pub(crate) outcome: &'static str,
}

/// `/admin/records`.
#[derive(Debug, Template)]
#[template(path = "room/records.html")]
pub(crate) struct RecordsPage {
    pub(crate) frame: Frame,
    /// All columns of the file; empty without a file.
    pub(crate) columns: Vec<String>,
    pub(crate) rows_all: String,
    pub(crate) column: String,
    pub(crate) value: String,
    pub(crate) answer: Option<Result<RecordsAnswer, String>>,
}

/// An answer of the records.
#[derive(Debug)]
pub(crate) struct RecordsAnswer {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) matching: String,
    /// `1 to 50`.
    pub(crate) range: String,
    pub(crate) time: String,
    pub(crate) previous: Option<String>,
    pub(crate) next: Option<String>,
}

/// A key in a list.
#[derive(Debug)]
pub(crate) struct KeyRow {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) bytes: String,
    pub(crate) version: u64,
    /// `in 5 min`; empty without an expiry.
    pub(crate) left: String,
    /// The beginning of the value.
    pub(crate) begin: String,
}

/// `/admin/keys`.
#[derive(Debug, Template)]
#[template(path = "room/keys.html")]
pub(crate) struct KeysPage {
    pub(crate) frame: Frame,
    pub(crate) prefix: String,
    pub(crate) rows: Vec<KeyRow>,
    pub(crate) entries: String,
    pub(crate) bytes: String,
    pub(crate) first: Option<String>,
    pub(crate) next: Option<String>,
    pub(crate) fault: Option<String>,
}

/// A form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Json,
    Hex,
}

impl Shape {
    pub(crate) const ALL: [Self; 3] = [Self::Text, Self::Json, Self::Hex];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Hex => "hex",
        }
    }

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Text => "Text",
            Self::Json => "JSON",
            Self::Hex => "Hex",
        }
    }
}

/// `/admin/keys/entry`.
#[derive(Debug, Template)]
#[template(path = "room/key.html")]
pub(crate) struct KeyPage {
    pub(crate) frame: Frame,
    pub(crate) name: String,
    /// The key in hexadecimal.
    pub(crate) key: String,
    pub(crate) bytes: String,
    pub(crate) version: u64,
    pub(crate) left: String,
    /// Seconds to the expiry; empty without one.
    pub(crate) seconds: String,
    pub(crate) shape: Shape,
    /// The possible shapes and their paths.
    pub(crate) shapes: Vec<(Shape, String)>,
    pub(crate) shown: String,
    /// The value was too long to show all of it.
    pub(crate) is_cut: bool,
    /// The value as it can be edited; `None` if it is too long.
    pub(crate) edited: Option<String>,
    /// Path of the list.
    pub(crate) back: String,
}

#[cfg(test)]
mod tests {
    use askama::Template as _;

    use super::ForgedPage;
    use crate::assets::Assets;

    #[test]
    fn a_page_has_no_style_or_script_of_its_own() {
        let page = ForgedPage { assets: Assets::get() }.render().unwrap();
        assert!(!page.contains(" style=") && !page.contains("<style") && !page.contains(" on"), "{page}");
    }
}
