//! Numbers as people read them.

/// Unit of a time in ns and the factor to it.
fn time_unit(ns: f64) -> (f64, &'static str) {
    match ns.abs() {
        t if t < 1e3 => (1.0, "ns"),
        t if t < 1e6 => (1e-3, "us"),
        t if t < 1e9 => (1e-6, "ms"),
        _ => (1e-9, "s"),
    }
}

/// Three significant digits, without an exponent between 0.001 and 1e7.
pub fn digits(x: f64) -> String {
    match x.abs() {
        a if !a.is_finite() => "-".into(),
        0.0 => "0".into(),
        a if !(0.000_999_5..1e7).contains(&a) => format!("{x:.2e}"),
        a if a >= 999.5 => {
            let unit = 10f64.powi(a.log10().floor() as i32 - 2);
            format!("{:.0}", (x / unit).round() * unit)
        }
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.9995 => format!("{x:.2}"),
        _ => format!("{x:.3}"),
    }
}

/// A time with its unit: `37.7 ms`. Not a number reads `-`.
pub fn time(ns: f64) -> String {
    if !ns.is_finite() {
        return "-".into();
    }
    let (factor, unit) = time_unit(ns);
    format!("{} {unit}", digits(ns * factor))
}

/// A round time on an axis: `5 ms`.
pub fn round_time(ns: f64) -> String {
    let (factor, unit) = time_unit(ns);
    format!("{} {unit}", (ns * factor * 1e3).round() / 1e3)
}

/// A time with its interval in the same unit: `37.7 ms [37.4, 38.1]`.
pub fn time_with_interval(ns: f64, ci: Option<[f64; 2]>) -> String {
    let (factor, _) = time_unit(ns);
    match ci {
        Some([lo, hi]) if ns.is_finite() => format!("{} [{}, {}]", time(ns), digits(lo * factor), digits(hi * factor)),
        _ => time(ns),
    }
}

/// A ratio: `2.31x`.
pub fn ratio(x: f64) -> String {
    if x.is_finite() { format!("{}x", digits(x)) } else { "-".into() }
}

/// A ratio with its interval: `2.31x [2.25, 2.38]`.
pub fn ratio_with_interval(x: f64, [lo, hi]: [f64; 2]) -> String {
    format!("{} [{}, {}]", ratio(x), digits(lo), digits(hi))
}

/// A count: digits in groups of three while it is a whole number, else three significant digits.
pub fn count(x: f64) -> String {
    if !x.is_finite() || x.fract() != 0.0 || x.abs() >= 1e15 {
        return digits(x);
    }
    let plain = format!("{:.0}", x.abs());
    let mut grouped = String::new();
    for (i, c) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(c);
    }
    if x < 0.0 { format!("-{grouped}") } else { grouped }
}

/// How many of something: `1 thread`, `2 threads`.
pub fn plural(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// A size in bytes: `141 GiB`.
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return format!("{value:.*} {unit}", if value.fract() == 0.0 || value >= 100.0 { 0 } else { 1 });
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_the_unit_that_reads_best() {
        let shown = [0.0, 12.34, 999.4, 1234.0, 37.7e6, 1.049e9, f64::NAN].map(time);
        assert_eq!(shown, ["0 ns", "12.3 ns", "999 ns", "1.23 us", "37.7 ms", "1.05 s", "-"]);
        assert_eq!(time_with_interval(1.05e6, Some([0.98e6, 1.1e6])), "1.05 ms [0.980, 1.10]");
        assert_eq!(time_with_interval(1.05e6, None), "1.05 ms");
    }

    #[test]
    fn digits_round_once() {
        assert_eq!(
            [0.12345, 9.994, 9.996, 99.96, 999.6, 1234.5, -131_917.0, 1e-9].map(digits),
            ["0.123", "9.99", "10.0", "100", "1000", "1230", "-132000", "1.00e-9"]
        );
        assert_eq!([1.0, 500.0, 2e3, 1e9].map(round_time), ["1 ns", "500 ns", "2 us", "1 s"]);
    }

    #[test]
    fn counts_are_exact() {
        assert_eq!([0.0, 999.0, 1048576.0, -1000.0, 0.5].map(count), ["0", "999", "1 048 576", "-1 000", "0.500"]);
        assert_eq!([0, 1, 2].map(|n| plural(n, "run")), ["0 runs", "1 run", "2 runs"]);
        assert_eq!((bytes(512), bytes(151_000_000_000)), ("512 B".into(), "141 GiB".into()));
    }
}
