//! HTTP/1.1 on the port that speaks gRPC, and bytes that are neither.

use std::{
    collections::HashSet,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::{Duration, SystemTime},
};

use bookstore::grpc::wire::HelloRequest;
use quire_rpc::{Request, client::Path};

use crate::common::{
    PATIENCE, http, poll,
    process::{Server, Start},
    store::{BOOK, folder, one},
};

#[test]
fn healthz_says_ok_and_an_unknown_path_is_404() {
    let folder = folder();
    let server = Server::start(folder.path());
    let page = http::get(server.address, "/healthz");
    assert_eq!((page.status, &*page.body), (200, "ok\n"));
    let nothing = http::get(server.address, "/nothing");
    assert_eq!((nothing.status, &*nothing.body), (404, "there is nothing at this path; / lists what is here\n"));
}

#[test]
fn the_page_at_the_root_lists_what_is_served_and_not_what_is_off() {
    let folder = folder();
    let server = Server::start(folder.path());
    let page = http::get(server.address, "/");
    assert!(page.status == 200 && page.head.contains("text/plain"), "{}", page.head);
    assert!(page.body.starts_with(&format!("quire {}\n", env!("CARGO_PKG_VERSION"))), "{}", page.body);
    for line in ["bookstore.BookStore: ", "io.grpc.KeyValueService: ", "grpc.health.v1.Health: Check", "Other ports:"] {
        assert!(page.body.contains(line), "no {line} in\n{}", page.body);
    }
    // Each listed path exists; those of the records need parameters or a file.
    let paths: Vec<&str> = page.body.lines().filter_map(|line| line.trim_start().split(' ').next()).collect();
    let paths: Vec<&str> = paths.into_iter().filter(|word| word.starts_with('/')).collect();
    assert!(paths.len() >= 5, "{}", page.body);
    for path in paths {
        let path = path.replace("entries/{tile}", "entries/000.p/1").replace("{tile}", "0/000.p/1");
        assert_ne!(http::get(server.address, &path).status, 404, "{path}");
    }
    let off = ["kv.enabled=false", "records.enabled=false", "tasks.enabled=false", "rpcgame.enabled=false"];
    let server = off.iter().fold(Start::default(), |start, set| start.set(set)).serve(folder.path());
    let page = http::get(server.address, "/").body;
    for word in ["KeyValue", "/search", "tasks", "ports", "RPC game"] {
        assert!(!page.contains(word), "{word} in\n{page}");
    }
}

#[test]
fn a_browser_gets_the_root_page_as_html_with_links() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html,*/*;q=0.8\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("text/html; charset=utf-8"), "{answer}");
    assert!(answer.contains("<a href=\"/healthz\">/healthz</a>"), "{answer}");
}

#[test]
fn pages_of_the_origins_in_the_settings_may_call_and_others_may_not() {
    let folder = folder();
    let allowed_by = |server: &Server, origin: &str| {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!(
            "OPTIONS /bookstore.BookStore/Hello HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n\
             Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.to_lowercase().contains(&format!("access-control-allow-origin: {origin}\r\n"))
    };
    let closed = Server::start(folder.path());
    assert!(!allowed_by(&closed, "https://shop.example"));
    closed.stop();
    let listed = Start::default().set("server.cors_origins=https://shop.example,http://localhost:5173");
    let listed = listed.serve(folder.path());
    assert!(allowed_by(&listed, "https://shop.example") && allowed_by(&listed, "http://localhost:5173"));
    assert!(!allowed_by(&listed, "https://shop.example.evil.example"));
    listed.stop();
    assert!(allowed_by(&Start::default().set("server.cors_origins=*").serve(folder.path()), "https://any.example"));
}

/// The families of a page with their types; each has its help, and no other lines are there than those of our families.
fn families(page: &str) -> HashSet<&str> {
    let (mut families, mut described) = (HashSet::new(), "");
    for line in page.lines() {
        let named = line.strip_prefix("# HELP ").or(line.strip_prefix("# TYPE ")).unwrap_or(line);
        let is_ours = ["quire_", "process_"].iter().any(|prefix| named.starts_with(prefix));
        let is_open = page.ends_with("# EOF\n") && (line == "# EOF" || line.starts_with("# UNIT"));
        assert!((is_ours || is_open) && !named.starts_with("quire_quire_"), "{line}");
        if let Some(help) = line.strip_prefix("# HELP ") {
            described = help;
        }
        if let Some(family) = line.strip_prefix("# TYPE ") {
            assert!(families.insert(family), "twice: {line}");
            let name = family.split(' ').next().unwrap_or_default();
            assert!(described.strip_prefix(name).is_some_and(|help| help.len() > 5), "{line} after {described}");
        }
    }
    families
}

#[tokio::test]
async fn metrics_are_open_metrics_if_that_is_accepted_and_otherwise_the_format_before() {
    let folder = folder();
    let server = Server::start(folder.path());
    server.shop().buy(one(BOOK)).await.expect("an answer");
    server.shop().buy(one(1)).await.expect("an answer");
    // As Prometheus 2 and 3 do.
    let accepted = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                    text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let page = http::get_as(server.address, "/metrics", accepted);
    assert!(page.head.contains("application/openmetrics-text; version=1.0.0"), "{}", page.head);
    assert!(page.body.ends_with("# EOF\n"));
    let older = http::get(server.address, "/metrics");
    assert!(older.head.contains("text/plain; version=0.0.4"), "{}", older.head);
    let (families, older) = (families(&page.body), families(&older.body));
    assert_eq!(families.len(), older.len());
    let families_and_older = [
        ("quire_purchases counter", "quire_purchases_total counter"),
        ("process_cpu_seconds counter", "process_cpu_seconds_total counter"),
        ("quire_build info", "quire_build_info gauge"),
        ("quire_books gauge", "quire_books gauge"),
        ("quire_grpc_call_duration_seconds histogram", "quire_grpc_call_duration_seconds histogram"),
    ];
    for (family, as_older) in families_and_older {
        assert!(families.contains(family) && older.contains(as_older), "{family} {as_older}");
    }
    let value = |series: &str| http::metric(server.address, series);
    let (version, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let build = format!("quire_build_info{{version=\"{version}\",profile=\"{profile}\",arch=\"{arch}\"}}");
    assert_eq!(value(&build), 1);
    assert_eq!(value("quire_purchases_total{outcome=\"bought\"}"), 1);
    assert_eq!(value("quire_purchases_total{outcome=\"no_such_book\"}"), 1);
    assert_eq!(value("quire_books"), 4);
    assert_eq!(value("quire_log_number"), 5);
    assert_eq!(value("quire_store_healthy"), 1);
    assert_eq!(value("quire_purchases_queued"), 0);
    assert_eq!(value("quire_grpc_calls_total{method=\"/bookstore.BookStore/Buy\",code=\"Ok\"}"), 2);
}

/// The number at the end of the one line with this prefix.
fn number(page: &str, series: &str) -> f64 {
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = lines.next().unwrap_or_else(|| panic!("no {series} in\n{page}"));
    assert_eq!(lines.next(), None, "{series} is there twice");
    value.parse().expect("a number")
}

#[tokio::test]
async fn each_call_is_in_its_methods_histogram() {
    let folder = folder();
    let server = Server::start(folder.path());
    for _ in 0..3 {
        server.shop().buy(one(BOOK)).await.expect("an answer");
    }
    let page = http::get(server.address, "/metrics").body;
    let series = |part: &str, labels: &str| {
        number(
            &page,
            &format!("quire_grpc_call_duration_seconds_{part}{{{labels}method=\"/bookstore.BookStore/Buy\"}}"),
        )
    };
    let within = |bound: &str| series("bucket", &format!("le=\"{bound}\","));
    assert_eq!((series("count", ""), within("+Inf")), (3.0, 3.0));
    // A purchase waits for the disk, so none took almost no time.
    assert!(series("sum", "") > 0.0 && within("0.000001") == 0.0, "{page}");
    assert!(!page.contains("_bucket{le=\"+Inf\",method=\"/bookstore.BookStore/Lookup\"}"), "{page}");
}

/// The methods that the page `/` lists, as paths.
fn methods(page: &str) -> Vec<&'static str> {
    let lines = page.lines().skip_while(|line| !line.starts_with("gRPC")).skip(1);
    let services = lines.map_while(|line| line.strip_prefix("  ")?.split_once(": "));
    let paths = services
        .flat_map(|(service, methods)| methods.split(", ").map(move |method| &*format!("/{service}/{method}").leak()));
    paths.collect()
}

#[tokio::test]
async fn every_method_that_is_served_is_counted_by_its_name_and_a_made_up_one_as_other() {
    let folder = folder();
    let server = Server::start(folder.path());
    let methods = methods(&http::get(server.address, "/").body);
    assert!(methods.len() > 20, "{methods:?}");
    let channel = server.channel();
    let call = async |path: &'static str| {
        let mut request = Request::new(());
        // Some calls would never end.
        request.set_timeout(Duration::from_millis(200));
        drop(channel.unary::<(), (), _>(Path::named(path), request).await);
    };
    futures_util::future::join_all(methods.iter().map(|path| call(path))).await;
    let counted = |page: &str, method: &str| page.contains(&format!("quire_grpc_calls_total{{method=\"{method}\""));
    let page = poll("every count", async || {
        let page = http::get(server.address, "/metrics").body;
        methods.iter().all(|method| counted(&page, method)).then_some(page)
    });
    assert!(!counted(&page.await, "other"));
    call("/made.Up/Name").await;
    assert!(counted(&http::get(server.address, "/metrics").body, "other"));
}

#[test]
fn the_process_tells_its_cpu_memory_files_and_age() {
    let folder = folder();
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let server = Server::start(folder.path());
    let page = http::get(server.address, "/metrics").body;
    let start = number(&page, "process_start_time_seconds");
    assert!((before - 1.0..before + PATIENCE.as_secs_f64()).contains(&start), "{start}, and before was {before}");
    assert!(number(&page, "process_resident_memory_bytes") > 1e6);
    assert!(number(&page, "process_open_fds") > 3.0);
    let used = number(&page, "process_cpu_seconds_total");
    assert!(used > 0.0);
    let later = number(&http::get(server.address, "/metrics").body, "process_cpu_seconds_total");
    assert!(later > used, "{later} after {used}, and a page was made in between");
}

#[test]
fn a_connection_is_used_for_many_requests() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is taken");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok\n") {
            let mut bytes = [0; 512];
            let read = stream.read(&mut bytes).expect("an answer");
            assert!(read > 0, "closed after {}", String::from_utf8_lossy(&answer));
            answer.extend(&bytes[..read]);
        }
    }
}

#[tokio::test]
async fn bytes_that_mean_nothing_disturb_no_one() {
    let folder = folder();
    let server = Server::start(folder.path());
    let shop = server.shop();
    shop.hello(HelloRequest::default()).await.expect("an answer");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let nonsense: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x00",
        b"hello there\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        &[preface, &[0xff; 64][..]].concat(),
        &preface[..10],
    ];
    for bytes in nonsense {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(bytes).expect("it is taken");
        stream.shutdown(Shutdown::Write).expect("it can be said that there is no more");
        // Whatever the answer, the connection ends.
        let _ = stream.read_to_end(&mut Vec::new());
        shop.hello(HelloRequest::default()).await.expect("an answer");
    }
    assert_eq!(http::get(server.address, "/healthz").status, 200);
}
