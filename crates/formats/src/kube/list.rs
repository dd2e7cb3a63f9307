//! Lists of objects, streamed: one object is in memory at a time, and what came before a cut is kept.

use std::{cell::Cell, fmt, io, rc::Rc};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};
use sexton_core::model::{Completeness, NplAnnotation, Pod};

use super::{
    EndpointSliceObject, EventObject, Kind, KubeItem, ListMeta, NodeObject, PodObject, ServiceCidrObject,
    ServiceObject,
};

/// What reading a list came to, beside the items that were handed out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListOutcome {
    /// The kinds that were read, with how many of each; a list of no items has the kind that its file or its own
    /// `kind` promised.
    pub kinds: Vec<(Kind, u64)>,
    /// Whether that is all.
    pub completeness: Completeness,
    /// Objects of kinds that are not read here.
    pub ignored: u64,
    /// What was wrong: the place inside the file (`line 7 column 3`, `items[4] (voice/relay-1)`) and what.
    pub problems: Vec<(String, String)>,
    /// The list's metadata.
    pub meta: ListMeta,
}

impl ListOutcome {
    /// How many items of this kind were read; `None` if the input was no list of it.
    pub fn count(&self, kind: Kind) -> Option<u64> {
        self.kinds
            .iter()
            .find(|(k, _)| *k == kind)
            .map(|(_, count)| *count)
    }

    fn add(&mut self, kind: Kind, count: u64) {
        match self.kinds.iter_mut().find(|(k, _)| *k == kind) {
            Some((_, sum)) => *sum += count,
            None => self.kinds.push((kind, count)),
        }
    }
}

/// Problems are listed up to this number and counted beyond it.
const MAX_PROBLEMS: usize = 100;

/// Reads a list (or a single object) of JSON and hands out its objects one by one.
///
/// `hint` is the kind that the file's name promises; it is used where neither the list nor an item says its kind.
/// Never fails: what was wrong is in the outcome.
pub fn read_json(reader: impl io::Read, hint: Option<Kind>, sink: &mut dyn FnMut(KubeItem)) -> ListOutcome {
    let mut state = State::new(hint, sink);
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    let result = Doc::<Box<RawValue>>::new(&mut state)
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    let failure = result.err().map(|err| {
        let place = format!("line {} column {}", err.line(), err.column());
        let text = err.to_string();
        let what = text.split(" at line ").next().unwrap_or(&text);
        let what = if err.is_eof() {
            format!("the JSON is cut off ({what})")
        } else if err.is_io() {
            what.to_owned()
        } else {
            format!("not valid JSON: {what}")
        };
        (place, what)
    });
    state.finish(failure)
}

/// Reads a list (or a single object) of YAML and hands out its objects one by one.
///
/// As [`read_json`]. Aliases are bounded, so that a small text cannot become a large one.
pub fn read_yaml(reader: impl io::Read, hint: Option<Kind>, sink: &mut dyn FnMut(KubeItem)) -> ListOutcome {
    let mut state = State::new(hint, sink);
    let lines = Rc::new(Cell::new(1));
    let reader = CountLines {
        reader,
        lines: Rc::clone(&lines),
    };
    let result =
        serde_saphyr::with_deserializer_from_reader_with_options(reader, yaml_options(), |deserializer| {
            Doc::<Value>::new(&mut state).deserialize(deserializer)
        });
    let failure = result.err().map(|err| {
        let place = err.location().map_or_else(String::new, |at| {
            format!("line {} column {}", at.line(), at.column())
        });
        let text = err.to_string();
        let what = text.lines().next().unwrap_or_default().to_owned();
        (place, format!("not valid YAML: {what}"))
    });
    // YAML that was cut between two lines is valid. Every writer sorts the keys of a list: its metadata comes last.
    let cut = state.is_map && state.has_items && !state.parts.contains_key("metadata");
    let failure = failure.or_else(|| {
        let what = "the YAML is cut off: no `metadata` of the list follows its items";
        cut.then(|| (format!("line {}", lines.get()), what.to_owned()))
    });
    state.finish(failure)
}

/// Counts the lines that pass.
struct CountLines<R> {
    reader: R,
    lines: Rc<Cell<u64>>,
}

impl<R: io::Read> io::Read for CountLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        let read = buffer.get(..count).unwrap_or_default();
        let ends = read.iter().filter(|byte| **byte == b'\n').count();
        self.lines.set(self.lines.get() + ends as u64);
        Ok(count)
    }
}

/// Limits for lists of a whole cluster; aliases stay as bounded as by default.
pub(crate) fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: None,
            max_events: 200_000_000,
            max_nodes: 100_000_000,
            max_total_scalar_bytes: 4 << 30,
        },
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

/// An object before its kind is known.
trait Raw: DeserializeOwned {
    fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error>;
    fn into_value(self) -> Option<Value>;
}

impl Raw for Box<RawValue> {
    fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    fn into_value(self) -> Option<Value> {
        serde_json::from_str(self.get()).ok()
    }
}

impl Raw for Value {
    fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(self)
    }

    fn into_value(self) -> Option<Value> {
        Some(self)
    }
}

struct State<'a> {
    hint: Option<Kind>,
    sink: &'a mut dyn FnMut(KubeItem),
    /// `kind` of the list, once it was seen; kubectl prints it after the items.
    list_kind: Option<String>,
    /// The parts of a single object.
    parts: Map<String, Value>,
    has_items: bool,
    /// The document is an object, not an array.
    is_map: bool,
    index: u64,
    unreadable: u64,
    doubtful: u64,
    outcome: ListOutcome,
}

impl<'a> State<'a> {
    fn new(hint: Option<Kind>, sink: &'a mut dyn FnMut(KubeItem)) -> Self {
        Self {
            hint,
            sink,
            list_kind: None,
            parts: Map::new(),
            has_items: false,
            is_map: false,
            index: 0,
            unreadable: 0,
            doubtful: 0,
            outcome: ListOutcome::default(),
        }
    }

    fn problem(&mut self, place: String, what: String) {
        if self.outcome.problems.len() < MAX_PROBLEMS {
            self.outcome.problems.push((place, what));
        }
    }

    /// The kind of one item: its own, the list's, the file's.
    fn kind_of(&self, raw: &impl Raw) -> Result<Option<Kind>, serde_json::Error> {
        #[derive(Deserialize)]
        struct Peek {
            kind: Option<String>,
        }
        if let Some(kind) = self.list_kind.as_deref().and_then(Kind::parse) {
            return Ok(Some(kind));
        }
        let peek: Peek = raw.read()?;
        Ok(match peek.kind {
            Some(kind) => Kind::parse(&kind),
            None => self.hint,
        })
    }

    fn item(&mut self, raw: &impl Raw) {
        let index = self.index;
        self.index += 1;
        let read = self.kind_of(raw).and_then(|kind| match kind {
            None => Ok(None),
            Some(kind) => self.read(kind, raw, index).map(|item| Some((kind, item))),
        });
        match read {
            Ok(Some((kind, item))) => {
                self.outcome.add(kind, 1);
                (self.sink)(item);
            }
            Ok(None) => self.outcome.ignored += 1,
            Err(err) => {
                self.unreadable += 1;
                let place = place_of(raw, index);
                // Line and column would be those inside of the item.
                let text = err.to_string();
                let what = text.split(" at line ").next().unwrap_or(&text).to_owned();
                self.problem(place, format!("left out: {what}"));
            }
        }
    }

    fn read(&mut self, kind: Kind, raw: &impl Raw, index: u64) -> Result<KubeItem, serde_json::Error> {
        Ok(match kind {
            Kind::Pod => {
                let pod: PodObject = raw.read()?;
                let problems = pod.problems();
                self.doubtful += u64::from(!problems.is_empty());
                for problem in problems {
                    self.problem(place_of(raw, index), problem);
                }
                let cidrs = pod.service_cidrs();
                let pod: Pod = pod.into();
                if let NplAnnotation::Unreadable(why) = &pod.npl {
                    let what = format!("annotation nodeportlocal.antrea.io: {why}");
                    self.problem(place_of(raw, index), what);
                }
                KubeItem::Pod(Box::new(pod), cidrs)
            }
            Kind::Service => KubeItem::Service(raw.read::<ServiceObject>()?.into()),
            Kind::EndpointSlice => KubeItem::EndpointSlice(raw.read::<EndpointSliceObject>()?.into()),
            Kind::Node => KubeItem::Node(raw.read::<NodeObject>()?.into()),
            Kind::ServiceCidr => KubeItem::ServiceCidr(raw.read::<ServiceCidrObject>()?.into()),
            Kind::Event => KubeItem::Event(raw.read::<EventObject>()?.past()),
        })
    }

    fn finish(mut self, failure: Option<(String, String)>) -> ListOutcome {
        let parts = std::mem::take(&mut self.parts);
        let promised = self.list_kind.as_deref().and_then(Kind::parse).or(self.hint);
        let mut lacks = Vec::new();
        if self.has_items {
            // A file that holds other things than its name promises says nothing about what it promised.
            if let Some(kind) = promised
                && (self.outcome.kinds.is_empty() && self.outcome.ignored == 0)
            {
                self.outcome.add(kind, 0);
            }
            if let Some(meta) = parts.get("metadata") {
                self.outcome.meta = ListMeta::deserialize(meta).unwrap_or_default();
            }
            lacks.extend(self.outcome.meta.cut());
        } else if failure.is_none() {
            let is_object = parts.contains_key("metadata");
            let kind = self.list_kind.clone();
            if is_object && promised.is_some() && kind.as_deref().is_none_or(|k| !k.ends_with("List")) {
                self.list_kind = None;
                let mut object = parts;
                if let Some(kind) = kind {
                    object.insert("kind".to_owned(), Value::String(kind));
                }
                self.item(&Value::Object(object));
                lacks.push("it is one object, not a list".to_owned());
            } else if kind.as_deref().is_some_and(|kind| kind.ends_with("List")) {
                // An empty typed list may lack `items`.
                if let Some(kind) = promised {
                    self.outcome.add(kind, 0);
                }
            } else {
                self.outcome.completeness = Completeness::Unavailable("not a Kubernetes list".to_owned());
                return self.outcome;
            }
        } else if let Some(kind) = promised {
            self.outcome.add(kind, 0);
        }
        if self.unreadable > 0 {
            lacks.push(format!(
                "items that could not be read: {} of {}",
                self.unreadable, self.index
            ));
        }
        if self.doubtful > 0 {
            lacks.push(format!(
                "Pods with addresses that could not be read: {}",
                self.doubtful
            ));
        }
        if let Some((place, what)) = failure {
            lacks.insert(0, format!("{what}, {place}"));
            self.outcome.problems.insert(
                0,
                (place, format!("{what}; {} items before it are used", self.index)),
            );
        }
        self.outcome.completeness = if lacks.is_empty() {
            Completeness::Complete
        } else {
            Completeness::Partial(lacks.join("; "))
        };
        self.outcome
    }
}

fn place_of(raw: &impl Raw, index: u64) -> String {
    #[derive(Deserialize)]
    struct Peek {
        #[serde(default)]
        metadata: PeekMeta,
    }
    #[derive(Default, Deserialize)]
    struct PeekMeta {
        name: Option<String>,
        namespace: Option<String>,
    }
    let Ok(Peek { metadata }) = raw.read() else {
        return format!("items[{index}]");
    };
    match (metadata.namespace, metadata.name) {
        (Some(namespace), Some(name)) => format!("items[{index}] ({namespace}/{name})"),
        (None, Some(name)) => format!("items[{index}] ({name})"),
        (_, None) => format!("items[{index}]"),
    }
}

/// A whole document: a list, an array of objects, or one object.
struct Doc<'s, 'a, R> {
    state: &'s mut State<'a>,
    raw: std::marker::PhantomData<R>,
}

impl<'s, 'a, R> Doc<'s, 'a, R> {
    fn new(state: &'s mut State<'a>) -> Self {
        Self {
            state,
            raw: std::marker::PhantomData,
        }
    }
}

impl<'de, R: Raw> DeserializeSeed<'de> for Doc<'_, '_, R> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: Raw> Visitor<'de> for Doc<'_, '_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        self.state.has_items = true;
        Items::<R>::new(self.state).visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.state.is_map = true;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "items" => {
                    self.state.has_items = true;
                    map.next_value_seed(Items::<R>::new(self.state))?;
                }
                "kind" => self.state.list_kind = map.next_value::<Option<String>>()?,
                "metadata" | "spec" | "status" | "endpoints" | "ports" => {
                    if let Some(value) = map.next_value::<R>()?.into_value() {
                        self.state.parts.insert(key, value);
                    }
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// The items of a list.
struct Items<'s, 'a, R> {
    state: &'s mut State<'a>,
    raw: std::marker::PhantomData<R>,
}

impl<'s, 'a, R> Items<'s, 'a, R> {
    fn new(state: &'s mut State<'a>) -> Self {
        Self {
            state,
            raw: std::marker::PhantomData,
        }
    }
}

impl<'de, R: Raw> DeserializeSeed<'de> for Items<'_, '_, R> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, R: Raw> Visitor<'de> for Items<'_, '_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list's items")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(raw) = seq.next_element::<R>()? {
            self.state.item(&raw);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
