//! Lists of JSON objects in small files: one object at a time, each with its line, up to a cut.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use sexton_core::model::Problem;

/// Where the objects are.
#[derive(Clone, Copy)]
pub(crate) enum Shape<'k> {
    /// In the array under this key of an object.
    Under(&'k str),
    /// In an array, or standing one after another.
    Plain,
}

/// Hands out every object with its line number, and says what was wrong with the file. Never fails: objects before a
/// cut are handed out, and the cut is a problem.
pub(crate) fn read<'a>(
    path: &str,
    bytes: &'a [u8],
    shape: Shape<'_>,
    sink: &mut dyn FnMut(usize, &'a RawValue),
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut place = Place {
        bytes,
        offset: 0,
        line: 1,
    };
    let mut handed = |raw: &'a RawValue| {
        let line = place.line_of(raw);
        sink(line, raw);
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let mut found = false;
    let outcome = match shape {
        Shape::Under(key) => {
            let doc = Doc {
                key,
                sink: &mut handed,
                found: &mut found,
            };
            doc.deserialize(&mut deserializer)
                .and_then(|()| deserializer.end())
        }
        Shape::Plain if bytes.trim_ascii_start().first() == Some(&b'[') => List(&mut handed)
            .deserialize(&mut deserializer)
            .and_then(|()| deserializer.end()),
        Shape::Plain => {
            let mut values = deserializer.into_iter::<&RawValue>();
            values.try_for_each(|raw| raw.map(&mut handed))
        }
    };
    match (outcome, shape) {
        (Err(err), _) => problems.push(json_problem(path, &err)),
        (Ok(()), Shape::Under(key)) if !found => problems.push(Problem {
            place: format!("{path}:1"),
            what: format!("expected an object with the list {key:?}, found none"),
        }),
        (Ok(()), Shape::Plain) if bytes.trim_ascii().is_empty() => problems.push(Problem {
            place: format!("{path}:1"),
            what: "expected JSON, found an empty file".to_owned(),
        }),
        (Ok(()), _) => {}
    }
    problems
}

/// Reads one object; what it lacks or holds wrongly is a problem at its line.
pub(crate) fn item<'a, T: Deserialize<'a>>(
    path: &str,
    line: usize,
    raw: &'a RawValue,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    serde_json::from_str(raw.get())
        .map_err(|err| {
            problems.push(Problem {
                place: format!("{path}:{}", line + err.line().saturating_sub(1)),
                what: message(&err),
            });
        })
        .ok()
}

/// A syntax error or a cut, with its line.
pub(crate) fn json_problem(path: &str, err: &serde_json::Error) -> Problem {
    let what = if err.is_eof() {
        format!("the JSON is cut off ({})", message(err))
    } else {
        format!("not the JSON that was expected: {}", message(err))
    };
    Problem {
        place: format!("{path}:{}", err.line().max(1)),
        what,
    }
}

fn message(err: &serde_json::Error) -> String {
    let text = err.to_string();
    text.rsplit_once(" at line ")
        .map_or(text.as_str(), |(what, _)| what)
        .to_owned()
}

struct Place<'a> {
    bytes: &'a [u8],
    offset: usize,
    line: usize,
}

impl Place<'_> {
    /// The line that a part of the bytes begins at. Parts come in order, so that every byte is counted once.
    fn line_of(&mut self, raw: &RawValue) -> usize {
        let start = (raw.get().as_ptr() as usize).saturating_sub(self.bytes.as_ptr() as usize);
        if let Some(between) = self.bytes.get(self.offset..start) {
            self.line += memchr::memchr_iter(b'\n', between).count();
            self.offset = start;
        }
        self.line
    }
}

struct Doc<'s, 'k, F> {
    key: &'k str,
    sink: &'s mut F,
    found: &'s mut bool,
}

impl<'de, F: FnMut(&'de RawValue)> DeserializeSeed<'de> for Doc<'_, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for Doc<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the list {:?}", self.key)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == self.key {
                *self.found = true;
                map.next_value_seed(List(&mut *self.sink))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct List<'s, F>(&'s mut F);

impl<'de, F: FnMut(&'de RawValue)> DeserializeSeed<'de> for List<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for List<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(raw) = seq.next_element::<&'de RawValue>()? {
            (self.0)(raw);
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
