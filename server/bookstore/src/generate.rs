//! Generates catalogues of any size, reproducible by seed on every machine.

use std::{
    io::{self, Write},
    sync::LazyLock,
};

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;

use crate::{
    exchange::{COLUMNS, writing},
    money::Cents,
};

type Words = LazyLock<Vec<&'static str>>;

fn list(words: &'static str) -> Vec<&'static str> {
    words.split(", ").collect()
}

static FIELDS: Words = Words::new(|| {
    list(
        "distributed systems, databases, compilers, operating systems, computer networks, cryptography, machine \
         learning, computer graphics, algorithms, type theory, college life, cooking, gardening, photography, music \
         theory, world history, astronomy, chemistry, economics, philosophy, poetry, travel, architecture, \
         linguistics",
    )
});

static ANGLES: Words = Words::new(|| {
    list(
        ", advanced, applied, biographies in, case studies in, classics of, exercises in, experimental, history of, \
         introductory, modern, research in, teaching",
    )
});

static OPENINGS: Words = Words::new(|| {
    list(
        "A Field Guide to, A Short History of, Achieving More with, An Introduction to, Beyond, Essays on, \
         Fundamentals of, Hands-On, How I Learned to Love, Lectures on, Notes on, Rethinking, Surviving, The Art of, \
         The Little Book of, Understanding",
    )
});

static SUBJECTS: Words = Words::new(|| {
    list(
        "Consensus, Caches, Parsers, Schedulers, Sockets, Ciphers, Gradients, Shaders, Graphs, Proofs, Dormitories, \
         Soups, Orchids, Shadows, Harmony, Empires, Comets, Catalysts, Markets, Paradoxes, Sonnets, Railways, \
         Cathedrals, Vowels, Queues, Clocks, Ledgers, Failure, Latency, Silence, Rivers, Bread, Winter, Islands, \
         Memory, Bridges, Numbers, Maps, Letters, Machines",
    )
});

static COMPANIONS: Words = Words::new(|| {
    list(
        "for Beginners, for the Impatient, in Practice, from First Principles, without Tears, at Scale, in the Small \
         Hours, and Other Stories, by Example, under Pressure, after Dark, Revisited",
    )
});

static SURNAMES: Words = Words::new(|| {
    list(
        "Okafor, Lindqvist, Tanaka, Moreau, O'Brien, Kowalski, Haddad, Silva, Nguyen, Petrov, García, Ström, Achebe, \
         Novák",
    )
});

/// A number below `bound`, which is small, so the modulo bias is too.
fn below(random: &mut Xoshiro256StarStar, bound: usize) -> usize {
    let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
    usize::try_from(random.next_u64() % bound).unwrap_or(0)
}

fn pick<'t>(random: &mut Xoshiro256StarStar, from: &[&'t str]) -> &'t str {
    from[below(random, from.len())]
}

fn title(random: &mut Xoshiro256StarStar) -> String {
    let (opening, subject) = (pick(random, &OPENINGS), pick(random, &SUBJECTS));
    let mut title = format!("{opening} {subject}");
    match below(random, 8) {
        0 | 1 => title = format!("{title} {}", pick(random, &COMPANIONS)),
        2 => title = format!("{title} and {}", pick(random, &SUBJECTS)),
        3 => title = format!("{title}, Edition {}", 2 + below(random, 8)),
        4 => title = format!("{title}: the \"{}\" Lectures", pick(random, &SURNAMES)),
        5 => title = format!("{}'s {title}", pick(random, &SURNAMES)),
        _ => {}
    }
    title
}

/// The smaller of two picks, so that few topics are popular, as in a real shop.
fn topic(random: &mut Xoshiro256StarStar) -> String {
    let (field, other) = (below(random, FIELDS.len()), below(random, FIELDS.len()));
    let (angle, again) = (below(random, ANGLES.len()), below(random, ANGLES.len()));
    format!("{} {}", ANGLES[angle.min(again)], FIELDS[field.min(other)]).trim().to_owned()
}

/// Writes a header and `rows` books with ids from `first_id` on, some left out.
pub fn catalogue(out: impl Write, first_id: i32, rows: u64, seed: u64) -> io::Result<()> {
    let mut random = Xoshiro256StarStar::seed_from_u64(seed);
    let mut out = csv::Writer::from_writer(out);
    out.write_record(COLUMNS).map_err(writing)?;
    let mut id = i64::from(first_id);
    for _ in 0..rows {
        let stock = below(&mut random, 200).min(below(&mut random, 200));
        let whole = 4 + below(&mut random, 40) + below(&mut random, 40);
        let cents = i64::try_from(whole * 100).unwrap_or(0) + [0, 50, 90, 95, 99][below(&mut random, 5)];
        let price = Cents::new(cents).unwrap_or_default();
        let (title, topic) = (title(&mut random), topic(&mut random));
        let row = [&id.to_string(), &title, &topic, &stock.to_string(), &price.to_string()];
        out.write_record(row).map_err(writing)?;
        id += 1 + i64::from(below(&mut random, 4) == 0);
        if id > i64::from(i32::MAX) {
            return Err(io::Error::other("so many rows have no ids left; ids end at 2147483647"));
        }
    }
    out.flush()
}
