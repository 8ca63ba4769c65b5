//! A channel's service config: load balancing, and deadline, retries or hedging of each method, from code or from
//! gRPC's JSON.
//!
//! Implements: gRPC's "Service Config in gRPC", its method configs; "gRPC Retry Design" (A6), "Configuration Language".

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::status::{Code, Status};

/// Attempts that a config in JSON can ask for; more are taken as this many.
const ATTEMPTS_MAX: u32 = 5;

/// Settings of methods: deadlines, retries, hedging. The most specific entry applies alone: that of the method, else of
/// its service, else the one for all.
///
/// ```
/// use quire_rpc::client::{ServiceConfig, Settings};
///
/// let service_config: ServiceConfig = r#"{
///     "methodConfig": [{
///         "name": [{ "service": "shop.Orders", "method": "Find" }],
///         "timeout": "2s",
///         "retryPolicy": {
///             "maxAttempts": 4,
///             "initialBackoff": "0.1s",
///             "maxBackoff": "1s",
///             "backoffMultiplier": 2,
///             "retryableStatusCodes": ["UNAVAILABLE"]
///         }
///     }],
///     "retryThrottling": { "maxTokens": 10, "tokenRatio": 0.1 }
/// }"#.parse()?;
/// let settings = Settings { service_config, ..Settings::default() };
/// # Ok::<(), quire_rpc::client::ServiceConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ServiceConfig {
    /// By `/package.Service/Method`, `/package.Service/`, or nothing for all.
    methods: HashMap<String, Arc<MethodConfig>>,
    throttling: Option<RetryThrottling>,
    load_balancing: LoadBalancing,
    /// The service whose health is watched.
    health_check: Option<String>,
}

/// Choice among the addresses of a channel's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalancing {
    /// Connections go to the first address that can be reached.
    PickFirst {
        /// True to try the addresses in random order.
        shuffles: bool,
    },
    /// Connections go to all addresses, and calls to those in turn that are ready.
    RoundRobin,
}

impl Default for LoadBalancing {
    fn default() -> Self {
        Self::PickFirst { shuffles: false }
    }
}

/// Settings of a method.
#[derive(Clone, Debug, Default)]
pub struct MethodConfig {
    /// Timeout of calls; a call's own, or else the channel's, applies if it is shorter.
    pub timeout: Option<Duration>,
    /// Default of [`Request::set_wait_for_ready`](crate::Request::set_wait_for_ready).
    pub wait_for_ready: Option<bool>,
    /// Further attempts of unary calls; `None`: only one.
    pub repeat: Option<Repeat>,
}

/// Repetition of a unary call.
#[derive(Clone, Debug)]
pub enum Repeat {
    /// After an attempt has failed.
    Retry(RetryPolicy),
    /// While attempts are unanswered.
    Hedge(HedgingPolicy),
}

/// Retry policy: codes, attempts and pauses.
///
/// A server can set the pause, or forbid the retry, by [`Status::with_retry_pushback`]. A call whose response has begun
/// is not retried.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// Attempts in all, including the first; 1 disables retries.
    pub attempts_max: u32,
    /// Pause before the second attempt.
    pub backoff_first: Duration,
    /// Longest pause.
    pub backoff_max: Duration,
    /// Factor of each further pause.
    pub backoff_multiplier: f64,
    /// Retryable codes.
    pub codes: Vec<Code>,
    /// True to retry only calls marked by [`Request::set_safe_to_retry`](crate::Request::set_safe_to_retry), and those
    /// that the server cannot have touched. A policy in JSON retries all calls of its methods.
    pub is_for_marked: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            backoff_first: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            backoff_multiplier: 2.0,
            codes: vec![Code::Unavailable],
            is_for_marked: true,
        }
    }
}

impl RetryPolicy {
    /// Pause before a retry: the first, the second and so on since the call began or the server set a pause. A fifth of
    /// it is random each way, so that clients that failed together do not all return at once.
    pub(super) fn pause(&self, retry: u32) -> Duration {
        let exponent = i32::try_from(retry.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.backoff_first.as_secs_f64() * self.backoff_multiplier.powi(exponent);
        let pause = Duration::try_from_secs_f64(seconds).unwrap_or(self.backoff_max).min(self.backoff_max);
        Duration::try_from_secs_f64(pause.as_secs_f64() * (0.8 + 0.4 * fastrand::f64())).unwrap_or(pause)
    }
}

/// Hedging policy: the call is sent again and again until an attempt succeeds, and the others are cancelled. For methods
/// that may run more than once.
#[derive(Clone, Debug)]
pub struct HedgingPolicy {
    /// Attempts in all, including the first; 1 disables hedging.
    pub attempts_max: u32,
    /// Pause between attempts; zero sends all at once.
    pub delay: Duration,
    /// Codes after which the other attempts go on, and the next is sent at once. Any other code ends the call.
    pub codes: Vec<Code>,
}

/// Limit of a channel's retries and hedges: while it has half of its tokens or fewer, it sends none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryThrottling {
    /// Tokens at the start, and at most. A failure that a policy covers takes one.
    pub max_tokens: u32,
    /// Tokens that a success adds, in thousandths at least.
    pub token_ratio: f64,
}

impl ServiceConfig {
    /// Sets the config of `package.Service/Method`, of all methods of `package.Service`, or with `""` of all.
    #[must_use]
    pub fn with_method(mut self, name: &str, config: MethodConfig) -> Self {
        self.methods.insert(key(name), Arc::new(config));
        self
    }

    /// Sets the limit of retries and hedges.
    #[must_use]
    pub fn with_throttling(mut self, throttling: RetryThrottling) -> Self {
        self.throttling = Some(throttling);
        self
    }

    /// Sets the load balancing.
    #[must_use]
    pub fn with_load_balancing(mut self, policy: LoadBalancing) -> Self {
        self.load_balancing = policy;
        self
    }

    /// Makes round robin use only servers that report by gRPC's health service that they serve `service` (empty: the
    /// server), and those without the health service. Needs HTTP/2; `pick_first` ignores it.
    #[must_use]
    pub fn with_health_check(mut self, service: impl Into<String>) -> Self {
        self.health_check = Some(service.into());
        self
    }

    /// The service whose health is checked, if the load balancing does so.
    pub(super) fn health_check(&self) -> Option<&str> {
        self.health_check.as_deref().filter(|_| self.load_balancing == LoadBalancing::RoundRobin)
    }

    pub(super) fn load_balancing(&self) -> LoadBalancing {
        self.load_balancing
    }

    /// Config of the method with this path.
    #[inline]
    pub(super) fn of_method(&self, path: &str) -> Option<&MethodConfig> {
        if self.methods.is_empty() {
            return None;
        }
        let service = path.rfind('/').map_or("", |slash| &path[..=slash]);
        [path, service, ""].iter().find_map(|key| self.methods.get(*key)).map(Arc::as_ref)
    }

    pub(super) fn throttle(&self) -> Option<Throttle> {
        self.throttling.map(Throttle::new)
    }
}

fn key(name: &str) -> String {
    match name.trim_start_matches('/') {
        "" => String::new(),
        name if name.contains('/') => format!("/{name}"),
        name => format!("/{name}/"),
    }
}

/// Retries for all methods.
impl From<RetryPolicy> for ServiceConfig {
    fn from(policy: RetryPolicy) -> Self {
        Self::default().with_method("", MethodConfig { repeat: Some(Repeat::Retry(policy)), ..MethodConfig::default() })
    }
}

/// Tokens of a channel's [`RetryThrottling`], in thousandths.
pub(super) struct Throttle {
    tokens: AtomicU32,
    tokens_max: u32,
    ratio: u32,
}

impl Throttle {
    fn new(throttling: RetryThrottling) -> Self {
        let tokens_max = throttling.max_tokens.saturating_mul(1000);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        // Not a thousandth less where the product falls just short of it.
        let ratio = throttling.token_ratio.mul_add(1000.0, 1e-6) as u32;
        Self { tokens: tokens_max.into(), tokens_max, ratio }
    }

    /// True if a further attempt may be sent.
    pub(super) fn is_open(&self) -> bool {
        self.tokens.load(Ordering::Relaxed) > self.tokens_max / 2
    }

    pub(super) fn succeeded(&self) {
        self.change(|tokens| tokens.saturating_add(self.ratio).min(self.tokens_max));
    }

    pub(super) fn failed(&self) {
        self.change(|tokens| tokens.saturating_sub(1000));
    }

    /// Writes only a change, so that threads whose calls succeed share the line.
    fn change(&self, to: impl Fn(u32) -> u32) {
        let changed = |tokens| Some(to(tokens)).filter(|new| *new != tokens);
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}

/// A server's wish about the next attempt (`grpc-retry-pushback-ms`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushback {
    None,
    After(Duration),
    /// Negative or unreadable.
    Never,
}

impl Pushback {
    pub(super) fn of(status: &Status) -> Self {
        let Some(pause) = status.metadata().get("grpc-retry-pushback-ms") else { return Self::None };
        // A signed 32-bit number, says the protocol.
        let pause = pause.parse::<i32>().ok().and_then(|pause| u64::try_from(pause).ok());
        pause.map_or(Self::Never, |pause| Self::After(Duration::from_millis(pause)))
    }
}

/// Reason why a service config was rejected: the field, its value, and the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceConfigError(String);

impl fmt::Display for ServiceConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServiceConfigError {}

/// Reads gRPC's JSON; a field that the channel does not implement is an error.
impl FromStr for ServiceConfig {
    type Err = ServiceConfigError;

    fn from_str(text: &str) -> Result<Self, ServiceConfigError> {
        let no_json = |error| ServiceConfigError(format!("the service config cannot be read as JSON: {error}"));
        let root = serde_json::from_str(text).map_err(no_json)?;
        let root = Object::of(
            &root,
            String::new(),
            &["healthCheckConfig", "loadBalancingConfig", "methodConfig", "retryThrottling"],
        )?;
        let mut config = Self::default();
        if let Some(policies) = root.optional("loadBalancingConfig", "a list of objects", Value::as_array)? {
            config.load_balancing = root.load_balancing(policies)?;
        }
        if let Some(object) = root.object("healthCheckConfig", &["serviceName"])? {
            config.health_check =
                Some(object.optional("serviceName", "text", Value::as_str)?.unwrap_or_default().to_owned());
        }
        let methods = root.optional("methodConfig", "a list of objects", Value::as_array)?;
        for (index, value) in methods.into_iter().flatten().enumerate() {
            let known = ["name", "timeout", "waitForReady", "retryPolicy", "hedgingPolicy"];
            let object = Object::of(value, format!("methodConfig[{index}]"), &known)?;
            let method = Arc::new(object.method_config()?);
            for name in object.names()? {
                if config.methods.insert(key(&name), Arc::clone(&method)).is_some() {
                    let name = if name.is_empty() { "the default" } else { &name };
                    return Err(object.wrong("name", &format!("is wrong: {name} is named before, name it once")));
                }
            }
        }
        if let Some(object) = root.object("retryThrottling", &["maxTokens", "tokenRatio"])? {
            let whole = |value: &Value| value.as_u64().and_then(|it| u32::try_from(it).ok());
            let max_tokens = object.required("maxTokens", "a whole number from 1 to 1000", |value| {
                whole(value).filter(|tokens| (1..=1000).contains(tokens))
            })?;
            let token_ratio = object.required("tokenRatio", "a number, at least 0.001", |value| {
                value.as_f64().filter(|ratio| *ratio >= 0.001)
            })?;
            config.throttling = Some(RetryThrottling { max_tokens, token_ratio });
        }
        Ok(config)
    }
}

/// An object of the JSON text, and its place there.
struct Object<'a> {
    place: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn of(value: &'a Value, place: String, known: &[&str]) -> Result<Self, ServiceConfigError> {
        let shown = if place.is_empty() { "the service config" } else { &*place };
        let no_object = || ServiceConfigError(format!("{shown} is {value}: it must be an object"));
        let fields = value.as_object().ok_or_else(no_object)?;
        let object = Self { place, fields };
        match fields.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(object),
            Some(name) => {
                let known = known.join(", ");
                Err(object.wrong(name, &format!("is not supported: this object may have {known}")))
            }
        }
    }

    fn wrong(&self, name: &str, what: &str) -> ServiceConfigError {
        let dot = if self.place.is_empty() { "" } else { "." };
        ServiceConfigError(format!("{}{dot}{name} {what}", self.place))
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Reads a field; `right` describes the values that `read` accepts.
    fn optional<T>(
        &self,
        name: &str,
        right: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ServiceConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.wrong(name, &format!("is {value}: it must be {right}")))
    }

    fn required<T>(
        &self,
        name: &str,
        right: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, ServiceConfigError> {
        let missing = || self.wrong(name, &format!("is missing: it must be {right}"));
        self.optional(name, right, read)?.ok_or_else(missing)
    }

    fn object(&self, name: &str, known: &[&str]) -> Result<Option<Self>, ServiceConfigError> {
        let dot = if self.place.is_empty() { "" } else { "." };
        self.get(name).map(|value| Self::of(value, format!("{}{dot}{name}", self.place), known)).transpose()
    }

    /// The first policy of a list that is known.
    fn load_balancing(&self, policies: &'a [Value]) -> Result<LoadBalancing, ServiceConfigError> {
        for (index, policy) in policies.iter().enumerate() {
            let fields = policy.as_object().into_iter().flatten();
            for (name, value) in fields {
                let place = format!("loadBalancingConfig[{index}].{name}");
                if name == "round_robin" {
                    return Self::of(value, place, &[]).map(|_| LoadBalancing::RoundRobin);
                }
                if name == "pick_first" {
                    let object = Self::of(value, place, &["shuffleAddressList"])?;
                    let shuffles = object.optional("shuffleAddressList", "true or false", Value::as_bool)?;
                    return Ok(LoadBalancing::PickFirst { shuffles: shuffles.unwrap_or(false) });
                }
            }
        }
        Err(self.wrong("loadBalancingConfig", "has no known policy: it must have pick_first or round_robin"))
    }

    /// Names of a method config, as [`ServiceConfig::with_method`] takes them.
    fn names(&self) -> Result<Vec<String>, ServiceConfigError> {
        let values = self.required("name", "a list of objects with service and method", Value::as_array)?;
        let mut names = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            let object = Self::of(value, format!("{}.name[{index}]", self.place), &["service", "method"])?;
            let text = |name| object.optional(name, "text", Value::as_str).map(Option::unwrap_or_default);
            let (service, method) = (text("service")?, text("method")?);
            if service.contains('/') || method.contains('/') {
                return Err(object.wrong("service", "and method must be names without a slash"));
            }
            names.push(match (service, method) {
                (_, "") => service.to_owned(),
                ("", _) => {
                    return Err(object.wrong("service", "is missing: it must be the full name of the method's service"));
                }
                _ => format!("{service}/{method}"),
            });
        }
        Ok(names)
    }

    fn method_config(&self) -> Result<MethodConfig, ServiceConfigError> {
        let retry = ["maxAttempts", "initialBackoff", "maxBackoff", "backoffMultiplier", "retryableStatusCodes"];
        let retry = self.object("retryPolicy", &retry)?;
        let hedging = self.object("hedgingPolicy", &["maxAttempts", "hedgingDelay", "nonFatalStatusCodes"])?;
        let repeat = match (retry, hedging) {
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(self.wrong("hedgingPolicy", "stands beside retryPolicy: set only one of them"));
            }
            (Some(retry), None) => Some(Repeat::Retry(RetryPolicy {
                attempts_max: retry.attempts_max()?,
                backoff_first: retry.required("initialBackoff", POSITIVE, positive)?,
                backoff_max: retry.required("maxBackoff", POSITIVE, positive)?,
                backoff_multiplier: retry.required("backoffMultiplier", "a number above 0", |value| {
                    value.as_f64().filter(|factor| *factor > 0.0)
                })?,
                codes: retry.codes("retryableStatusCodes")?,
                is_for_marked: false,
            })),
            (None, Some(hedging)) => Some(Repeat::Hedge(HedgingPolicy {
                attempts_max: hedging.attempts_max()?,
                delay: hedging.optional("hedgingDelay", "a time such as \"0.5s\"", duration)?.unwrap_or_default(),
                codes: hedging.codes("nonFatalStatusCodes")?,
            })),
        };
        let wait_for_ready = self.optional("waitForReady", "true or false", Value::as_bool)?;
        Ok(MethodConfig { timeout: self.optional("timeout", POSITIVE, positive)?, wait_for_ready, repeat })
    }

    fn attempts_max(&self) -> Result<u32, ServiceConfigError> {
        let attempts = self.required("maxAttempts", "a whole number of at least 2", |value| {
            value.as_u64().filter(|attempts| *attempts >= 2)
        })?;
        Ok(u32::try_from(attempts).unwrap_or(ATTEMPTS_MAX).min(ATTEMPTS_MAX))
    }

    fn codes(&self, name: &str) -> Result<Vec<Code>, ServiceConfigError> {
        let right = "a list of at least one code, such as [\"UNAVAILABLE\"] or [14]";
        self.required(name, right, |value| {
            value.as_array().filter(|codes| !codes.is_empty())?.iter().map(code).collect()
        })
    }
}

/// A code by number, or by name in any case.
fn code(value: &Value) -> Option<Code> {
    let is_meant = |code: &&Code| match value {
        Value::String(name) => code.name().eq_ignore_ascii_case(name),
        _ => value.as_u64() == Some(**code as u64),
    };
    Code::ALL.iter().find(is_meant).copied()
}

/// Values that [`positive`] accepts.
const POSITIVE: &str = "a time above 0, such as \"0.5s\"";

fn positive(value: &Value) -> Option<Duration> {
    duration(value).filter(|time| !time.is_zero())
}

/// A `google.protobuf.Duration` in JSON; as in A6's examples, the digits before the point may be missing.
fn duration(value: &Value) -> Option<Duration> {
    let number = value.as_str()?.strip_suffix('s')?;
    let (seconds, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if number.is_empty() || fraction.is_empty() || seconds.len() > 12 || fraction.len() > 9 {
        return None;
    }
    if !is_number(seconds) || !is_number(fraction) {
        return None;
    }
    let whole = if seconds.is_empty() { 0 } else { seconds.parse().ok()? };
    Some(Duration::new(whole, format!("{fraction:0<9}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(fields: &str) -> String {
        format!(r#"{{"methodConfig":[{{"name":[{{}}],{fields}}}]}}"#)
    }

    fn refused(text: &str) -> String {
        text.parse::<ServiceConfig>().expect_err(text).to_string()
    }

    #[test]
    fn examples_of_a6_are_read() {
        let text = method(
            r#""retryPolicy":{"maxAttempts":4,"initialBackoff":".1s","maxBackoff":"1s","backoffMultiplier":2,
            "retryableStatusCodes":["unavailable",10]}"#,
        );
        let config: ServiceConfig = text.parse().unwrap();
        let Some(Repeat::Retry(retry)) = &config.of_method("/a.B/C").unwrap().repeat else { panic!("no retries") };
        assert_eq!((retry.attempts_max, retry.is_for_marked), (4, false));
        assert_eq!(retry.codes, [Code::Unavailable, Code::Aborted]);
        for (number, limit_ms) in [(1, 100.0), (2, 200.0), (3, 400.0), (4, 800.0), (5, 1000.0), (u32::MAX, 1000.0)] {
            let pause = retry.pause(number).as_secs_f64() * 1000.0 / limit_ms;
            assert!((0.8..=1.2).contains(&pause), "{number}: {pause}");
        }
        let text = method(
            r#""hedgingPolicy":{"maxAttempts":9,"hedgingDelay":".5s","nonFatalStatusCodes":["UNAVAILABLE","INTERNAL"]}"#,
        );
        let config: ServiceConfig = text.parse().unwrap();
        let Some(Repeat::Hedge(hedging)) = &config.of_method("/a.B/C").unwrap().repeat else { panic!("no hedging") };
        assert_eq!((hedging.attempts_max, hedging.delay), (ATTEMPTS_MAX, Duration::from_millis(500)));
    }

    #[test]
    fn the_most_specific_name_applies_alone() {
        let text = r#"{"methodConfig":[
            {"name":[{}],"timeout":"3s","waitForReady":true},
            {"name":[{"service":"a.B"},{"service":"a.C","method":"D"}],"timeout":"2s"},
            {"name":[{"service":"a.B","method":"D"}],"timeout":"1.000000001s"}
        ]}"#;
        let config: ServiceConfig = text.parse().unwrap();
        for (path, timeout, waits) in [
            ("/a.B/D", Duration::new(1, 1), None),
            ("/a.B/E", Duration::from_secs(2), None),
            ("/a.C/D", Duration::from_secs(2), None),
            ("/a.C/E", Duration::from_secs(3), Some(true)),
            ("/a.BB/D", Duration::from_secs(3), Some(true)),
        ] {
            let found = config.of_method(path).unwrap();
            assert_eq!((found.timeout, found.wait_for_ready), (Some(timeout), waits), "{path}");
        }
        assert!(ServiceConfig::default().of_method("/a.B/D").is_none());
    }

    #[test]
    fn a_wrong_field_is_named_with_its_value_and_the_right_one() {
        let retry = |field: &str, value: &str| {
            let mut policy: Value = serde_json::from_str(
                r#"{"maxAttempts":2,"initialBackoff":"1s","maxBackoff":"1s","backoffMultiplier":1,
                "retryableStatusCodes":[14]}"#,
            )
            .unwrap();
            policy[field] = serde_json::from_str(value).unwrap();
            refused(&method(&format!(r#""retryPolicy":{policy}"#)))
        };
        let place = "methodConfig[0].retryPolicy.";
        for (field, value, end) in [
            ("maxAttempts", "1", "is 1: it must be a whole number of at least 2"),
            ("maxAttempts", "2.5", "is 2.5: it must be a whole number of at least 2"),
            ("maxAttempts", "null", "is missing: it must be a whole number of at least 2"),
            ("initialBackoff", "\"0s\"", "is \"0s\": it must be a time above 0, such as \"0.5s\""),
            ("maxBackoff", "\"-1s\"", "is \"-1s\": it must be a time above 0, such as \"0.5s\""),
            ("maxBackoff", "\"1m\"", "is \"1m\": it must be a time above 0, such as \"0.5s\""),
            ("backoffMultiplier", "0", "is 0: it must be a number above 0"),
            (
                "retryableStatusCodes",
                "[]",
                "is []: it must be a list of at least one code, such as [\"UNAVAILABLE\"] or [14]",
            ),
            (
                "retryableStatusCodes",
                "[\"BUSY\"]",
                "is [\"BUSY\"]: it must be a list of at least one code, such as [\"UNAVAILABLE\"] or [14]",
            ),
            (
                "perAttempt",
                "1",
                "is not supported: this object may have maxAttempts, initialBackoff, maxBackoff, backoffMultiplier, retryableStatusCodes",
            ),
        ] {
            assert_eq!(retry(field, value), format!("{place}{field} {end}"));
        }
        let both = refused(&method(r#""retryPolicy":{},"hedgingPolicy":{}"#));
        assert!(both.starts_with("methodConfig[0].hedgingPolicy stands beside retryPolicy"), "{both}");
        let twice = refused(r#"{"methodConfig":[{"name":[{"service":"a.B"}]},{"name":[{"service":"a.B"}]}]}"#);
        assert_eq!(twice, "methodConfig[1].name is wrong: a.B is named before, name it once");
        let method_alone = refused(r#"{"methodConfig":[{"name":[{"method":"C"}]}]}"#);
        assert!(method_alone.starts_with("methodConfig[0].name[0].service is missing"), "{method_alone}");
        let unsupported = refused(r#"{"loadBalancingPolicy":"round_robin"}"#);
        assert!(unsupported.starts_with("loadBalancingPolicy is not supported"), "{unsupported}");
        for (throttling, field) in [
            (r#"{"maxTokens":0,"tokenRatio":1}"#, "maxTokens is 0"),
            (r#"{"maxTokens":1001,"tokenRatio":1}"#, "maxTokens is 1001"),
            (r#"{"maxTokens":10,"tokenRatio":0}"#, "tokenRatio is 0"),
            (r#"{"maxTokens":10}"#, "tokenRatio is missing"),
        ] {
            let error = refused(&format!(r#"{{"retryThrottling":{throttling}}}"#));
            assert!(error.starts_with(&format!("retryThrottling.{field}: it must be")), "{error}");
        }
        assert!(refused("{").starts_with("the service config cannot be read as JSON"));
        assert_eq!(refused("[]"), "the service config is []: it must be an object");
    }

    #[test]
    fn the_first_known_policy_balances_the_load() {
        let read = |policies: &str| format!(r#"{{"loadBalancingConfig":{policies}}}"#).parse::<ServiceConfig>();
        for (policies, policy) in [
            (r#"[{"grpclb":{"a":1}},{"round_robin":{}},{"pick_first":{}}]"#, LoadBalancing::RoundRobin),
            (r#"[{"pick_first":{}}]"#, LoadBalancing::default()),
            (r#"[{"pick_first":{"shuffleAddressList":true}}]"#, LoadBalancing::PickFirst { shuffles: true }),
        ] {
            assert_eq!(read(policies).unwrap().load_balancing(), policy);
        }
        for (policies, error) in [
            ("[]", "loadBalancingConfig has no known policy"),
            (r#"[{"grpclb":{}}]"#, "loadBalancingConfig has no known policy"),
            (r#"{"round_robin":{}}"#, r#"loadBalancingConfig is {"round_robin":{}}: it must be a list"#),
            (r#"[{"round_robin":1}]"#, "loadBalancingConfig[0].round_robin is 1: it must be an object"),
            (r#"[{"pick_first":{"a":1}}]"#, "loadBalancingConfig[0].pick_first.a is not supported"),
        ] {
            let refused = read(policies).unwrap_err().to_string();
            assert!(refused.starts_with(error), "{refused}");
        }
    }

    #[test]
    fn failures_close_the_throttle_and_successes_open_it() {
        let throttle = Throttle::new(RetryThrottling { max_tokens: 10, token_ratio: 0.1 });
        for _ in 0..4 {
            throttle.failed();
        }
        assert!(throttle.is_open());
        throttle.failed();
        assert!(!throttle.is_open());
        throttle.succeeded();
        assert!(throttle.is_open());
        (0..20).for_each(|_| throttle.failed());
        (0..50).for_each(|_| throttle.succeeded());
        assert!(!throttle.is_open());
        (0..1000).for_each(|_| throttle.succeeded());
        assert_eq!(throttle.tokens.load(Ordering::Relaxed), 10_000);
    }

    #[test]
    fn the_server_may_set_the_pause_or_forbid_the_retry() {
        let pushed = |pause: &str| {
            let mut status = Status::unavailable("");
            status.metadata_mut().insert("grpc-retry-pushback-ms", pause).unwrap();
            Pushback::of(&status)
        };
        assert_eq!(pushed("1500"), Pushback::After(Duration::from_millis(1500)));
        for pause in ["-1", "soon", "2147483648"] {
            assert_eq!(pushed(pause), Pushback::Never, "{pause}");
        }
        assert_eq!(Pushback::of(&Status::unavailable("")), Pushback::None);
    }
}
