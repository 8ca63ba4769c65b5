//! Generator of any number of fictitious parking tickets of a city; equal seeds give equal tickets on every machine.
//!
//! The columns are as varied as a real file's: numbers that occur once, codes of two letters, names that a few hundred
//! rows share, notes with commas, quotes and line ends.

mod words;

use std::fmt::Write as _;
use std::io;

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;

use self::words::{
    BODIES, COLOURS, COUNTIES, MAKES, NOTES, OWNERS, PLATE_TYPES, STATES, STREETS, SUFFIXES, VIOLATIONS,
};

/// The header.
pub const COLUMNS: [&str; 21] = [
    "summons_number",
    "issue_date",
    "issue_time",
    "plate_id",
    "registration_state",
    "plate_type",
    "owner",
    "vehicle_make",
    "vehicle_body_type",
    "vehicle_colour",
    "vehicle_year",
    "violation_code",
    "violation_description",
    "fine_dollars",
    "precinct",
    "officer",
    "county",
    "house_number",
    "locations1",
    "locations2",
    "notes",
];

/// The value of `locations1` with a known share of rows.
pub const KNOWN_STREET: &str = "Jacobs";
/// Number of rows per occurrence of [`KNOWN_STREET`].
pub const KNOWN_STREET_EVERY: u64 = 200;

/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 256 << 10;
const FIRST_SUMMONS: u64 = 1_400_000_000;

/// Writes the header and `rows` tickets. In each block of [`KNOWN_STREET_EVERY`] rows a random one has [`KNOWN_STREET`]
/// in the column `locations1`, and no other row has.
pub fn tickets(out: impl io::Write, rows: u64, seed: u64) -> io::Result<()> {
    write(out, rows, seed).map_err(|error| match error.into_kind() {
        // As the writer below has it: `csv` would hide its kind.
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    })
}

fn write(out: impl io::Write, rows: u64, seed: u64) -> csv::Result<()> {
    let mut random = Random(Xoshiro256StarStar::seed_from_u64(seed));
    let mut out = csv::WriterBuilder::new().buffer_capacity(BUFFER_BYTES).from_writer(out);
    out.write_record(COLUMNS)?;
    let (mut summons, mut scratch, mut known) = (FIRST_SUMMONS, String::new(), 0);
    for row in 0..rows {
        let place = row % KNOWN_STREET_EVERY;
        if place == 0 {
            known = random.number(KNOWN_STREET_EVERY);
        }
        summons += 1 + random.number(9);
        ticket(&mut out, &mut random, &mut scratch, summons, place == known)?;
        out.write_record(None::<&[u8]>)?;
    }
    Ok(out.flush()?)
}

/// One row, without its end.
fn ticket(
    out: &mut csv::Writer<impl io::Write>,
    random: &mut Random,
    scratch: &mut String,
    summons: u64,
    is_known_street: bool,
) -> csv::Result<()> {
    let mut made = |out: &mut csv::Writer<_>, text: std::fmt::Arguments<'_>| {
        scratch.clear();
        // Writing to a string cannot fail.
        let _ = scratch.write_fmt(text);
        out.write_field(&scratch)
    };
    made(out, format_args!("{summons}"))?;
    let (year, month) = (2022 + random.number(3), 1 + random.number(12));
    made(out, format_args!("{year}-{month:02}-{:02}", 1 + random.number(days_of(year, month))))?;
    made(out, format_args!("{:02}:{:02}", random.number(24), random.number(60)))?;
    let letter = |random: &mut Random| char::from(b"ABCDEFGHJKLMNPRSTUVWXYZ"[random.below(23)]);
    let letters = [letter(random), letter(random), letter(random)];
    made(out, format_args!("{}{}{}{:04}", letters[0], letters[1], letters[2], random.number(10_000)))?;
    out.write_field(random.popular(&STATES))?;
    out.write_field(random.popular(&PLATE_TYPES))?;
    // Few owners are firms.
    out.write_field(if random.number(12) == 0 { random.pick(&OWNERS) } else { "" })?;
    out.write_field(random.popular(&MAKES))?;
    out.write_field(random.popular(&BODIES))?;
    out.write_field(random.popular(&COLOURS))?;
    made(out, format_args!("{}", 1996 + random.number(30).max(random.number(30))))?;
    let (code, description, dollars) = VIOLATIONS[random.low(VIOLATIONS.len())];
    made(out, format_args!("{code}"))?;
    out.write_field(description)?;
    made(out, format_args!("{dollars}.00"))?;
    made(out, format_args!("{}", 1 + random.number(77)))?;
    made(out, format_args!("{:06}", 340_000 + 7 * random.number(3_000)))?;
    out.write_field(random.popular(&COUNTIES))?;
    // Some tickets are written at a crossing, where there is no house.
    if random.number(5) == 0 {
        out.write_field("")?;
    } else {
        made(out, format_args!("{}", 1 + random.number(900) * 2))?;
    }
    let (street, other) = (random.low(STREETS.len()), random.low(STREETS.len()));
    let (suffix, other_suffix) = (random.pick(&SUFFIXES), random.pick(&SUFFIXES));
    if is_known_street {
        out.write_field(KNOWN_STREET)?;
    } else {
        made(out, format_args!("{} {suffix}", STREETS[street]))?;
    }
    match random.number(4) {
        0 => made(
            out,
            format_args!(
                "{} ft, {} of {}",
                5 * random.number(40),
                ["N", "S", "E", "W"][random.below(4)],
                STREETS[other]
            ),
        )?,
        1 => made(out, format_args!("{} {other_suffix}", STREETS[other]))?,
        _ => out.write_field("")?,
    }
    match random.number(8) {
        0 => out.write_field(random.pick(&NOTES)),
        _ => out.write_field(""),
    }
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

struct Random(Xoshiro256StarStar);

impl Random {
    /// A number below `bound`, which is small, so the remainder's bias is too.
    fn number(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number(u64::try_from(bound).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    /// Like [`Self::below`], favouring small numbers, as few streets have most of the tickets.
    fn low(&mut self, bound: usize) -> usize {
        self.below(bound).min(self.below(bound))
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }

    /// A word of a list that begins with the most popular ones.
    fn popular<'t>(&mut self, from: &[&'t str]) -> &'t str {
        let highest = self.low(from.len());
        from[self.below(highest + 1)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn file(rows: u64, seed: u64) -> Vec<u8> {
        let mut out = Vec::new();
        tickets(&mut out, rows, seed).expect("memory takes it");
        out
    }

    fn read(file: &[u8]) -> Vec<Vec<String>> {
        let rows = csv::Reader::from_reader(file).into_records();
        rows.map(|row| row.expect("a row of the header's length").iter().map(str::to_owned).collect()).collect()
    }

    fn column(name: &str) -> usize {
        COLUMNS.iter().position(|column| *column == name).expect("there")
    }

    #[test]
    fn the_same_seed_makes_the_same_file_and_another_seed_another() {
        assert_eq!(file(500, 7), file(500, 7));
        assert_ne!(file(500, 7), file(500, 8));
    }

    #[test]
    fn a_longer_file_begins_with_the_shorter_one() {
        assert!(file(1_000, 1).starts_with(&file(333, 1)));
    }

    #[test]
    fn one_row_of_each_two_hundred_has_the_known_street() {
        let rows = read(&file(20_000, 3));
        assert_eq!(rows.len(), 20_000);
        let has = |row: &&Vec<String>| row[column("locations1")] == KNOWN_STREET;
        for block in rows.chunks(200) {
            assert_eq!(block.iter().filter(has).count(), 1);
        }
        let places: HashSet<_> = rows.iter().enumerate().filter(|(_, row)| has(row)).map(|(at, _)| at % 200).collect();
        assert!(places.len() > 50, "spread over the file, not one of each 200 at the same place: {places:?}");
        let other = rows.iter().flat_map(|row| row.iter().enumerate()).filter(|(_, field)| *field == KNOWN_STREET);
        assert!(other.clone().all(|(at, _)| at == column("locations1")) && other.count() == 100);
    }

    #[test]
    fn a_part_of_two_hundred_rows_has_the_known_street_at_most_once() {
        for rows in [0, 1, 199, 201, 399] {
            let count = read(&file(rows, 5)).iter().filter(|row| row[column("locations1")] == KNOWN_STREET).count();
            let rows = usize::try_from(rows).expect("few");
            assert!((rows / 200..=rows.div_ceil(200)).contains(&count), "{count} of {rows}");
        }
    }

    #[test]
    fn fields_need_quotes_here_and_there_and_some_are_empty() {
        let file = file(5_000, 1);
        let text = std::str::from_utf8(&file).expect("UTF-8");
        assert!(!text.is_ascii());
        let rows = read(&file);
        for sign in [',', '"', '\n'] {
            assert!(rows.iter().flatten().any(|field| field.contains(sign)), "{sign:?}");
        }
        for name in ["owner", "house_number", "locations2", "notes"] {
            let empty = rows.iter().filter(|row| row[column(name)].is_empty()).count();
            assert!((1..5_000).contains(&empty), "{name}: {empty}");
        }
    }

    #[test]
    fn columns_are_from_unique_to_hardly_varied() {
        let rows = read(&file(5_000, 1));
        let distinct = |name| rows.iter().map(|row| &row[column(name)]).collect::<HashSet<_>>().len();
        assert_eq!(distinct("summons_number"), 5_000);
        assert!(distinct("plate_id") > 4_900);
        assert!((100..1_000).contains(&distinct("locations1")), "{}", distinct("locations1"));
        assert!(distinct("county") <= 5);
    }
}
