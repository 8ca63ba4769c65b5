//! Python's http.server as a judge: it parses our requests by its own rules.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::server::Client;

struct Judge {
    process: Child,
    address: String,
}

impl Judge {
    fn start(folder: &std::path::Path, protocol: &str) -> Self {
        let mut process = Command::new("python3")
            .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--protocol", protocol])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 is needed for this test");
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("its first line");
        let port = line.split_whitespace().skip_while(|word| *word != "port").nth(1).expect("its port");
        let address = format!("127.0.0.1:{port}");
        Self { process, address }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "needs python3; `make judges` runs it"]
fn pythons_server_answers_us_with_and_without_keep_alive() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("book 1.txt"), vec![b'x'; 300_000]).unwrap();
    let rows = folder.path().join("rows.csv");
    std::fs::write(&rows, "name,wanted\nbook 1.txt,200\nno such,404\n").unwrap();
    for protocol in ["HTTP/1.0", "HTTP/1.1"] {
        let judge = Judge::start(folder.path(), protocol);
        let url = format!("http://{}/{{{{row.name}}}}", judge.address);
        for (method, wanted) in [("GET", ["200", "404"]), ("HEAD", ["200", "404"]), ("BREW", ["501", "501"])] {
            let client = Client::new(&[&url, "-X", method, "--rows", rows.to_str().unwrap()]);
            let endings: Vec<String> = (0..6).map(|number| client.ending(number)).collect();
            assert_eq!(endings, [wanted, wanted, wanted].concat(), "{method} by {protocol}");
        }
    }
}
