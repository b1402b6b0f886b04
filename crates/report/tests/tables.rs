//! What people see, held by snapshots: of the terminal in full, of the page what must not break.

use std::path::Path;

use report::{Report, compare, page, table};

fn small() -> Report {
    Report::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/small.json")).unwrap()
}

#[track_caller]
fn narrow(text: &str) -> &str {
    for line in text.lines() {
        assert!(line.chars().count() <= usize::from(table::WIDTH), "{line}");
    }
    assert!(!text.contains('\u{1b}'), "no colour");
    text
}

#[test]
fn ladder_tables() {
    insta::assert_snapshot!(narrow(&table::study(&small(), "example")));
}

#[test]
fn findings_table() {
    insta::assert_snapshot!(table::findings(&small().findings));
    insta::assert_snapshot!("explained", table::explain(&small().findings[0]));
}

#[test]
fn comparison_table() {
    let (a, mut b) = (small(), small());
    b.runs[0].samples_ns.iter_mut().for_each(|ns| *ns *= 2.0);
    b.runs[0].median_ns = b.runs[0].median_ns.map(|ns| ns * 2.0);
    b.runs.retain(|r| r.rung != "autovec");
    insta::assert_snapshot!(narrow(&table::comparison(&compare::compare(&a, &b))));
}

#[test]
fn long_names_and_counters_still_fit() {
    let mut report = small();
    for run in &mut report.runs {
        run.rung = "cpu_07_a_name_that_goes_on_and_on_for_quite_a_while_longer".into();
        run.flags = vec!["throttled".into()];
        run.counters = (0..20).map(|i| (format!("a_counter_with_a_name_{i}"), 1e9)).collect();
    }
    narrow(&table::study(&report, "example"));
}

#[test]
fn an_emulator_run_never_shows_a_time() {
    let mut report = small();
    for run in &mut report.runs {
        run.target = "emulator".into();
        run.median_ns = Some(5e6);
    }
    let text = table::study(&report, "example");
    assert!(!text.contains(" ms"), "{text}");
    assert!(!page(&report).contains("<svg"));
}

#[test]
fn a_rung_that_failed_its_check_never_shows_a_time() {
    let mut report = small();
    report.runs.truncate(1);
    report.runs[0].error.as_mut().unwrap().value = f64::NAN;
    let text = table::study(&report, "example");
    assert!(text.contains("FAIL") && !text.contains("ms ["), "{text}");
    assert!(!page(&report).contains("<svg"));
}

#[test]
fn the_page_is_self_contained_and_holds_its_json() {
    let report = small();
    let html = page(&report);
    for address in ["http://", "https://", "src=", "@import", "url("] {
        let outside = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains(address), "{address}");
    }
    let start = html.find("type=\"application/json\">").unwrap() + "type=\"application/json\">".len();
    let json = &html[start..start + html[start..].find("</script>").unwrap()];
    assert_eq!(Report::parse(json.as_bytes(), Path::new("page")).unwrap(), report);
    assert_eq!(html.matches("role=\"img\"").count(), html.matches("<title>").count() - 1);
    // No colour of a role is left for the style sheet to miss.
    assert!(!html.contains("=\"#01"), "a shape has a colour instead of a class");
}

#[test]
fn hostile_text_stays_text() {
    let evil = "</script><script>alert(1)</script><!--<script>";
    let mut report = small();
    report.host.cpu = evil.into();
    report.driver = evil.into();
    for run in &mut report.runs {
        run.rung = evil.into();
        run.study = evil.into();
        run.axes = [(evil.to_string(), evil.to_string())].into();
        run.flags = vec![evil.into()];
        run.counters.insert(evil.into(), 1.0);
        run.ceiling = Some(evil.into());
    }
    for finding in &mut report.findings {
        finding.statement = evil.into();
        finding.id = evil.into();
    }
    let html = page(&report);
    assert!(!html.contains("<script>alert") && !html.contains("<!--"), "unescaped");
    assert_eq!(html.matches("</script>").count(), 2);
    assert!(html.matches("<svg").count() > 0);
}

#[test]
fn an_empty_report_still_makes_a_page() {
    let mut report = small();
    report.runs.clear();
    report.findings.clear();
    report.curves.clear();
    assert!(page(&report).contains("0 runs"));
}
