//! What the nodes of a fleet that are in a loop have in common, against those that are healthy.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// One value of one trait, and how many nodes have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shared {
    /// The trait: `OS build`.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Sick nodes that have it, of those whose value is known.
    pub sick: usize,
    /// See `sick`.
    pub sick_of: usize,
    /// Healthy nodes that have it, of those whose value is known.
    pub healthy: usize,
    /// See `healthy`.
    pub healthy_of: usize,
}

impl Shared {
    /// How much more frequent it is among the sick: from -1 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn difference(&self) -> f64 {
        let share = |some: usize, of: usize| if of == 0 { 0.0 } else { some as f64 / of as f64 };
        share(self.sick, self.sick_of) - share(self.healthy, self.healthy_of)
    }
}

/// Fewer sick or healthy nodes than this say nothing about what they have in common.
pub const ENOUGH: usize = 5;

/// Counts every value of every trait among the sick and the healthy; what differs most comes first. What all have is left out.
pub fn shared<'a>(
    sick: impl IntoIterator<Item = &'a BTreeMap<String, String>>,
    healthy: impl IntoIterator<Item = &'a BTreeMap<String, String>>,
) -> Vec<Shared> {
    let sick: Vec<_> = sick.into_iter().collect();
    let healthy: Vec<_> = healthy.into_iter().collect();
    let all = || sick.iter().chain(&healthy).flat_map(|traits| traits.iter());
    let values: BTreeSet<(&String, &String)> = all().collect();
    let known = |nodes: &[&BTreeMap<String, String>], name: &String| {
        nodes.iter().filter(|t| t.contains_key(name)).count()
    };
    let with = |nodes: &[&BTreeMap<String, String>], name: &String, value: &String| {
        nodes
            .iter()
            .filter(|traits| traits.get(name) == Some(value))
            .count()
    };
    let mut out: Vec<Shared> = values
        .into_iter()
        .map(|(name, value)| Shared {
            name: name.clone(),
            value: value.clone(),
            sick: with(&sick, name, value),
            sick_of: known(&sick, name),
            healthy: with(&healthy, name, value),
            healthy_of: known(&healthy, name),
        })
        .filter(|one| one.difference() != 0.0)
        .collect();
    out.sort_by(|a, b| {
        let more = b.difference().abs().total_cmp(&a.difference().abs());
        more.then_with(|| b.difference().total_cmp(&a.difference()))
            .then_with(|| (&a.name, &a.value).cmp(&(&b.name, &b.value)))
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(build: &str, size: &str) -> BTreeMap<String, String> {
        [("OS build", build), ("VM size", size)]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into()
    }

    #[test]
    fn what_only_the_sick_have_comes_first_and_what_all_have_is_left_out() {
        let sick = [node("5139", "D8"), node("5139", "D8"), node("5139", "F16")];
        let healthy = [node("5020", "D8"), node("5020", "D8"), node("5020", "F16")];
        let found = shared(&sick, &healthy);
        let short: Vec<_> = found
            .iter()
            .map(|s| (s.value.as_str(), s.sick, s.sick_of, s.healthy, s.healthy_of))
            .collect();
        assert_eq!(short, [("5139", 3, 3, 0, 3), ("5020", 0, 3, 3, 3)]);
        assert_eq!(shared(&sick, &[]).first().map(|s| s.healthy_of), Some(0));
        assert_eq!(shared([], []), []);
    }
}
