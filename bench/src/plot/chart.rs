//! Two kinds of plots: lines over logarithmic axes, and bars with their labels.
//!
//! Ours are in strong colours and solid, others' in grey and pale ones, so that no plot lets one be
//! taken for the other.

use crate::error::BenchError;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 900;
const FONT: &str = "sans-serif";
const OURS: [RGBColor; 3] = [RGBColor(0, 90, 181), RGBColor(220, 80, 0), RGBColor(0, 130, 90)];
const OTHERS: [RGBColor; 5] = [
    RGBColor(120, 120, 120),
    RGBColor(170, 140, 60),
    RGBColor(150, 110, 170),
    RGBColor(120, 160, 120),
    RGBColor(190, 120, 120),
];
const INK: RGBColor = RGBColor(40, 40, 40);
/// Heights of the title, of a line of notes and of a bar with what is around it.
const TITLE: u32 = 44;
const NOTE: u32 = 17;
const BAR: u32 = 26;
/// Where bars begin, and the room behind the longest for its figure.
const BARS_AT: i32 = 430;
const BEHIND: i32 = 110;
/// Width of the names beside lines.
const LEGEND: u32 = 215;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn drawing(error: impl std::fmt::Display) -> BenchError {
    BenchError::Drawing(error.to_string())
}

/// A number of sessions, short.
pub fn short(value: f64) -> String {
    let value = value.round();
    match value {
        v if v >= 999_500.0 => format!("{} M", (v / 1e5).round() / 10.0),
        v if v >= 1e3 => format!("{} k", (v / 1e2).round() / 10.0),
        v => v.to_string(),
    }
}

/// The percentile that one of so many is above.
pub fn percentile(one_of: f64) -> String {
    let percent = 100.0 - 100.0 / one_of;
    format!("{}", (percent * 1e4).round() / 1e4)
}

/// The least and the greatest of what a figure is the median of.
pub type Spread = Option<[f64; 2]>;

/// Points of one kind.
pub struct Series {
    name: String,
    pub points: Vec<(f64, f64, Spread)>,
    ours: bool,
}

impl Series {
    /// Points that are no numbers are left out, the others sorted.
    pub fn new(name: String, mut points: Vec<(f64, f64, Spread)>, ours: bool) -> Self {
        points.retain(|(x, y, _)| *x > 0.0 && *y > 0.0);
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { name, points, ours }
    }
}

/// Series over logarithmic axes.
pub struct Lines<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub x_name: fn(f64) -> String,
    pub series: Vec<Series>,
    pub notes: Vec<String>,
}

/// A figure with its name.
pub struct Bar {
    pub label: String,
    pub value: f64,
    pub spread: Spread,
    pub ours: bool,
}

/// Bars below each other.
pub struct Bars<'a> {
    pub title: &'a str,
    pub unit: &'a str,
    /// Digits of a figure behind the point.
    pub digits: usize,
    pub bars: Vec<Bar>,
    pub notes: Vec<String>,
}

fn style(size: u32, across: HPos) -> TextStyle<'static> {
    TextStyle::from((FONT, size)).color(&INK).pos(Pos::new(across, VPos::Center))
}

fn say(area: &Area<'_>, at: (i32, i32), text: &str, how: TextStyle<'_>) -> Result<(), BenchError> {
    area.draw(&Text::new(text.to_owned(), at, how)).map_err(drawing)
}

/// A white sheet with its title and notes; what is between is for `draw`.
fn sheet(
    (title, notes): (&str, &[String]),
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> Result<(), BenchError>,
) -> Result<String, BenchError> {
    let mut svg = String::new();
    let all = TITLE + height + 12 + NOTE * notes.len() as u32;
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, all)).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let middle = (WIDTH as i32 / 2, TITLE as i32 / 2);
        say(&root, middle, title, style(20, HPos::Center))?;
        let (_, below) = root.split_vertically(TITLE);
        let (inside, foot) = below.split_vertically(height);
        draw(&inside)?;
        for (at, note) in notes.iter().enumerate() {
            say(&foot, (12, (NOTE as usize * at) as i32 + 8), note, style(12, HPos::Left))?;
        }
        root.present().map_err(drawing)?;
    }
    Ok(svg)
}

/// From the least of some to the greatest, and a little more; `down` begins with a power of ten,
/// which an axis of logarithms needs to have names below the next one.
fn range(values: impl Iterator<Item = f64> + Clone, down: bool) -> std::ops::Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(0.0, f64::max);
    let start = if down { 10f64.powf(least.log10().floor()) } else { least * 0.8 };
    start..most * 1.25
}

impl Lines<'_> {
    pub fn svg(&self) -> Result<String, BenchError> {
        sheet((self.title, &self.notes), 420, |area| {
            let (left, right) = area.split_horizontally(WIDTH - LEGEND);
            self.draw(&left)?;
            self.name_all(&right)
        })
    }

    /// Each series with its colour.
    fn colored(&self) -> impl Iterator<Item = (&Series, RGBColor)> {
        let (mut ours, mut others) = (OURS.iter().cycle(), OTHERS.iter().cycle());
        self.series.iter().map(move |series| {
            let next = if series.ours { ours.next() } else { others.next() };
            (series, next.copied().unwrap_or(BLACK))
        })
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), BenchError> {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let across = range(points().map(|(x, ..)| *x), false);
        let up = range(points().map(|(_, y, _)| *y), true);
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(across.log_scale(), up.log_scale())
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&|x| (self.x_name)(*x))
            .y_label_formatter(&|y| format!("{y}"))
            .label_style((FONT, 13))
            .light_line_style(RGBColor(235, 235, 235))
            .draw()
            .map_err(drawing)?;
        for (series, color) in self.colored() {
            let (width, size) = if series.ours { (3, 5) } else { (1, 4) };
            let line = series.points.iter().map(|(x, y, _)| (*x, *y));
            chart
                .draw_series(LineSeries::new(line.clone(), color.stroke_width(width)))
                .map_err(drawing)?;
            let dots = line.map(|at| Circle::new(at, size, color.filled()));
            chart.draw_series(dots).map_err(drawing)?;
            let spreads = series.points.iter().filter_map(|(x, _, spread)| {
                let ends = (*spread)?.map(|end| (*x, end));
                Some(PathElement::new(ends.to_vec(), color.stroke_width(2)))
            });
            chart.draw_series(spreads).map_err(drawing)?;
        }
        Ok(())
    }

    /// The names of all series, beside the plot, where they hide nothing.
    fn name_all(&self, area: &Area<'_>) -> Result<(), BenchError> {
        for (at, (series, color)) in self.colored().enumerate() {
            let (y, width) = (20 + 20 * at as i32, if series.ours { 3 } else { 1 });
            let line = PathElement::new(vec![(6, y), (28, y)], color.stroke_width(width));
            area.draw(&line).map_err(drawing)?;
            say(area, (34, y), &series.name, style(13, HPos::Left))?;
        }
        Ok(())
    }
}

impl Bars<'_> {
    pub fn svg(&self) -> Result<String, BenchError> {
        let height = BAR * self.bars.len() as u32 + 16;
        sheet((self.title, &self.notes), height, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), BenchError> {
        let ends = |bar: &Bar| bar.spread.map_or(bar.value, |[_, high]| high.max(bar.value));
        let most = self.bars.iter().map(ends).fold(f64::MIN_POSITIVE, f64::max);
        let room = f64::from(WIDTH as i32 - BARS_AT - BEHIND);
        let at = |value: f64| BARS_AT + (value / most * room) as i32;
        for (number, bar) in self.bars.iter().enumerate() {
            let top = (BAR as usize * number) as i32 + 4;
            let middle = top + BAR as i32 / 2 - 3;
            let end = at(bar.value);
            let color = if bar.ours { OURS[0] } else { RGBColor(175, 175, 175) };
            let corners = [(BARS_AT, top), (end, top + BAR as i32 - 6)];
            area.draw(&Rectangle::new(corners, color.filled())).map_err(drawing)?;
            if let Some(ends) = bar.spread {
                let ends = ends.map(|end| (at(end), middle)).to_vec();
                area.draw(&PathElement::new(ends, INK.stroke_width(2))).map_err(drawing)?;
            }
            say(area, (BARS_AT - 8, middle), &bar.label, style(13, HPos::Right))?;
            let figure = format!("{:.*} {}", self.digits, bar.value, self.unit);
            let behind = bar.spread.map_or(end, |[_, high]| end.max(at(high)));
            say(area, (behind + 6, middle), &figure, style(13, HPos::Left))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [1.0, 999.0, 1e3, 1.5e4, 999_999.0, 1e6, 2.56e8].map(short);
        assert_eq!(all, ["1", "999", "1 k", "15 k", "1 M", "1 M", "256 M"]);
        assert_eq!([2.0, 10.0, 100.0, 1e3].map(percentile), ["50", "90", "99", "99.9"]);
    }

    #[test]
    fn axes_begin_with_a_power_of_ten() {
        assert_eq!(range([40.0, 800.0].into_iter(), true), 10.0..1000.0);
        assert_eq!(range([40.0, 800.0].into_iter(), false), 32.0..1000.0);
    }

    #[test]
    fn what_is_no_number_is_no_point() {
        let points = [(1e6, 5.0), (f64::NAN, 1.0), (1e3, f64::NAN), (1e4, 4.0)];
        let points = points.map(|(x, y)| (x, y, None)).to_vec();
        let kept = Series::new("a".into(), points, true).points;
        assert_eq!(kept, [(1e4, 4.0, None), (1e6, 5.0, None)]);
    }

    #[test]
    fn a_bar_is_as_long_as_its_figure() {
        let bar = |value| Bar { label: "a <b>".into(), value, spread: None, ours: true };
        let bars = Bars {
            title: "t",
            unit: "Mpps",
            digits: 1,
            bars: vec![bar(10.0), bar(5.0)],
            notes: vec!["note".into()],
        };
        let svg = bars.svg().unwrap();
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("10.0 Mpps"), "{svg}");
        let room = WIDTH as i32 - BARS_AT - BEHIND;
        for width in [room, room / 2] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{width}: {svg}");
        }
    }
}
