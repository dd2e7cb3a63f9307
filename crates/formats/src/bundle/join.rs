//! Putting sources together: a part is as complete as its worst source.

use sexton_core::model::{Completeness, Facts, Problem, SourceReport};

/// What problems say about a source: any of them means that something is lacking.
pub(super) fn completeness(items: usize, problems: &[Problem]) -> Completeness {
    let Some(first) = problems.first() else {
        return Completeness::Complete;
    };
    let why = match problems.len() {
        1 => first.what.clone(),
        count => format!("{} (and {} more problems)", first.what, count - 1),
    };
    if items == 0 {
        Completeness::Unavailable(why)
    } else {
        Completeness::Partial(why)
    }
}

/// Counts a file of a store in the store's report.
pub(super) fn count_in(
    completeness: &mut Completeness,
    reports: &mut Vec<SourceReport>,
    store: &str,
    counts: bool,
) {
    let index = match reports.iter().position(|report| report.name == store) {
        Some(index) => index,
        None => {
            let report = SourceReport {
                name: store.to_owned(),
                completeness: Completeness::Complete,
                items: 0,
                read_at: None,
                took_ms: 0.0,
            };
            add_report(completeness, reports, report);
            reports.len() - 1
        }
    };
    if let Some(report) = reports.get_mut(index) {
        report.items += u64::from(counts);
    }
}

/// Puts a source's values to the others of its part.
pub(super) fn join<T>(facts: &mut Facts<Vec<T>>, values: Vec<T>, report: SourceReport) {
    add_report(&mut facts.completeness, &mut facts.reports, report);
    facts.value.extend(values);
}

/// A part is as complete as its worst source; one that gave nothing beside one that gave something makes it partial.
pub(super) fn add_report(
    completeness: &mut Completeness,
    reports: &mut Vec<SourceReport>,
    report: SourceReport,
) {
    let with_name = match &report.completeness {
        Completeness::Complete => Completeness::Complete,
        Completeness::Partial(why) => Completeness::Partial(format!("{}: {why}", report.name)),
        Completeness::Unavailable(why) => Completeness::Unavailable(format!("{}: {why}", report.name)),
    };
    if reports.is_empty() {
        *completeness = with_name;
    } else {
        worsen(completeness, with_name);
    }
    reports.push(report);
}

pub(super) fn worsen(completeness: &mut Completeness, other: Completeness) {
    let old = std::mem::take(completeness);
    *completeness = match (old, other) {
        (Completeness::Complete, Completeness::Complete) => Completeness::Complete,
        (Completeness::Unavailable(a), Completeness::Unavailable(b)) => {
            Completeness::Unavailable(format!("{a}; {b}"))
        }
        (Completeness::Complete, Completeness::Partial(why) | Completeness::Unavailable(why))
        | (Completeness::Partial(why) | Completeness::Unavailable(why), Completeness::Complete) => {
            Completeness::Partial(why)
        }
        (
            Completeness::Partial(a) | Completeness::Unavailable(a),
            Completeness::Partial(b) | Completeness::Unavailable(b),
        ) => Completeness::Partial(format!("{a}; {b}")),
    };
}
