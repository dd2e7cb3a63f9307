//! Pictures as SVG inside of a page: lines over time, and bars. Colours and fonts are the page's.

use std::fmt::Write as _;

use crate::output::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;

/// So many lines have a colour of their own; the page's style has as many.
pub(super) const COLOURS: usize = 8;

/// A line with its name.
pub(super) struct Line {
    pub(super) label: String,
    /// Seconds, and the value.
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines over time, with their names below.
pub(super) fn lines(title: &str, unit: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let end = points().map(|(x, _)| *x).fold(0.0, f64::max);
    let most = points().map(|(_, y)| *y).fold(0.0, f64::max);
    if points().next().is_none() {
        return String::new();
    }
    let (end, most) = (
        if end > 0.0 { end } else { 1.0 },
        if most > 0.0 { most } else { 1.0 },
    );
    let top = nice(most);
    let x = |value: f64| LEFT + value / end * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| height(value, top);
    let mut out = begin(title);
    grid(top, &mut out);
    let (factor, word) = scale(end);
    let tick = nice(end * factor / 8.0);
    let mut value = 0.0;
    while value <= end * factor * 1.0001 {
        let at = x(value / factor);
        let anchor = match value {
            0.0 => "start",
            _ if at > WIDTH - RIGHT - 20.0 => "end",
            _ => "middle",
        };
        let _ = write!(
            out,
            "<text x={at:.1} y={} text-anchor={anchor}>{}</text>",
            HEIGHT - BOTTOM + 18.0,
            trim(value)
        );
        value += tick;
    }
    let _ = write!(
        out,
        "<text x={} y={} text-anchor=end>{word}</text>",
        WIDTH - RIGHT,
        HEIGHT - 4.0
    );
    for (at, line) in lines.iter().enumerate() {
        let path: Vec<String> = line
            .points
            .iter()
            .map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b)))
            .collect();
        let colour = at % COLOURS;
        match path.as_slice() {
            [only] => {
                let (a, b) = only.split_once(',').unwrap_or_default();
                let _ = write!(out, "<circle class=\"f{colour}\" cx={a} cy={b} r=3 />");
            }
            _ => {
                let _ = write!(
                    out,
                    "<polyline class=\"l l{colour}\" points=\"{}\"/>",
                    path.join(" ")
                );
            }
        }
    }
    out.push_str("</svg>");
    let _ = write!(
        out,
        "<figcaption>{}, {}<ul class=legend>",
        escape(title),
        escape(unit)
    );
    for (at, line) in lines.iter().enumerate() {
        let _ = write!(
            out,
            "<li><span class=\"swatch b{}\"></span>{}",
            at % COLOURS,
            escape(&line.label)
        );
    }
    out.push_str("</ul></figcaption></figure>");
    out
}

/// Where a value stands, if `top` is at the top.
fn height(value: f64, top: f64) -> f64 {
    HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
}

/// Five lines from 0 to `top`, each with its value.
fn grid(top: f64, out: &mut String) {
    for step in 0..=4_u8 {
        let value = top * f64::from(step) / 4.0;
        let at = height(value, top);
        let _ = write!(
            out,
            "<line class=grid x1={LEFT} x2={} y1={at:.1} y2={at:.1} /><text x={} y={:.1} text-anchor=end>{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            short(value)
        );
    }
}

/// Bars with their names below each, up to `top`.
pub(super) fn bars(title: &str, unit: &str, top: f64, bars: &[(String, f64)]) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let y = |value: f64| height(value.clamp(0.0, top), top);
    let mut out = begin(title);
    grid(top, &mut out);
    #[expect(clippy::cast_precision_loss, reason = "a number of bars")]
    let room = (WIDTH - LEFT - RIGHT) / bars.len() as f64;
    // Names that would touch are left out, evenly.
    let longest = bars
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "a number of letters")]
    let each = ((longest as f64 + 1.0) * 7.0 / room).ceil().max(1.0);
    for (at, (name, value)) in bars.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a number of bars")]
        let number = at as f64;
        let left = LEFT + room * number;
        let width = (room * 0.7).min(48.0);
        let (middle, high) = (left + room / 2.0, y(*value));
        let _ = write!(
            out,
            "<rect class=f0 x={:.1} y={high:.1} width={width:.1} height={:.1}><title>{}: {value:.1} {}</title></rect>",
            middle - width / 2.0,
            HEIGHT - BOTTOM - high,
            escape(name),
            escape(unit)
        );
        if number % each == 0.0 {
            let _ = write!(
                out,
                "<text x={middle:.1} y={} text-anchor=middle>{}</text>",
                HEIGHT - BOTTOM + 18.0,
                escape(name)
            );
        }
    }
    out.push_str("</svg>");
    let _ = write!(
        out,
        "<figcaption>{}, {}</figcaption></figure>",
        escape(title),
        escape(unit)
    );
    out
}

fn begin(title: &str) -> String {
    format!(
        "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{}\">",
        escape(title)
    )
}

/// The next of 1, 2, 2.5, 5, 10 and their tens that holds a value.
fn nice(value: f64) -> f64 {
    let ten = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps
        .iter()
        .map(|step| step * ten)
        .find(|top| *top >= value)
        .unwrap_or(value)
}

/// `1.5 k`, `2 M`.
fn short(value: f64) -> String {
    if value >= 1e6 {
        format!("{} M", trim(value / 1e6))
    } else if value >= 1e3 {
        format!("{} k", trim(value / 1e3))
    } else {
        trim(value)
    }
}

/// Up to two digits behind the point, without zeros at the end.
fn trim(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The unit in which so many seconds are read best.
fn scale(seconds: f64) -> (f64, &'static str) {
    if seconds >= 600.0 {
        (1.0 / 60.0, "minutes")
    } else if seconds >= 1.0 {
        (1.0, "seconds")
    } else if seconds >= 1e-3 {
        (1e3, "milliseconds")
    } else {
        (1e6, "microseconds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_read_easily() {
        assert_eq!(
            [0.3, 7.0, 11_354.0, 183_000.0].map(nice),
            [0.5, 10.0, 20_000.0, 200_000.0]
        );
        assert_eq!(
            [0.0, 12.5, 2_500.0, 1_250_000.0].map(short),
            ["0", "12.5", "2.5 k", "1.25 M"]
        );
        assert_eq!(
            [0.011, 8.0, 1e-4, 900.0].map(|s| scale(s).1),
            ["milliseconds", "seconds", "microseconds", "minutes"]
        );
    }

    #[test]
    fn names_are_escaped_and_nothing_is_no_picture() {
        let line = Line {
            label: "<b>&".to_owned(),
            points: vec![(0.0, 1.0), (1.0, 2.0)],
        };
        let text = lines("t", "u", &[line]);
        assert!(text.contains("&lt;b&gt;&amp;") && !text.contains("<b>"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(lines("t", "u", &[]), "");
        assert_eq!(bars("t", "u", 100.0, &[]), "");
        let zero = bars("t", "u", 100.0, &[("a".to_owned(), 0.0)]);
        assert!(!zero.contains("NaN"), "{zero}");
    }
}
