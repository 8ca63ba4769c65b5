//! Library calls for each kind of request.

use std::{error::Error as StdError, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use quire_client::{
    Book, Cents, Created, Deleted, Entry, Error, Event, Items, Key, LogEntry, Order, Outcome, Reservation, Reserved,
    Updated,
};
use serde_json::{Value, json};

use crate::Driver;

pub(crate) async fn answer(driver: &Driver, request: &Value) -> Value {
    let call = request["call"].as_str().unwrap_or_default();
    let answered = match call {
        "list" | "restock" | "update_price" | "log" | "tail_log" => operate(driver, call, request).await,
        "create" | "put" | "get" | "update" | "delete" | "scan" | "watch" => keep(driver, call, request).await,
        _ => shop(driver, call, request).await,
    };
    answered.unwrap_or_else(|error| {
        let kind = match error {
            Error::Argument(_) => return json!({ "error": "argument", "message": error.to_string() }),
            Error::Unreachable(_) => "unreachable",
            Error::OutcomeUnknown(_) => "outcome_unknown",
            _ => "refused",
        };
        match error.fault() {
            Some(fault) => {
                let mut answer = json!({ "error": kind, "code": fault.code.name(), "message": fault.to_string() });
                if request["cause"] == true {
                    answer["cause"] = root(&error).to_string().into();
                }
                answer
            }
            None => json!({ "error": kind, "message": error.to_string() }),
        }
    })
}

fn root<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    error.source().map_or(error, root)
}

fn wrong(name: &str, value: &Value) -> Error {
    Error::Argument(format!("{name} is {value}"))
}

/// A text; empty if absent.
fn text<'a>(request: &'a Value, name: &str) -> Result<&'a str, Error> {
    match &request[name] {
        Value::Null => Ok(""),
        value => value.as_str().ok_or_else(|| wrong(name, value)),
    }
}

/// Bytes; empty if absent.
fn bytes(request: &Value, name: &str) -> Result<Vec<u8>, Error> {
    STANDARD.decode(text(request, name)?).map_err(|_| wrong(name, &request[name]))
}

/// An optional number in the range of its type.
fn number<T: TryFrom<i64>>(request: &Value, name: &str) -> Result<Option<T>, Error> {
    match &request[name] {
        Value::Null => Ok(None),
        value => match value.as_i64().and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, value)),
        },
    }
}

fn needed<T: TryFrom<i64>>(request: &Value, name: &str) -> Result<T, Error> {
    number(request, name)?.ok_or_else(|| wrong(name, &Value::Null))
}

fn ids(books: Vec<Book>) -> Vec<i32> {
    books.into_iter().map(|book| book.id).collect()
}

async fn shop(driver: &Driver, call: &str, request: &Value) -> Result<Value, Error> {
    let client = driver.client(request);
    Ok(match call {
        "ping" => json!({ "message": client.ping().await? }),
        "search" => json!({ "ids": ids(client.search(text(request, "topic")?).all().await?) }),
        "topics" => {
            let topics = match text(request, "near")? {
                "" => client.topics().all().await?,
                near => client.topics_near(near).await?,
            };
            json!({ "names": topics.into_iter().map(|topic| topic.name).collect::<Vec<_>>() })
        }
        "lookup" => json!({ "book": client.lookup(needed(request, "id")?).await?.as_ref().map(book) }),
        "buy" => {
            let purchase = client.buy(order(request)?).await?;
            let mut answer = json!({ "key": purchase.key.as_str(), "replayed": purchase.replayed });
            if let Some(left) = purchase.stock_left {
                answer["stock_left"] = left.into();
            }
            answer["outcome"] = match purchase.outcome {
                Outcome::Bought { number } => {
                    answer["number"] = number.into();
                    "bought"
                }
                Outcome::SoldOut => "sold_out",
                Outcome::TooFew => "too_few",
                Outcome::NoSuchBook => "no_such_book",
                Outcome::Unknown(_) => "unknown",
                _ => "not_bought",
            }
            .into();
            answer
        }
        "receipt" => {
            let found = client.receipt(needed(request, "number")?, &key(request)?).await?;
            let (receipt, log_key) = found.map(|found| (found.text, found.log_key)).unzip();
            json!({ "receipt": receipt, "log_key": log_key })
        }
        "reserve" => {
            let time = number(request, "seconds")?.map(Duration::from_secs);
            reservation(&client.reserve(order(request)?, time).await?)
        }
        "confirm" => reservation(&client.confirm(&key(request)?).await?),
        "release" => reservation(&client.release(&key(request)?).await?),
        _ => return Err(Error::Argument(format!("there is no call '{call}'"))),
    })
}

fn key(request: &Value) -> Result<Key, Error> {
    Key::new(text(request, "key")?)
}

fn order(request: &Value) -> Result<Order, Error> {
    let order = Order::of(needed(request, "id")?).quantity(number(request, "quantity")?.unwrap_or(1));
    Ok(if request["key"].is_null() { order } else { order.key(key(request)?) })
}

fn reservation(reservation: &Reservation) -> Value {
    let outcome = match reservation.outcome {
        Reserved::Held => "held",
        Reserved::Bought => "bought",
        Reserved::Released => "released",
        Reserved::Expired => "expired",
        Reserved::SoldOut => "sold_out",
        Reserved::TooFew => "too_few",
        Reserved::NoSuchBook => "no_such_book",
        Reserved::NoSuchReservation => "no_such_reservation",
        Reserved::Unknown(_) => "unknown",
        _ => "unspecified",
    };
    let mut answer = json!({ "outcome": outcome, "key": reservation.key.as_str(), "replayed": reservation.replayed });
    let numbers = [
        ("id", reservation.id.into()),
        ("quantity", reservation.quantity.into()),
        ("number", reservation.number),
        ("until_ms", reservation.until_ms),
    ];
    for (name, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
        answer[name] = number.into();
    }
    if let Some(left) = reservation.stock_left {
        answer["stock_left"] = left.into();
    }
    answer
}

fn book(book: &Book) -> Value {
    json!({
        "held": book.held,
        "id": book.id,
        "price_cents": book.price.0,
        "stock": book.stock,
        "title": book.title,
        "topic": book.topic,
    })
}

async fn keep(driver: &Driver, call: &str, request: &Value) -> Result<Value, Error> {
    let client = driver.client(request);
    let key = bytes(request, "key")?;
    let ttl = number(request, "ttl_ms")?.map(Duration::from_millis);
    let expected: Option<u64> = number(request, "expected_version")?;
    let outcome = |outcome: &str| Ok(json!({ "outcome": outcome }));
    match call {
        "create" => match client.create(key, bytes(request, "value")?, ttl).await? {
            Created::Version(version) => Ok(json!({ "version": version })),
            _ => outcome("exists"),
        },
        "put" => Ok(json!({ "version": client.put(key, bytes(request, "value")?, ttl).await? })),
        "update" => match client.update(key, bytes(request, "value")?, expected, ttl).await? {
            Updated::Version(version) => Ok(json!({ "version": version })),
            Updated::AnotherVersion(_) => outcome("another_version"),
            _ => outcome("no_such_key"),
        },
        "get" => {
            let Some(found) = client.get(key).await? else { return outcome("no_such_key") };
            let mut answer = json!({ "value": STANDARD.encode(&found.value), "version": found.version });
            if let Some(left) = found.time_left {
                answer["ttl_ms"] = json!(left.as_millis());
            }
            Ok(answer)
        }
        "delete" => match client.delete(key, expected).await? {
            Deleted::AnotherVersion(_) => outcome("another_version"),
            deleted => Ok(json!({ "deleted": deleted == Deleted::Done })),
        },
        "scan" => {
            let (prefix, keys_only) = (bytes(request, "prefix")?, request["keys_only"] == true);
            let entries = if keys_only { client.scan_keys(prefix) } else { client.scan(prefix) }.all().await?;
            let listed = |of: fn(&Entry) -> &[u8]| entries.iter().map(|it| STANDARD.encode(of(it))).collect::<Vec<_>>();
            let mut answer = json!({ "keys": listed(|entry| &entry.key) });
            if !keys_only {
                answer["values"] = listed(|entry| &entry.value).into();
            }
            Ok(answer)
        }
        _ => watch(driver, client.watch(bytes(request, "prefix")?).await?, request).await,
    }
}

async fn watch(driver: &Driver, mut events: Items<Event>, request: &Value) -> Result<Value, Error> {
    let wanted: usize = number(request, "events")?.unwrap_or(1);
    let (mut kinds, mut keys) = (Vec::new(), Vec::new());
    let mut is_started = false;
    while !is_started || kinds.len() < wanted {
        let Some(event) = events.try_next().await? else { break };
        let (kind, key) = match event {
            Event::Started => {
                is_started = true;
                driver.say(json!({ "started": true }), request).await;
                continue;
            }
            Event::Put { key, .. } => ("put", key),
            Event::Deleted { key, .. } => ("deleted", key),
            Event::Expired { key, .. } => ("expired", key),
            _ => continue,
        };
        kinds.push(kind);
        keys.push(STANDARD.encode(key));
    }
    Ok(json!({ "kinds": kinds, "keys": keys }))
}

async fn operate(driver: &Driver, call: &str, request: &Value) -> Result<Value, Error> {
    let operator = driver.operator(request)?;
    Ok(match call {
        "list" => json!({ "ids": ids(operator.list().all().await?) }),
        "restock" => json!({ "raised": operator.restock(number::<i32>(request, "amount")?).await? }),
        "update_price" => {
            let cents = Cents(needed(request, "cents")?);
            let change = operator.update_price(needed(request, "id")?, cents).await?;
            json!({ "before": change.map(|it| it.before.0), "after": change.map(|it| it.after.0) })
        }
        "log" => {
            let limit = number(request, "limit")?.unwrap_or(usize::MAX);
            json!({ "numbers": numbers(operator.log(), limit).await? })
        }
        _ => {
            let entries = operator.tail_log(number::<i64>(request, "after")?).await?;
            json!({ "numbers": numbers(entries, number(request, "entries")?.unwrap_or(1)).await? })
        }
    })
}

async fn numbers(mut entries: Items<LogEntry>, most: usize) -> Result<Vec<i64>, Error> {
    let mut numbers = Vec::new();
    while numbers.len() < most
        && let Some(entry) = entries.try_next().await?
    {
        numbers.push(entry.number);
    }
    Ok(numbers)
}
