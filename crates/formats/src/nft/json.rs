//! The JSON form. Source: libnftables-json(5).

use serde::Deserialize;
use serde_json::{Map, Value};
use sexton_core::model::{NftChain, NftElement, NftRule, NftSet, NftState, NftValue, Problem};

use super::{
    family,
    lex::{Lexer, Token},
    rule,
    value::{self, apply_timeout, type_of},
};
use crate::{
    items::{self, Shape},
    problems::Problems,
};

/// Reads what `nft -j list ruleset` prints.
///
/// An object that cannot be read is a problem and is left out; objects before a cut are kept.
pub fn read_json(path: &str, bytes: &[u8]) -> (NftState, Vec<Problem>) {
    let mut state = NftState::default();
    let mut wrong = Problems::new(path);
    let mut unreadable = Vec::new();
    let problems = items::read(path, bytes, Shape::Under("nftables"), &mut |line, raw| {
        let Some(object) = items::item::<Map<String, Value>>(path, line, raw, &mut unreadable) else {
            return;
        };
        for (kind, value) in object {
            if let Err(what) = add(&mut state, &kind, value) {
                wrong.push(line, format!("{kind}: {what}"));
            }
        }
    });
    let mut all = wrong.finish();
    all.extend(unreadable);
    all.extend(problems);
    (state, all)
}

#[derive(Deserialize)]
struct Table {
    family: String,
    name: String,
}

#[derive(Deserialize)]
struct Set {
    family: String,
    table: String,
    name: String,
    #[serde(rename = "type", default)]
    key: Value,
    /// The type of a map's data.
    map: Option<Value>,
    timeout: Option<u64>,
    #[serde(default)]
    elem: Vec<Value>,
}

#[derive(Deserialize)]
struct Chain {
    family: String,
    table: String,
    name: String,
    handle: Option<u64>,
    hook: Option<String>,
    /// A name or a list of them.
    dev: Option<Value>,
}

#[derive(Deserialize)]
struct Rule {
    family: String,
    table: String,
    chain: String,
    handle: Option<u64>,
    comment: Option<String>,
    #[serde(default)]
    expr: Vec<Value>,
}

fn add(state: &mut NftState, kind: &str, value: Value) -> Result<(), String> {
    fn read<T: for<'de> Deserialize<'de>>(value: Value) -> Result<T, String> {
        serde_json::from_value(value).map_err(|err| err.to_string())
    }
    let family = |word: &str| family(word).ok_or_else(|| format!("an unknown family: {word:?}"));
    match kind {
        "table" => {
            let table: Table = read(value)?;
            state.tables.push((family(&table.family)?, table.name));
        }
        "set" | "map" | "meter" => {
            let object: Set = read(value)?;
            let mut set = NftSet {
                family: family(&object.family)?,
                table: object.table,
                name: object.name,
                is_map: object.map.is_some(),
                key_type: type_name(&object.key),
                data_type: object.map.as_ref().map(type_name),
                elements: Vec::with_capacity(object.elem.len()),
            };
            let keys = value::Kind::parts(&set.key_type);
            let data = set.data_type.as_deref().map(value::Kind::parts);
            let mut result = Ok(());
            for value in &object.elem {
                match element(value, &keys, data.as_deref()) {
                    Some(element) => set.elements.push(element),
                    None => result = Err(format!("{}: not an element: {value}", set.name)),
                }
            }
            apply_timeout(&mut set.elements, object.timeout.map(seconds));
            state.sets.push(set);
            return result;
        }
        "chain" => {
            let chain: Chain = read(value)?;
            state.chains.push(NftChain {
                family: family(&chain.family)?,
                table: chain.table,
                name: chain.name,
                hook: chain.hook,
                device: chain.dev.as_ref().map(render),
                handle: chain.handle,
            });
        }
        "rule" => {
            let object: Rule = read(value)?;
            let family = family(&object.family)?;
            let mut rule = NftRule::bare(family, &object.table, &object.chain, String::new());
            for statement in &object.expr {
                add_statement(&mut rule, statement);
            }
            if let Some(comment) = object.comment {
                rule.text.push_str(&format!(" comment \"{comment}\""));
                rule.comment = Some(comment);
            }
            rule.text = rule.text.trim_start().to_owned();
            rule.handle = object.handle;
            state.rules.push(rule);
        }
        // metainfo, counter, quota, limit, ct helper, flowtable, ...
        _ => {}
    }
    Ok(())
}

const fn seconds(seconds: u64) -> u64 {
    seconds.saturating_mul(1000)
}

/// A type: its name, an array of the names of a concatenation, or since 1.1 an expression under `typeof`.
fn type_name(value: &Value) -> String {
    match value {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().map(type_name).collect::<Vec<_>>().join(" . "),
        Value::Object(object) => object
            .get("typeof")
            .map(|e| type_of(&render(e)))
            .unwrap_or_default(),
        _ => String::new(),
    }
}

/// An element of a set: a value, or `{"elem": {"val": value, ...}}`; of a map, an array of that and the data.
fn element(value: &Value, keys: &[value::Kind], data: Option<&[value::Kind]>) -> Option<NftElement> {
    let (key, data) = match (data, value) {
        (Some(kinds), Value::Array(pair)) => {
            let [key, data] = &pair[..] else { return None };
            (key, values(data, kinds))
        }
        (Some(_), _) => return None,
        (None, key) => (key, Vec::new()),
    };
    let wrapped = key.get("elem");
    let key = match wrapped {
        Some(elem) => elem.get("val")?,
        None => key,
    };
    let number = |name: &str| wrapped.and_then(|e| e.get(name)).and_then(Value::as_u64);
    let comment = wrapped.and_then(|e| e.get("comment")).and_then(Value::as_str);
    Some(NftElement {
        key: values(key, keys),
        data,
        comment: comment.map(str::to_owned),
        timeout_ms: number("timeout").map(seconds),
        expires_ms: number("expires").map(seconds),
    })
}

fn values(value: &Value, kinds: &[value::Kind]) -> Vec<NftValue> {
    let parts = match value.get("concat").and_then(Value::as_array) {
        Some(parts) => &parts[..],
        None => std::slice::from_ref(value),
    };
    let kinds = kinds.iter().copied().chain(std::iter::repeat(value::Kind::Other));
    parts
        .iter()
        .zip(kinds)
        .map(|(part, kind)| match (kind, part.get("range")) {
            // text prints marks in hex
            (value::Kind::Mark, Some(Value::Array(ends))) => {
                let ends = ends
                    .iter()
                    .map(|end| format!("{:#010x}", end.as_u64().unwrap_or_default()));
                NftValue::Other(ends.collect::<Vec<_>>().join("-"))
            }
            _ => value::value(kind, &render(part)),
        })
        .collect()
}

/// Adds a statement to a rule. One that cannot be written down as `nft` would do it stands as JSON, and tells nothing
/// else.
fn add_statement(rule: &mut NftRule, statement: &Value) {
    rule.text.push(' ');
    match statement_text(statement) {
        Some(text) => {
            let tokens: Vec<Token<'_>> = Lexer::new(&text).collect();
            rule::fill(rule, &tokens);
            rule.text.push_str(&text);
        }
        None => rule.text.push_str(&statement.to_string()),
    }
}

fn statement_text(statement: &Value) -> Option<String> {
    let (name, body) = only_entry(statement)?;
    let field = |name: &str| body.get(name).map(render);
    Some(match name {
        "match" => {
            let (left, right) = (field("left")?, field("right")?);
            match body.get("op").and_then(Value::as_str) {
                None | Some("==" | "in") => format!("{left} {right}"),
                Some(operator) => format!("{left} {operator} {right}"),
            }
        }
        "vmap" => format!("{} vmap {}", field("key")?, field("data")?),
        "dnat" | "snat" | "redirect" | "masquerade" => {
            let mut text = name.to_owned();
            if let Some(family) = field("family") {
                text.push(' ');
                text.push_str(&family);
            }
            match (field("addr"), field("port")) {
                (None, None) => {}
                (Some(addr), None) => text.push_str(&format!(" to {addr}")),
                (None, Some(port)) => text.push_str(&format!(" to :{port}")),
                (Some(addr), Some(port)) if addr.contains(':') => {
                    text.push_str(&format!(" to [{addr}]:{port}"))
                }
                (Some(addr), Some(port)) => text.push_str(&format!(" to {addr}:{port}")),
            }
            text
        }
        "counter" if body.is_object() => {
            format!("counter packets {} bytes {}", field("packets")?, field("bytes")?)
        }
        "jump" | "goto" => format!("{name} {}", field("target")?),
        "xt" => format!("xt {} {}", field("type")?, field("name")?),
        _ if body.is_null() => name.to_owned(),
        _ => return None,
    })
}

fn only_entry(value: &Value) -> Option<(&str, &Value)> {
    let mut entries = value.as_object()?.iter();
    let (name, body) = entries.next()?;
    entries.next().is_none().then_some((name.as_str(), body))
}

/// An expression as `nft` prints it; one that is not known here as JSON.
fn render(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "exists".to_owned(),
        Value::Bool(false) => "missing".to_owned(),
        Value::Array(flags) => flags.iter().map(render).collect::<Vec<_>>().join(","),
        Value::Object(_) => only_entry(value)
            .and_then(|(name, body)| render_object(name, body))
            .unwrap_or_else(|| value.to_string()),
        other => other.to_string(),
    }
}

fn render_object(name: &str, body: &Value) -> Option<String> {
    let field = |name: &str| body.get(name).map(render);
    let list = |separator: &str| {
        let values = body.as_array()?;
        Some(values.iter().map(render).collect::<Vec<_>>().join(separator))
    };
    Some(match name {
        "payload" => format!("{} {}", field("protocol")?, field("field")?),
        "meta" => match field("key")?.as_str() {
            key @ ("iif" | "oif" | "iifname" | "oifname") => key.to_owned(),
            key => format!("meta {key}"),
        },
        "ct" => match field("dir") {
            Some(dir) => format!("ct {dir} {}", field("key")?),
            None => format!("ct {}", field("key")?),
        },
        "fib" => {
            let flags = body.get("flags")?.as_array()?;
            let flags: Vec<String> = flags.iter().map(render).collect();
            format!("fib {} {}", flags.join(" . "), field("result")?)
        }
        "concat" => list(" . ")?,
        "prefix" => format!("{}/{}", field("addr")?, field("len")?),
        "range" => list("-")?,
        "elem" => field("val")?,
        "set" => {
            let elements = body.as_array()?.iter().map(|element| match element {
                Value::Array(pair) => pair.iter().map(render).collect::<Vec<_>>().join(" : "),
                other => render(other),
            });
            format!("{{ {} }}", elements.collect::<Vec<_>>().join(", "))
        }
        "map" => format!("{} map {}", field("key")?, field("data")?),
        "jump" | "goto" => format!("{name} {}", field("target")?),
        _ if body.is_null() => name.to_owned(),
        _ => return None,
    })
}
