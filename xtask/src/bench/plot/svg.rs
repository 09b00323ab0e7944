//! Two kinds of pictures as SVG: lines over a quantity, and ranges beside names.
//!
//! Colours of text and axes follow the reader's light or dark scheme, the background stays clear; those of data are of
//! middle lightness and can be told apart by people who do not see all colours. Equal data give equal bytes.

use std::fmt::Write;

/// Of lines, in turn.
const COLOURS: [&str; 6] = ["#0a7bbf", "#d1690e", "#2a9d5c", "#b5539a", "#8a8300", "#6b6bd6"];

const STYLE: &str = "svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}\
    text{font:12px sans-serif;fill:currentColor}.title{font-size:14px;font-weight:600}\
    .axis{stroke:currentColor;stroke-width:1}.grid{stroke:currentColor;stroke-width:1;opacity:.15}\
    .mark{stroke:currentColor;stroke-width:1;stroke-dasharray:4 3;opacity:.6}";

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// From 0, equal steps.
    Linear,
    /// Equal factors.
    Log,
}

/// A curve.
pub(super) struct Series {
    /// In the legend.
    pub(super) name: String,
    /// (x, y), by x.
    pub(super) points: Vec<(f64, f64)>,
    /// Draw the points too.
    pub(super) dots: bool,
}

/// Lines over a quantity.
pub(super) struct Lines<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    pub(super) x_scale: Scale,
    pub(super) series: Vec<Series>,
}

/// A value with its range.
pub(super) struct Range {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Which colour: rows of one kind share it.
    pub(super) kind: usize,
}

/// Ranges beside names.
pub(super) struct Ranges<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) rows: Vec<Range>,
    /// Values that a line is drawn at.
    pub(super) marks: &'a [f64],
}

const WIDTH: f64 = 760.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;

impl Lines<'_> {
    /// The picture.
    pub(super) fn svg(&self) -> String {
        const LEFT: f64 = 64.0;
        const HEIGHT: f64 = 280.0;
        let legend = 18.0 * self.series.len() as f64;
        let mut out = begin(self.title, TOP + HEIGHT + 48.0 + legend);
        let points = || self.series.iter().flat_map(|s| &s.points);
        let x = Axis::new(self.x_scale, points().map(|p| p.0), LEFT, WIDTH - RIGHT);
        let y = Axis::new(Scale::Linear, points().map(|p| p.1), TOP + HEIGHT, TOP);
        for &tick in &y.ticks {
            let at = y.at(tick);
            line(&mut out, "grid", (LEFT, at), (WIDTH - RIGHT, at));
            text(&mut out, (LEFT - 6.0, at + 4.0), "end", &number(tick));
        }
        for &tick in &x.ticks {
            let at = x.at(tick);
            line(&mut out, "axis", (at, TOP + HEIGHT), (at, TOP + HEIGHT + 4.0));
            text(&mut out, (at, TOP + HEIGHT + 18.0), "middle", &number(tick));
        }
        line(&mut out, "axis", (LEFT, TOP + HEIGHT), (WIDTH - RIGHT, TOP + HEIGHT));
        text(&mut out, ((LEFT + WIDTH - RIGHT) / 2.0, TOP + HEIGHT + 36.0), "middle", self.x);
        text(&mut out, (8.0, TOP - 8.0), "start", self.y);
        for (i, series) in self.series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let path: Vec<String> =
                series.points.iter().map(|p| format!("{:.1},{:.1}", x.at(p.0), y.at(p.1))).collect();
            let _ = writeln!(
                out,
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
                path.join(" ")
            );
            if series.dots {
                series.points.iter().for_each(|p| dot(&mut out, (x.at(p.0), y.at(p.1)), colour));
            }
            let at = TOP + HEIGHT + 58.0 + 18.0 * i as f64;
            let _ = writeln!(
                out,
                r#"<line x1="{LEFT:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{colour}" stroke-width="2"/>"#,
                at - 4.0,
                LEFT + 24.0,
                at - 4.0
            );
            text(&mut out, (LEFT + 32.0, at), "start", &series.name);
        }
        out + "</svg>\n"
    }
}

impl Ranges<'_> {
    /// The picture.
    pub(super) fn svg(&self) -> String {
        const ROW: f64 = 22.0;
        let longest = self.rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
        let left = (longest as f64 * 6.4 + 16.0).clamp(60.0, WIDTH / 2.0);
        let bottom = TOP + ROW * self.rows.len() as f64;
        let mut out = begin(self.title, bottom + 48.0);
        let ends = self.rows.iter().flat_map(|r| [r.min, r.max]).chain(self.marks.iter().copied());
        let x = Axis::new(Scale::Linear, ends, left, WIDTH - RIGHT - 40.0);
        for &tick in &x.ticks {
            let at = x.at(tick);
            line(&mut out, "grid", (at, TOP), (at, bottom));
            text(&mut out, (at, bottom + 16.0), "middle", &number(tick));
        }
        line(&mut out, "axis", (left, bottom), (WIDTH - RIGHT - 40.0, bottom));
        text(&mut out, ((left + WIDTH - RIGHT - 40.0) / 2.0, bottom + 36.0), "middle", self.x);
        for &mark in self.marks {
            line(&mut out, "mark", (x.at(mark), TOP - 4.0), (x.at(mark), bottom));
        }
        for (i, row) in self.rows.iter().enumerate() {
            let at = TOP + ROW * (i as f64 + 0.5);
            let colour = COLOURS[row.kind % COLOURS.len()];
            text(&mut out, (left - 8.0, at + 4.0), "end", &row.name);
            let _ = writeln!(
                out,
                r#"<line x1="{:.1}" y1="{at:.1}" x2="{:.1}" y2="{at:.1}" stroke="{colour}" stroke-width="3" stroke-linecap="round"/>"#,
                x.at(row.min),
                x.at(row.max)
            );
            dot(&mut out, (x.at(row.value), at), colour);
            text(&mut out, (x.at(row.max) + 9.0, at + 4.0), "start", &number(rounded(row.value)));
        }
        out + "</svg>\n"
    }
}

fn begin(title: &str, height: f64) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" \
         aria-label=\"{0}\">\n<title>{0}</title>\n<style>{STYLE}</style>\n",
        escaped(title)
    );
    let _ = writeln!(out, r#"<text class="title" x="8" y="18">{}</text>"#, escaped(title));
    out
}

fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(out, r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#);
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
}

fn dot(out: &mut String, (x, y): (f64, f64), colour: &str) {
    let _ = writeln!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{colour}"/>"#);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// Three digits that count.
fn rounded(value: f64) -> f64 {
    let digits = 2 - (value.abs().max(1e-9).log10().floor() as i32);
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// As short as it can be told; thousands of tokens as `8k`.
fn number(value: f64) -> String {
    if value >= 1024.0 && value % 1024.0 == 0.0 {
        return format!("{}k", value / 1024.0);
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Where values lie between two ends of the picture.
struct Axis {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Axis {
        let largest = values.clone().fold(f64::MIN_POSITIVE, f64::max);
        match scale {
            Scale::Linear => {
                let step = step(largest);
                let n = (largest / step).ceil();
                let ticks = (0..=n as usize).map(|i| i as f64 * step).collect();
                Axis { scale, least: 0.0, most: n * step, from, to, ticks }
            }
            Scale::Log => {
                let smallest = values.fold(largest, f64::min);
                let (least, most) = (smallest.log2().floor(), smallest.max(largest).log2().ceil());
                let most = most.max(least + 1.0);
                let ticks = (least as i32..=most as i32).map(|power| 2f64.powi(power)).collect();
                Axis { scale, least, most, from, to, ticks }
            }
        }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Log { value.log2() } else { value };
        self.from + (value - self.least) / (self.most - self.least) * (self.to - self.from)
    }
}

/// A step of 1, 2 or 5 times a power of ten that gives four to ten ticks up to `largest`; of counts that are worth it,
/// a power of two.
fn step(largest: f64) -> f64 {
    if largest >= 8192.0 {
        return 2f64.powf((largest / 8.0).log2().ceil());
    }
    let rough = largest / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= rough).unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_all_values_between_their_ticks() {
        for largest in [0.037, 1.0, 1.23, 9.99, 100.0, 7000.0, 65_536.0] {
            let axis = Axis::new(Scale::Linear, [largest].into_iter(), 0.0, 100.0);
            assert!((3..=11).contains(&axis.ticks.len()), "{largest}: {:?}", axis.ticks);
            assert!(axis.at(largest) <= 100.0 + 1e-9 && axis.at(largest) > 45.0, "{largest}");
            assert_eq!(axis.at(0.0), 0.0);
        }
        let log = Axis::new(Scale::Log, [1024.0, 65_536.0].into_iter(), 0.0, 60.0);
        assert_eq!((log.at(1024.0), log.at(2048.0), log.ticks.len()), (0.0, 10.0, 7));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 1.5, 200.0, 8192.0, 0.25].map(number), ["0", "1.5", "200", "8k", "0.25"]);
        assert_eq!([1.2345, 0.012_345, 98.76].map(rounded), [1.23, 0.0123, 98.8]);
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let row = Range { name: "a<b&\"c\"".into(), value: 1.0, min: 0.9, max: 1.1, kind: 0 };
        let svg = Ranges { title: "t", x: "x", rows: vec![row], marks: &[1.0] }.svg();
        assert!(svg.contains("a&lt;b&amp;&quot;c&quot;") && svg.ends_with("</svg>\n"));
    }
}
