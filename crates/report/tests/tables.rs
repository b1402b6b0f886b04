//! What people see, held by snapshots: of the terminal in full, of the page what must not break.

use std::path::Path;

use report::text::WIDTH;
use report::{Report, compare, page, session, table};

fn small() -> Report {
    Report::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/small.json")).unwrap()
}

#[track_caller]
fn narrow(text: &str) -> &str {
    for line in text.lines() {
        assert!(line.chars().count() <= usize::from(WIDTH), "{line}");
    }
    assert!(!text.contains('\u{1b}'), "no colour");
    text
}

#[test]
fn ladder_tables() {
    insta::assert_snapshot!(narrow(&table::study(&small(), "example", WIDTH)));
}

#[test]
fn findings_table() {
    insta::assert_snapshot!(table::findings(&small().findings, WIDTH));
    insta::assert_snapshot!("explained", table::explain(&small().findings[0], WIDTH));
}

#[test]
fn comparison_table() {
    let (a, mut b) = (small(), small());
    b.runs[0].samples_ns.iter_mut().for_each(|ns| *ns *= 2.0);
    b.runs[0].median_ns = b.runs[0].median_ns.map(|ns| ns * 2.0);
    b.runs.retain(|r| r.rung != "autovec");
    insta::assert_snapshot!(narrow(&table::comparison(&compare::compare(&a, &b), WIDTH)));
}

#[test]
fn names_never_wrap_and_the_rest_fits() {
    let mut report = small();
    for run in &mut report.runs {
        run.rung = "cpu_07_name_of_28_characters".into();
        run.flags = vec!["throttled".into()];
        run.counters = (0..20).map(|i| (format!("a_counter_with_a_name_{i}"), 1e9)).collect();
    }
    let id = "example.a-finding-with-a-name-that-goes-on-for-quite-a-while-and-longer";
    report.findings[0].id = id.into();
    report.findings[1].id = format!("{id}-still");
    report.findings[1].reason = "a reason of many words ".repeat(20);
    report.findings[0].published.text = "published with many words ".repeat(6);
    for width in [80, WIDTH, 120] {
        let text = table::study(&report, "example", width);
        let rows = text.lines().filter(|l| l.starts_with(&format!(" {}  ", report.runs[0].rung))).count();
        assert_eq!(rows, report.runs.len(), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= usize::from(width)), "{text}");
        let header = text.lines().find(|l| l.starts_with(" rung ")).unwrap();
        assert!(header.contains(" model ") == (width > 80) && header.contains(" limit "), "{text}");
        let text = table::findings(&report.findings, width);
        let named = |id: &str| text.lines().filter(|l| l.split_whitespace().next() == Some(id)).count();
        assert_eq!((named(id), named(&format!("{id}-still"))), (1, 1), "{text}");
        assert!(text.contains("  reproduced  ") && text.contains("  8.00x [7.90, 8.10]  "), "{text}");
        let notes: Vec<_> = text.lines().skip_while(|l| !l.contains("-still:")).collect();
        assert!(notes.len() > 2 && notes.iter().all(|l| l.chars().count() <= usize::from(width)), "{text}");
    }
    narrow(&table::explain(&report.findings[1], WIDTH));
}

#[test]
fn a_reason_of_several_findings_is_said_once() {
    let mut report = small();
    report.findings.push(report.findings[1].clone());
    report.findings[2].id = "example.gpu-too".into();
    let text = table::findings(&report.findings, WIDTH);
    assert_eq!(text.matches("needs a GPU").count(), 1, "{text}");
    assert!(text.contains("\n example.gpu, example.gpu-too: needs a GPU"), "{text}");
}

#[test]
fn what_holds_for_every_size_is_said_once() {
    let mut report = small();
    report.questions.insert("example".into(), "Which is best?".into());
    for run in &mut report.runs {
        run.ceiling = Some("cpu.fma".into());
        run.flags.push(format!("compiled:cc -O3 with {}", "a long story ".repeat(12)));
        run.flags.push("noisy".into());
    }
    let text = table::study(&report, "example", WIDTH);
    narrow(&text);
    assert!(text.starts_with("\nexample: Which is best?\n"), "{text}");
    assert_eq!(text.matches("limit cpu.fma: 268 GFLOP/s").count(), 1, "{text}");
    assert_eq!(text.matches("cpu_00_scalar on cpu: compiled: cc -O3").count(), 1, "{text}");
    // What belongs to one run stays below its table.
    assert_eq!(text.matches("cpu_00_scalar on cpu: noisy\n").count(), 2, "{text}");
    let last_table = text.rfind("median").unwrap();
    assert!(text.find("limit cpu.fma").unwrap() > last_table && text.find("compiled:").unwrap() > last_table);
}

#[test]
fn single_slow_samples_are_no_throttled_run() {
    let mut report = small();
    report.runs.truncate(2);
    report.runs[0].flags = vec!["throttled_rounds:3,7".into()];
    report.runs[1].flags = vec!["throttled".into(), "throttled_rounds:1,2,3".into()];
    let text = table::study(&report, "example", WIDTH);
    assert!(!text.contains("cpu_00_scalar on cpu") && !page(&report).contains("rounds 3, 7"), "{text}");
    assert!(text.contains(" cpu_01_simd on cpu: throttled in rounds 1, 2, 3\n"), "{text}");
}

#[test]
fn an_emulator_run_never_shows_a_time() {
    let mut report = small();
    for run in &mut report.runs {
        run.target = "emulator".into();
        run.median_ns = Some(5e6);
    }
    let text = table::study(&report, "example", WIDTH);
    assert!(!text.contains(" ms"), "{text}");
    assert!(!page(&report).contains("<svg"));
}

#[test]
fn a_rung_that_failed_its_check_never_shows_a_time() {
    let mut report = small();
    report.runs.truncate(1);
    report.runs[0].error.as_mut().unwrap().value = f64::NAN;
    report.runs[0].error.as_mut().unwrap().failed = "3 of 9 are wrong: expected 5".into();
    let text = table::study(&report, "example", WIDTH);
    assert!(text.contains("FAIL") && !text.contains("ms ["), "{text}");
    assert!(text.contains("FAIL\n cpu_00_scalar on cpu: 3 of 9 are wrong: expected 5\n"), "{text}");
    let html = page(&report);
    assert!(html.contains("<p class=\"fail\">cpu_00_scalar on cpu failed its check: 3 of 9"), "{html}");
    assert!(!html.contains("<svg") && html.contains("<td>3 of 9 are wrong: expected 5</td>"));
    assert_eq!(report.failures(), ["example/cpu_00_scalar@cpu[size=64x64]: 3 of 9 are wrong: expected 5"]);
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
fn text_of_a_report_cannot_steer_the_terminal() {
    let evil = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\nCHECK\u{202e}";
    let mut report = small();
    report.host.cpu = evil.into();
    report.driver = evil.into();
    report.device = Some(timing::record::Device { name: evil.into(), ..Default::default() });
    report.questions.insert(evil.into(), evil.into());
    report.calibration.ceilings.values_mut().for_each(|c| c.unit = evil.into());
    for run in &mut report.runs {
        (run.id, run.rung, run.study) = (format!("{}{evil}", run.id), evil.into(), evil.into());
        run.axes = [(evil.to_string(), evil.to_string())].into();
        run.flags = vec![evil.into(), format!("compiled:{evil}")];
        run.counters.insert(evil.into(), 1.0);
        run.error.as_mut().unwrap().failed = evil.into();
    }
    report.runs[1].target = format!("peer:{evil}");
    for finding in &mut report.findings {
        finding.id = evil.into();
        finding.statement = evil.into();
        finding.reason = evil.into();
        finding.source = evil.into();
        finding.published.text = evil.into();
        finding.published.machine = evil.into();
        finding.run_ids = vec![evil.into()];
    }
    let empty = Report { runs: Vec::new(), ..report.clone() };
    for text in [
        session::machine(&report),
        table::study(&report, evil, WIDTH),
        table::findings(&report.findings, WIDTH),
        table::explain(&report.findings[0], WIDTH),
        table::comparison(&compare::compare(&report, &report), WIDTH),
        table::comparison(&compare::compare(&report, &empty), WIDTH),
    ] {
        assert!(text.contains("u{1b}"), "it is there, as an escape: {text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("CHECK")), "{text}");
    }
}

#[test]
fn one_of_something_is_said_so() {
    let mut report = small();
    report.host.threads = 1;
    report.runs.truncate(1);
    report.findings.truncate(1);
    assert_eq!(session::machine(&report), "CPU  Example CPU, 1 thread\n");
    let html = page(&report);
    assert!(html.contains(">1 run, 1 finding: 1 reproduced<") && html.contains("1 thread, "), "{html}");
}

#[test]
fn an_empty_report_is_a_page_of_its_machine_and_nothing_else() {
    let mut report = small();
    report.runs.clear();
    report.findings.clear();
    report.curves.clear();
    let html = page(&report);
    assert!(html.contains(">0 runs<") && html.contains("<dd>Example CPU, 2 threads, "), "{html}");
    for absent in ["id=\"findings\"", "href=\"#findings\"", "id=\"study-", "<svg", "<details"] {
        assert!(!html.contains(absent), "{absent}");
    }
}
