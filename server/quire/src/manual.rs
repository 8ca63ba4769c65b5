//! Writes the completions for shells and the manual pages of `quire` and `quire-bench` into a folder, for packages. An
//! example, so that neither program holds them.

#![expect(
    dead_code,
    unused_imports,
    reason = "the command line as `quire` has it, of which only the flags and their help are used"
)]

mod cli;
mod services;

use std::{
    env, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

fn main() -> io::Result<()> {
    let folder =
        env::args_os().nth(1).ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "usage: manual FOLDER"))?;
    write(&PathBuf::from(folder))
}

/// Writes `completions/` and `man/`.
fn write(folder: &Path) -> io::Result<()> {
    // It parses its own arguments.
    let quire = cli::Cli::command().mut_subcommand("client", |_| quire_client::cli::flags("client"));
    let [completions, man] = ["completions", "man"].map(|name| folder.join(name));
    fs::create_dir_all(&completions)?;
    fs::create_dir_all(&man)?;
    for program in [quire, bench::cli::Cli::command()] {
        let name = program.get_name().to_owned();
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            clap_complete::generate_to(shell, &mut program.clone(), &name, &completions)?;
        }
        let mut program = program.disable_help_subcommand(true);
        program.build();
        write_pages(&program, &man)?;
    }
    Ok(())
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands() {
        write_pages(subcommand, folder)?;
    }
    let (page, mut text) = (Man::new(command.clone()), Vec::new());
    page.render(&mut text)?;
    fs::write(folder.join(page.get_filename()), as_it_is(&String::from_utf8_lossy(&text)))
}

/// A page whose notes keep their lines: they are tables.
fn as_it_is(page: &str) -> String {
    let Some((before, notes)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let (notes, after) = notes.split_at(notes.find("\n.SH ").map_or(notes.len(), |end| end + 1));
    format!("{before}.SH NOTES\n.nf\n{notes}.fi\n{after}")
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    fn written() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path()).expect("files");
        folder
    }

    fn bash(script: &str, folder: &Path) -> String {
        let mut bash = process::Command::new("bash");
        let ended = bash.args(["-c", script]).current_dir(folder).output().expect("bash runs");
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
        String::from_utf8(ended.stdout).expect("text")
    }

    #[test]
    fn bash_accepts_the_completions_and_completes_with_them() {
        let folder = written();
        let complete = |program: &str, word: &str| {
            let script = format!(
                "bash -n completions/{program}.bash && source completions/{program}.bash && COMP_CWORD=1 && \
                 COMP_WORDS=({program} {word}) && $(complete -p {program} | sed 's/.* -F \\([^ ]*\\) .*/\\1/') \
                 {program} {word} {program} && echo ${{COMPREPLY[@]}}"
            );
            bash(&script, folder.path())
        };
        assert_eq!(complete("quire", "se"), "serve\n");
        assert_eq!(complete("quire-bench", "sw"), "sweep\n");
        for file in ["_quire", "_quire-bench", "quire.fish", "quire-bench.fish"] {
            assert!(folder.path().join("completions").join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn each_command_has_a_page_with_its_flags_and_tables() {
        let folder = written();
        let page = |name: &str| fs::read_to_string(folder.path().join("man").join(name)).expect("a page");
        for name in ["quire.1", "quire-serve.1", "quire-config-check.1", "quire-bench.1", "quire-bench-grpc.1"] {
            let page = page(name);
            assert!(page.contains("\n.TH ") && page.contains("\n.SH NAME\n"), "{page}");
        }
        assert!(page("quire-serve.1").contains("\\-\\-records\\-csv"));
        let client = page("quire-client.1");
        let notes = client.split_once("\n.SH NOTES\n.nf\n").expect("notes").1;
        assert!(notes.split_once("\n.fi\n").is_some_and(|(notes, _)| notes.contains("\n  buy ")), "{notes}");
    }
}
