//! The ladder chart: one bar a rung on a logarithmic time axis, as inline SVG.
//!
//! plotters draws with colours only. Each role here has a colour of its own that no page would use, and
//! [`ladder`] turns those colours into classes, so that the page's style sheet decides, in light and in dark.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::table::Timed;
use crate::units;

/// What a shape is for; the class of the SVG element is the name in lower case.
#[derive(Clone, Copy)]
enum Role {
    Text,
    Faint,
    Grid,
    Cpu,
    Gpu,
    Peer,
    Interval,
    Floor,
    Model,
}

impl Role {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Text, "text"),
        (Self::Faint, "faint"),
        (Self::Grid, "grid"),
        (Self::Cpu, "cpu"),
        (Self::Gpu, "gpu"),
        (Self::Peer, "peer"),
        (Self::Interval, "interval"),
        (Self::Floor, "floor"),
        (Self::Model, "model"),
    ];

    fn color(self) -> RGBColor {
        RGBColor(1, self as u8 + 1, 1)
    }
}

/// Height of one rung: its name above its bar.
const ROW: i32 = 44;
const TOP: i32 = 6;
const AXIS: i32 = 26;
const MARGIN: i32 = 8;

/// The chart at a width in pixels; `title` is its text alternative. `None` when no rung has a time.
pub(crate) fn ladder(timed: &[Timed<'_>], width: u32, title: &str) -> Option<String> {
    let bars: Vec<(&Timed<'_>, f64)> = timed
        .iter()
        .filter(|t| t.check == "ok")
        .filter_map(|t| Some((t, t.run.median_ns.filter(|ns| ns.is_finite() && *ns > 0.0)?)))
        .collect();
    let marks = |(t, ns): &(&Timed<'_>, f64)| {
        [Some(*ns), floor(t), model(t), t.run.ci_ns.map(|c| c[0]), t.run.ci_ns.map(|c| c[1])]
    };
    let all: Vec<f64> = bars.iter().flat_map(marks).flatten().filter(|ns| ns.is_finite() && *ns > 0.0).collect();
    let lo = all.iter().copied().min_by(f64::total_cmp)?;
    let hi = all.iter().copied().max_by(f64::total_cmp)?;
    let (lo, hi) = (lo / 1.6, hi * 1.1);

    let height = TOP + ROW * bars.len() as i32 + AXIS;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height as u32)).into_drawing_area();
        // A string takes any shape, so drawing cannot fail.
        draw(&root, &bars, width as i32, height, lo, hi).expect("drawing to a string");
        root.present().expect("drawing to a string");
    }
    Some(finish(svg, width, height, title))
}

/// Time at 100% of the ceiling that binds the rung.
fn floor(t: &Timed<'_>) -> Option<f64> {
    Some(t.run.median_ns? * t.run.percent_of_ceiling.filter(|p| p.is_finite() && *p > 0.0)? / 100.0)
}

fn model(t: &Timed<'_>) -> Option<f64> {
    t.run.prediction.as_ref().map(|p| p.ns).filter(|ns| ns.is_finite() && *ns > 0.0)
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(root: &Canvas<'_>, bars: &[(&Timed<'_>, f64)], width: i32, height: i32, lo: f64, hi: f64) -> Drawn {
    let narrow = width < 500;
    let span = f64::from(width - 2 * MARGIN);
    let x = |ns: f64| MARGIN + ((ns / lo).ln() / (hi / lo).ln() * span).round() as i32;
    let text = |role: Role, size: i32, h: HPos| {
        ("sans-serif", size).into_font().color(&role.color()).pos(Pos::new(h, VPos::Center))
    };
    let line = |from, to, role: Role, w: u32| PathElement::new(vec![from, to], role.color().stroke_width(w));
    let bottom = height - AXIS;

    let ticks = ticks(lo, hi, span / if narrow { 70.0 } else { 90.0 });
    for &ns in &ticks {
        root.draw(&line((x(ns), TOP), (x(ns), bottom), Role::Grid, 1))?;
        // Labels near an end stay inside.
        let h = match x(ns) {
            px if px < 30 => HPos::Left,
            px if px > width - 30 => HPos::Right,
            _ => HPos::Center,
        };
        root.draw(&Text::new(units::round_time(ns), (x(ns), bottom + 14), text(Role::Faint, 15, h)))?;
    }
    for (i, (t, ns)) in bars.iter().enumerate() {
        let top = TOP + ROW * i as i32;
        let (bar_top, bar_bottom) = (top + 23, top + 39);
        let role = match t.run.target.as_str() {
            "cpu" => Role::Cpu,
            "gpu" => Role::Gpu,
            _ => Role::Peer,
        };
        let peer = t.run.target.strip_prefix("peer:").map(|p| format!("{} ({p})", t.run.rung));
        let name = peer.unwrap_or(t.run.rung.clone()) + if t.target.ends_with(" cold") { " (cold)" } else { "" };
        let mut value = units::time(*ns);
        if t.first != "-" {
            value = format!("{value}, {}", t.first);
        }
        root.draw(&Text::new(name, (MARGIN, top + 12), text(Role::Text, 16, HPos::Left)))?;
        root.draw(&Text::new(value, (width - MARGIN, top + 12), text(Role::Text, 16, HPos::Right)))?;
        root.draw(&Rectangle::new([(MARGIN, bar_top), (x(*ns), bar_bottom)], role.color().filled()))?;
        if let Some([from, to]) = t.run.ci_ns.filter(|ci| ci.iter().all(|c| c.is_finite() && *c > 0.0)) {
            let middle = (bar_top + bar_bottom) / 2;
            root.draw(&line((x(from), middle), (x(to), middle), Role::Interval, 2))?;
            for end in [from, to] {
                root.draw(&line((x(end), middle - 4), (x(end), middle + 4), Role::Interval, 2))?;
            }
        }
        for (ns, role) in [(floor(t), Role::Floor), (model(t), Role::Model)] {
            if let Some(ns) = ns {
                root.draw(&line((x(ns), bar_top - 3), (x(ns), bar_bottom + 3), role, 3))?;
            }
        }
    }
    Ok(())
}

/// Round times between the ends, at most `most` of them: 1, 2 and 5 of each decade, or fewer.
fn ticks(lo: f64, hi: f64, most: f64) -> Vec<f64> {
    let decades = lo.log10().floor() as i32..=hi.log10().ceil() as i32;
    for (steps, skip) in [(&[1.0, 2.0, 5.0][..], 1), (&[1.0, 3.0], 1), (&[1.0], 1), (&[1.0], 2), (&[1.0], 3)] {
        let all = decades.clone().filter(|d| d.rem_euclid(skip) == 0);
        let ticks: Vec<f64> =
            all.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d))).filter(|t| (lo..=hi).contains(t)).collect();
        if ticks.len() as f64 <= most {
            return ticks;
        }
    }
    Vec::new()
}

/// Colours become classes, and the figure gets its text alternative.
fn finish(svg: String, width: u32, height: i32, title: &str) -> String {
    let mut svg = svg;
    for (role, class) in Role::ALL {
        let RGBColor(r, g, b) = role.color();
        let color = format!("#{r:02X}{g:02X}{b:02X}");
        svg = svg.replace(&format!("fill=\"{color}\""), &format!("class=\"f-{class}\""));
        svg = svg.replace(&format!("stroke=\"{color}\""), &format!("class=\"s-{class}\""));
    }
    let body = svg.find('>').map_or("", |end| &svg[end + 1..]);
    let title = maud::html! { title { (title) } }.into_string();
    format!(
        "<svg class=\"chart\" role=\"img\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">{title}{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_inside_and_not_too_many() {
        assert_eq!(ticks(1.5, 25.0, 9.0), [2.0, 5.0, 10.0, 20.0]);
        assert_eq!(ticks(1.0, 1e4, 5.0), [1.0, 10.0, 100.0, 1e3, 1e4]);
        assert!(ticks(1.0, 1e12, 4.0).len() <= 4);
        assert!(ticks(2.1, 2.2, 9.0).is_empty());
    }

    #[test]
    fn every_colour_becomes_the_class_of_its_role() {
        let shape = |role: Role, attribute: &str| {
            let RGBColor(r, g, b) = role.color();
            format!("<rect {attribute}=\"#{r:02X}{g:02X}{b:02X}\"/>")
        };
        for (role, class) in Role::ALL {
            let svg = format!("<svg>{}{}</svg>", shape(role, "fill"), shape(role, "stroke"));
            let done = finish(svg, 1, 1, "t");
            assert!(done.ends_with(&format!("<rect class=\"f-{class}\"/><rect class=\"s-{class}\"/></svg>")), "{done}");
        }
    }
}
