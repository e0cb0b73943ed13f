//! `nft -j list ruleset` (libnftables-json(5)) as a [`Ruleset`].
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::ruleset::{Action, Chain, ChainName, Condition, Input, Protocol, Rule, Ruleset};

/// Of a set with a name, its elements; by family, table and name.
type Sets = BTreeMap<(String, String, String), Value>;

/// Reads what `nft` printed.
///
/// # Errors
/// In words, of what is no such answer. What is not understood in a rule makes that rule uncertain.
pub(super) fn parse(text: &str) -> Result<Ruleset, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let items = value.get("nftables").and_then(Value::as_array).ok_or("it has no \"nftables\"")?;
    let mut ruleset = Ruleset::default();
    let mut sets = Sets::new();
    for set in items.iter().filter_map(|item| item.get("set")) {
        let key = (word(set, "family"), word(set, "table"), word(set, "name"));
        sets.insert(key, set.get("elem").cloned().unwrap_or(Value::Null));
    }
    for chain in items.iter().filter_map(|item| item.get("chain")) {
        let filters = word(chain, "type") == "filter" && word(chain, "hook") == "input";
        let input = filters.then(|| Input {
            priority: chain.get("prio").and_then(Value::as_i64).unwrap_or(0),
            drops: word(chain, "policy") == "drop",
        });
        ruleset.chains.insert(name(chain, "name"), Chain { input, rules: Vec::new() });
    }
    for rule in items.iter().filter_map(|item| item.get("rule")) {
        let chain = name(rule, "chain");
        let statements = rule.get("expr").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let read = read_rule(statements, &chain, &sets);
        ruleset.chains.entry(chain).or_default().rules.extend(read);
    }
    Ok(ruleset)
}

fn word(item: &Value, key: &str) -> String {
    item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn name(item: &Value, chain: &str) -> ChainName {
    ChainName { family: word(item, "family"), table: word(item, "table"), chain: word(item, chain) }
}

/// The statements of a rule in their order: conditions, and what is done. A verdict map is as many rules.
fn read_rule(statements: &[Value], chain: &ChainName, sets: &Sets) -> Vec<Rule> {
    let text = short(statements);
    let mut conditions = Vec::new();
    for statement in statements {
        let Some((kind, body)) = statement.as_object().and_then(|object| object.iter().next()) else {
            continue;
        };
        let target = || word(body, "target");
        let action = match kind.as_str() {
            "match" => {
                conditions.push(read_match(body, chain, sets));
                continue;
            }
            "accept" => Action::Accept,
            "drop" | "reject" | "tproxy" | "queue" => Action::Drop,
            "return" => Action::Return,
            "jump" => Action::Jump(target()),
            "goto" => Action::Goto(target()),
            "vmap" => return read_map(body, &conditions, chain, sets, &text),
            "counter" | "log" | "comment" | "mangle" | "notrack" | "set" => continue,
            // Limits, quotas, and what later versions bring.
            _ => {
                conditions.push(Condition::Unknown);
                continue;
            }
        };
        return vec![Rule { conditions, action, text }];
    }
    vec![Rule { conditions, action: Action::Nothing, text }]
}

/// `tcp dport vmap { 22 : accept, 80 : jump web }`.
fn read_map(body: &Value, before: &[Condition], chain: &ChainName, sets: &Sets, text: &str) -> Vec<Rule> {
    let key = body.get("key").unwrap_or(&Value::Null);
    let pairs = body.get("data").and_then(|data| data.get("set")).and_then(Value::as_array);
    let Some(pairs) = pairs else {
        let conditions = before.iter().cloned().chain([Condition::Unknown]).collect();
        return vec![Rule { conditions, action: Action::Accept, text: text.to_owned() }];
    };
    let rules = pairs.iter().filter_map(|pair| {
        let [element, verdict] = pair.as_array()?.as_slice() else { return None };
        let mut wanted = Map::new();
        wanted.insert("left".to_owned(), key.clone());
        wanted.insert("op".to_owned(), "==".into());
        wanted.insert("right".to_owned(), element.clone());
        let fits = read_match(&Value::Object(wanted), chain, sets);
        let mut rules = read_rule(std::slice::from_ref(verdict), chain, sets);
        let mut rule = rules.pop()?;
        rule.conditions = before.iter().cloned().chain([fits]).collect();
        rule.text = text.to_owned();
        Some(rule)
    });
    rules.collect()
}

fn read_match(body: &Value, chain: &ChainName, sets: &Sets) -> Condition {
    let left = body.get("left").unwrap_or(&Value::Null);
    let mut values = Vec::new();
    flatten(body.get("right").unwrap_or(&Value::Null), chain, sets, &mut values);
    let known = read_left(left, &values);
    match word(body, "op").as_str() {
        "==" | "in" => known,
        "!=" if known != Condition::Unknown => Condition::Not(Box::new(known)),
        _ => Condition::Unknown,
    }
}

fn read_left(left: &Value, values: &[Value]) -> Condition {
    let at =
        |place: &[&str]| place.iter().try_fold(left, |value, key| value.get(key)).and_then(Value::as_str);
    let protocol = at(&["payload", "protocol"]);
    match (protocol, at(&["payload", "field"]), at(&["meta", "key"]), at(&["ct", "key"])) {
        (Some("tcp"), Some("dport"), ..) => ports(Some(Protocol::Tcp), values),
        (Some("udp"), Some("dport"), ..) => ports(Some(Protocol::Udp), values),
        (Some("th"), Some("dport"), ..) => ports(None, values),
        (Some("icmp" | "icmpv6"), ..) => Condition::Never,
        (Some("ip"), Some("protocol"), ..) | (Some("ip6"), Some("nexthdr"), ..) => protocols(values),
        (_, _, Some("l4proto"), _) => protocols(values),
        (_, _, Some("iifname" | "iif"), _) => {
            Condition::Interface(values.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        (.., Some("state")) => Condition::New(values.iter().any(|state| state.as_str() == Some("new"))),
        _ => Condition::Unknown,
    }
}

fn protocols(values: &[Value]) -> Condition {
    let known = values.iter().filter_map(|value| match (value.as_str(), value.as_u64()) {
        (Some("tcp"), _) | (_, Some(6)) => Some(Protocol::Tcp),
        (Some("udp"), _) | (_, Some(17)) => Some(Protocol::Udp),
        _ => None,
    });
    Condition::Protocol(known.collect())
}

fn ports(protocol: Option<Protocol>, values: &[Value]) -> Condition {
    let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    let mut ranges = Vec::new();
    for value in values {
        let range = value.get("range").and_then(Value::as_array).map(Vec::as_slice);
        let read = match range {
            Some([first, last]) => number(first).zip(number(last)),
            _ => number(value).map(|port| (port, port)),
        };
        // A service's name: it might be any port.
        let Some(range) = read else { return Condition::Unknown };
        ranges.push(range);
    }
    Condition::Port(protocol, ranges)
}

/// One value, an anonymous set, or a set with a name.
fn flatten(right: &Value, chain: &ChainName, sets: &Sets, values: &mut Vec<Value>) {
    let elements = match right {
        Value::String(text) => match text.strip_prefix('@') {
            Some(set) => sets.get(&(chain.family.clone(), chain.table.clone(), set.to_owned())),
            None => None,
        },
        Value::Array(_) => Some(right),
        Value::Object(object) => object.get("set"),
        _ => None,
    };
    match elements.and_then(Value::as_array) {
        Some(elements) => {
            for element in elements {
                // Elements with a counter or a comment: {"elem": {"val": ...}}.
                let plain = element.get("elem").and_then(|elem| elem.get("val")).unwrap_or(element);
                values.push(plain.clone());
            }
        }
        None => values.push(right.clone()),
    }
}

/// A rule in few words, for messages: its statements without their numbers.
fn short(statements: &[Value]) -> String {
    const MOST_CHARS: usize = 160;
    let words: Vec<String> = statements.iter().map(describe).filter(|word| !word.is_empty()).collect();
    words.join(" ").chars().take(MOST_CHARS).collect()
}

fn describe(statement: &Value) -> String {
    let Some((kind, body)) = statement.as_object().and_then(|object| object.iter().next()) else {
        return String::new();
    };
    match kind.as_str() {
        "match" => {
            let left = body.get("left").unwrap_or(&Value::Null);
            let field = ["payload", "meta", "ct"].iter().find_map(|kind| {
                let inner = left.get(kind)?;
                let protocol = inner.get("protocol").and_then(Value::as_str);
                let field = inner.get("field").or_else(|| inner.get("key"))?.as_str()?;
                Some(format!("{} {field}", protocol.unwrap_or(kind)))
            });
            let right = body.get("right").unwrap_or(&Value::Null);
            let prefix = right
                .get("prefix")
                .and_then(|prefix| Some(format!("{}/{}", prefix.get("addr")?.as_str()?, prefix.get("len")?)));
            let right = prefix.unwrap_or_else(|| right.to_string().replace('"', ""));
            format!("{} {} {right}", field.unwrap_or_else(|| "(more)".to_owned()), word(body, "op"))
        }
        "jump" | "goto" => format!("{kind} {}", word(body, "target")),
        "counter" | "comment" => String::new(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ruleset::{Packet, Verdict};
    use super::*;

    fn packet(protocol: Protocol, port: u16) -> Packet {
        Packet { protocol, port, interface: None, ipv6: false }
    }

    /// As nft 1.1 prints a usual filter: established connections, loopback and a set of ports, all else dropped.
    const USUAL: &str = r#"{"nftables": [{"metainfo": {"version": "1.1.3", "json_schema_version": 1}},
        {"table": {"family": "inet", "name": "filter", "handle": 1}},
        {"set": {"family": "inet", "name": "disks", "table": "filter", "type": "inet_service", "handle": 5,
            "elem": [3260, {"elem": {"val": 10809, "counter": {"packets": 0, "bytes": 0}}}]}},
        {"chain": {"family": "inet", "table": "filter", "name": "input", "handle": 2, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "inet", "table": "filter", "name": "boot", "handle": 3}},
        {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 6, "expr": [
            {"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["invalid", {"drop": null}], ["established", {"accept": null}]]}}}]}},
        {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 7, "expr": [
            {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "lo"}}, {"accept": null}]}},
        {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 8, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": "@disks"}},
            {"counter": {"packets": 0, "bytes": 0}}, {"accept": null}]}},
        {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 9, "expr": [
            {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "udp"}}, {"jump": {"target": "boot"}}]}},
        {"rule": {"family": "inet", "table": "filter", "chain": "boot", "handle": 10, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": {"set": [{"range": [67, 69]}, 4011]}}}, {"accept": null}]}},
        {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 11, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.5"}},
            {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 8443}}, {"accept": null}]}}
        ]}"#;

    #[test]
    fn usual_filter_is_understood() {
        let ruleset = parse(USUAL).unwrap();
        let verdict = |protocol, port| ruleset.verdict(&packet(protocol, port));
        assert_eq!(verdict(Protocol::Tcp, 3260), Verdict::Accept);
        assert_eq!(verdict(Protocol::Tcp, 10809), Verdict::Accept);
        assert_eq!(verdict(Protocol::Udp, 67), Verdict::Accept);
        assert_eq!(verdict(Protocol::Udp, 69), Verdict::Accept);
        assert_eq!(verdict(Protocol::Udp, 4011), Verdict::Accept);
        let dropped = verdict(Protocol::Tcp, 8080);
        assert!(matches!(&dropped, Verdict::Drop(why) if why.contains("inet filter input")), "{dropped:?}");
        assert!(matches!(verdict(Protocol::Udp, 53), Verdict::Drop(_)));
        let unclear = verdict(Protocol::Tcp, 8443);
        assert!(
            matches!(&unclear, Verdict::Unclear(rule) if rule.contains("ip saddr == 10.0.0.5")),
            "{unclear:?}"
        );
    }

    #[test]
    fn what_is_no_answer_of_nft_is_refused() {
        for text in ["", "{}", "[]", r#"{"nftables": 1}"#] {
            assert!(parse(text).is_err(), "{text}");
        }
        let odd = r#"{"nftables": [{"rule": {}}, {"chain": 1}, {"rule": {"expr": [1, {}, {"match": null}, {"vmap": 2}]}}, 7]}"#;
        assert!(parse(odd).is_ok());
    }
}
