//! Counts as a picture.

use std::path::Path;

use report::cli::{FileError, write_file};

use crate::view::Problem;

/// Colour of a count: black inside; outside, hue and brightness wander slowly with the logarithm of the count, so
/// neighbouring counts have neighbouring colours at every depth.
pub fn colour(count: u32, max_iter: u32) -> [u8; 3] {
    if count >= max_iter {
        return [0; 3];
    }
    let t = (1.0 + f64::from(count)).ln();
    // Three waves of different length and phase: dark blue far outside, through white and gold, towards the set.
    [(0.55, 3.3), (0.60, 2.9), (0.65, 2.3)].map(|(speed, phase)| {
        let wave = 0.5 + 0.5 * (std::f64::consts::TAU * speed * t / 2.0 + phase).cos();
        (255.0 * (0.05 + 0.95 * wave)).round() as u8
    })
}

/// The picture of `counts` (row-major, `problem.pixels()` of them) as the bytes of an 8-bit RGB PNG.
///
/// The error says what a PNG cannot hold: an empty picture.
///
/// Panics if there are more or fewer counts.
pub fn encode_png(problem: &Problem, counts: &[u32]) -> Result<Vec<u8>, png::EncodingError> {
    assert_eq!(counts.len(), problem.pixels(), "number of counts");
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, problem.width, problem.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    let mut stream = writer.stream_writer()?;
    let mut row = Vec::with_capacity(3 * problem.width as usize);
    for counts in counts.chunks(problem.width.max(1) as usize) {
        row.clear();
        row.extend(counts.iter().flat_map(|&n| colour(n, problem.max_iter)));
        std::io::Write::write_all(&mut stream, &row).map_err(png::EncodingError::IoError)?;
    }
    stream.finish()?;
    writer.finish()?;
    Ok(bytes)
}

/// Writes the picture of `counts` to `path`, whole or not at all.
pub fn write_png(path: &Path, problem: &Problem, counts: &[u32]) -> Result<(), FileError> {
    match encode_png(problem, counts) {
        Ok(bytes) => write_file(path, &bytes),
        Err(error) => Err(FileError { path: path.into(), detail: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Formulation;
    use crate::view::WHOLE;

    #[test]
    fn the_picture_holds_every_pixel() {
        let problem = Problem::new(WHOLE, 33, 17, 50).unwrap();
        let mut counts = vec![0; problem.pixels()];
        Formulation::Fused.counts(&problem, &mut counts);
        let bytes = encode_png(&problem, &counts).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![1; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height, info.color_type), (33, 17, png::ColorType::Rgb));
        let want: Vec<u8> = counts.iter().flat_map(|&n| colour(n, 50)).collect();
        assert_eq!(pixels, want);
        assert!(want.chunks(3).any(|c| c == [0; 3]) && want.chunks(3).any(|c| c != [0; 3]));
    }

    #[test]
    fn an_empty_picture_is_an_error_in_one_line() {
        let problem = Problem::new(WHOLE, 0, 5, 50).unwrap();
        let folder = std::env::temp_dir().join("never-written.png");
        let error = write_png(&folder, &problem, &[]).unwrap_err().to_string();
        assert!(error.contains("never-written.png") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn neighbouring_counts_have_neighbouring_colours() {
        for n in 20..1999 {
            let (a, b) = (colour(n, 2000), colour(n + 1, 2000));
            assert!(n == 1999 || a.iter().zip(b).all(|(a, b)| a.abs_diff(b) < 40), "{n}: {a:?} {b:?}");
        }
        assert_eq!(colour(2000, 2000), [0; 3]);
    }
}
