//! Model of a CSV file and row-by-row queries.

use records::{Delimiter, Encode, Keep, Scan, Settings};

use crate::calls::message::Message;
use crate::random::Random;

/// Texts that are difficult in one form or another.
const PIECES: [&str; 16] = [
    "a",
    "b",
    "Key",
    "1",
    "0.5",
    " ",
    ",",
    "\"",
    "\n",
    "\r",
    "\\",
    "\u{1}\u{1f}",
    "\t\u{8}\u{c}",
    "é",
    "雪😀",
    "\u{2028}\u{7f}&=%+",
];

#[derive(Clone, Debug, Default)]
pub struct Table {
    pub names: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

fn text(random: &mut Random) -> String {
    (0..random.below(4)).map(|_| random.pick(&PIECES)).collect()
}

impl Table {
    pub fn random(random: &mut Random) -> Self {
        let columns = 1 + random.below(5);
        // Not only numbers, and each one once.
        let names: Vec<String> = (0..columns).map(|column| format!("{}c{column}", text(random))).collect();
        let pools: Vec<Vec<String>> =
            names.iter().map(|_| (0..=random.below(6)).map(|_| text(random)).collect()).collect();
        let rows = match random.below(200) {
            0 => 3000 + random.below(3000),
            1..=20 => random.below(400),
            _ => random.below(30),
        };
        let row = |random: &mut Random| pools.iter().map(|pool| pool[random.below(pool.len())].clone()).collect();
        Self { rows: (0..rows).map(|_| row(random)).collect(), names }
    }

    /// The file, with variations that a reader must ignore.
    pub fn csv(&self, random: &mut Random) -> Vec<u8> {
        let mut file = if random.one_in(4) { "\u{feff}".to_owned() } else { String::new() };
        let end = random.pick(&["\n", "\r\n"]);
        let quotes_more = random.one_in(2);
        for row in std::iter::once(&self.names).chain(&self.rows) {
            if random.one_in(20) {
                file += end;
            }
            let line: Vec<String> = row
                .iter()
                .map(|value| if quotes_more && random.one_in(3) { quoted(value) } else { as_needed(value) })
                .collect();
            let line = line.join(",");
            file += if line.is_empty() { "\"\"" } else { &line };
            file += end;
        }
        if random.one_in(3) && !self.rows.is_empty() {
            file.truncate(file.len() - end.len());
        }
        file.into_bytes()
    }
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('"', "\"\""))
}

fn as_needed(value: &str) -> String {
    if value.contains([',', '"', '\r', '\n']) { quoted(value) } else { value.to_owned() }
}

/// Random modes, which must not change answers.
pub fn settings(random: &mut Random) -> Settings {
    let mut settings = Settings {
        // A header of one column may hold any of the others.
        delimiter: Some(Delimiter::Comma),
        scan: random.pick(&[Scan::Indexed, Scan::Indexed, Scan::Sequential, Scan::Parallel]),
        encode: random.pick(&[Encode::Once, Encode::Once, Encode::Each]),
        keep: Keep { protobuf: !random.one_in(6), json: !random.one_in(6), text: !random.one_in(6) },
        compress: !random.one_in(4),
        ..Settings::default()
    };
    let limits = &mut settings.limits;
    limits.page_bytes = random.pick(&[limits.page_bytes, 1000, 100, 1]);
    limits.answer_bytes = random.pick(&[limits.answer_bytes, limits.answer_bytes, 3000, 300]);
    limits.compress_bytes_min = random.pick(&[1024, 100]);
    limits.kept_bytes = random.pick(&[limits.kept_bytes, 0]);
    limits.cache_bytes = random.pick(&[limits.cache_bytes, 0]);
    settings
}

#[derive(Clone, Debug)]
pub struct Query {
    pub column: String,
    pub value: String,
    pub share: Option<f64>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Rows of an answer, and the number of matches.
pub struct Found<'a> {
    pub table: &'a Table,
    pub rows: Vec<&'a [String]>,
    pub matching: u64,
}

#[derive(Clone, Debug)]
pub enum Fault {
    NoFile,
    Invalid(String),
    /// The whole answer is larger than the limit.
    Large(String),
}

impl Query {
    pub fn random(table: Option<&Table>, random: &mut Random) -> Self {
        let names = table.map(|table| &table.names[..]).unwrap_or_default();
        let column = if names.is_empty() || random.one_in(12) {
            random.pick(&["", "c", "no such column, 雪", "a long name ".repeat(10).as_str()]).to_owned()
        } else {
            names[random.below(names.len())].clone()
        };
        let place = names.iter().position(|name| *name == column);
        let rows = table.map(|table| &table.rows[..]).unwrap_or_default();
        let value = match place {
            Some(place) if !rows.is_empty() && !random.one_in(8) => {
                let value = &rows[random.below(rows.len())][place];
                if random.one_in(8) { quoted(value) } else { value.clone() }
            }
            _ => text(random),
        };
        let shares = [0.0, 0.1, 0.25, 0.3, 0.5, 1.0 / 3.0, 0.99, 1.0, 1e-300];
        let wrong = [-0.1, 1.000_000_1, f64::NAN, f64::INFINITY, -1e30];
        let share = match random.below(20) {
            0 => Some(random.pick(&wrong)),
            1..=6 => Some(random.pick(&shares)),
            _ => None,
        };
        let offset = random.pick(&[0, 0, 0, 1, 2, 10, 9_007_199_254_740_991]);
        let limit = random.pick(&[None, None, Some(1), Some(2), Some(7), Some(100), Some(9_007_199_254_740_991)]);
        Self { column, value, share, offset, limit }
    }

    pub fn find<'a>(&self, table: Option<&'a Table>) -> Result<Found<'a>, Fault> {
        let table = table.ok_or(Fault::NoFile)?;
        if let Some(share) = self.share.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(Fault::Invalid(format!("result_size is {share}; it must be a number from 0 to 1")));
        }
        let Some(place) = table.names.iter().position(|name| *name == self.column) else {
            let short: String = self.column.chars().take(100).collect();
            let more = if short.len() < self.column.len() { "…" } else { "" };
            let names = table.names.join(", ");
            return Err(Fault::Invalid(format!("there is no column '{short}{more}'; the columns are {names}")));
        };
        let with = |value: &str| -> Vec<&[String]> {
            table.rows.iter().filter(|row| row[place] == value).map(|row| &row[..]).collect()
        };
        let mut matching = with(&self.value);
        if matching.is_empty() && self.value.len() > 1 && self.value.starts_with('"') && self.value.ends_with('"') {
            matching = with(&self.value[1..self.value.len() - 1].replace("\"\"", "\""));
        }
        let share = self.share.map_or(matching.len(), |share| (matching.len() as f64 * share).floor() as usize);
        let (offset, limit) = (self.offset as usize, self.limit.map_or(usize::MAX, |limit| limit as usize));
        let rows = matching.iter().take(share).skip(offset).take(limit).copied().collect();
        Ok(Found { table, rows, matching: matching.len() as u64 })
    }
}

impl Found<'_> {
    pub fn record(&self, row: &[String]) -> Message {
        self.table.names.iter().zip(row).fold(Message::new(), |record, (name, value)| {
            record.message(1, &Message::new().bytes(1, name.as_bytes()).bytes(2, value.as_bytes()))
        })
    }

    /// `ReaderResponse`.
    pub fn records(&self, rows: &[&[String]]) -> Message {
        let reply = rows.iter().fold(Message::new(), |reply, row| reply.message(1, &self.record(row)));
        reply.number(2, rows.len() as u64).number(3, self.matching)
    }

    /// Lines of CSV.
    pub fn lines(&self) -> String {
        let line = |row: &&[String]| {
            let values: Vec<String> = row.iter().map(|value| as_needed(value)).collect();
            let line = values.join(",");
            if line.is_empty() { "\"\"\n".to_owned() } else { line + "\n" }
        };
        self.rows.iter().map(line).collect()
    }

    /// `ReaderResponseString`.
    pub fn string(&self) -> Message {
        let reply = Message::new().bytes(1, self.lines().as_bytes());
        reply.number(2, self.rows.len() as u64).number(3, self.matching)
    }

    /// The object of `/search`.
    pub fn json(&self) -> String {
        let member = |(name, value): (&String, &String)| format!("{}:{}", json(name), json(value));
        let object = |row: &&[String]| {
            let members: Vec<String> = self.table.names.iter().zip(row.iter()).map(member).collect();
            format!("{{{}}}", members.join(","))
        };
        let records: Vec<String> = self.rows.iter().map(object).collect();
        let (rows, matching) = (self.rows.len(), self.matching);
        format!("{{\"records\":[{}],\"num_record\":{rows},\"num_matching\":{matching}}}", records.join(","))
    }

    /// Refuses an answer of `bytes` bytes if it is too large.
    pub fn within(&self, bytes: usize, at: usize) -> Result<(), Fault> {
        if bytes <= at {
            return Ok(());
        }
        Err(Fault::Large(format!(
            "the answer has {bytes} bytes in {} rows, and the server's limit records.answer_bytes is {at}: ask for \
             pages with offset and limit, for a smaller result_size, or for a stream with \
             RecordStreamService/StreamRecords",
            self.rows.len()
        )))
    }
}

pub const NO_FILE: &str = "the server has no records: name a CSV file with the setting records.csv and start it again";

/// A JSON string.
pub fn json(text: &str) -> String {
    let mut out = String::from("\"");
    for sign in text.chars() {
        match sign {
            '"' | '\\' => out.extend(['\\', sign]),
            '\u{8}' => out += "\\b",
            '\u{c}' => out += "\\f",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            '\0'..'\u{20}' => out += &format!("\\u{:04x}", u32::from(sign)),
            _ => out.push(sign),
        }
    }
    out + "\""
}
