//! The GPU rungs: how they are launched, and what their models say they cost.
//!
//! A model works on the oracle's counts and on the rung's own mapping of pixels to warps. Its unit is the *issue
//! slot*: a scheduler of an SM issues one warp instruction a cycle, whatever it computes and for however many lanes,
//! unless the two banks of the register file (even and odd registers, one read each a cycle) keep it waiting:
//! `experiments/register_banks.cu` shows the rule, and `banks` is what it makes of the block's instructions.
//! The instruction counts are those of the machine code that ptxas 12.9 makes for sm_90 from the committed PTX; they
//! stay within 2% for sm_80 and sm_120. A warp that is alone on its scheduler cannot issue every cycle, since each
//! iteration needs the one before: `cycles` is what the dependences of the same code take, 4 cycles for each FP32
//! instruction on the chain.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use timing::launch::{Arg, Descriptor, Geometry, Kernel, Traffic};
use timing::record::Prediction;

use crate::view::Problem;

/// Schedulers of one SM since Volta; each issues one warp instruction a cycle.
pub const SCHEDULERS_PER_SM: u32 = 4;

/// Lanes of a warp.
const WARP: usize = 32;

/// Pixels of a tile, the work of one warp at a time.
const TILE_WIDTH: u32 = 8;
const TILE_HEIGHT: u32 = 4;

/// Threads of a block: one warp for each scheduler. Blocks of one warp land on schedulers as they come: 0 to 16 of
/// the 32 on one of them.
const BLOCK: u32 = SCHEDULERS_PER_SM * WARP as u32;

/// Persistent blocks of an SM, and so warps of a scheduler.
///
/// Four warps fill a scheduler; more would stretch the end of the launch, where each pixel left advances only once
/// in the round of its scheduler's warps.
pub const QUEUE_BLOCKS_PER_SM: u32 = 4;

/// Shared memory that a block of a grid rung asks for and does not use, so that fewer of them are resident: 8 where an
/// SM has 228 KiB, 5 of 164 KiB, 3 of 100 KiB. The fewer share a scheduler, the sooner the last is done.
const GRID_SHARED_BYTES: u32 = 27 * 1024;

/// Warps of a scheduler at a time, of a grid rung or of gpu_03's one block.
const RESIDENT: u32 = 8;

/// One problem on one device, with the oracle's counts: what geometry and models depend on.
#[derive(Clone, Debug)]
pub struct Work {
    /// The problem.
    pub problem: Problem,
    /// Streaming multiprocessors of the device.
    pub sms: u32,
    /// FP32 lanes of one SM: 128, or 64 where an FP32 instruction takes two issue cycles.
    pub fp32_lanes_per_sm: u32,
    counts: Arc<[u32]>,
    iterations: u64,
}

impl Work {
    /// `counts` are the fused oracle's, row-major.
    ///
    /// Panics if they are not `problem.pixels()` many.
    pub fn new(problem: Problem, counts: Arc<[u32]>, sms: u32, fp32_lanes_per_sm: u32) -> Self {
        assert_eq!(counts.len(), problem.pixels(), "counts of another problem");
        let iterations = counts.iter().map(|&n| u64::from(n)).sum();
        Self { problem, sms, fp32_lanes_per_sm, counts, iterations }
    }

    /// Iterations of all pixels together.
    pub fn iterations(&self) -> u64 {
        self.iterations
    }

    /// Tiles of `columns` x 4 pixels, in the order in which warps are given them.
    fn tiles(&self, columns: u32) -> u32 {
        self.problem.width.div_ceil(columns) * self.problem.height.div_ceil(TILE_HEIGHT)
    }

    fn tile_rows(&self, columns: u32, tile: u32) -> impl Iterator<Item = (u32, std::ops::Range<u32>)> {
        let tiles_x = self.problem.width.div_ceil(columns);
        let (x, y) = (tile % tiles_x * columns, tile / tiles_x * TILE_HEIGHT);
        let columns = x..(x + columns).min(self.problem.width);
        (y..(y + TILE_HEIGHT).min(self.problem.height)).map(move |py| (py, columns.clone()))
    }

    fn tile_pixels(&self, columns: u32, tile: u32) -> impl Iterator<Item = (u32, u32)> {
        self.tile_rows(columns, tile).flat_map(|(py, columns)| columns.map(move |px| (px, py)))
    }

    fn count(&self, px: u32, py: u32) -> u32 {
        self.counts[py as usize * self.problem.width as usize + px as usize]
    }
}

/// What a stretch of code costs a warp.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Instructions.
    pub slots: f64,
    /// Of these, on the FP32 pipe.
    pub fp32: f64,
    /// Cycles in which the register banks deliver their operands.
    pub banks: f64,
    /// Cycles from the first instruction to the first of the next stretch, for a warp alone.
    pub cycles: f64,
}

impl Cost {
    const fn new(slots: u32, fp32: u32, cycles: u32) -> Self {
        Self { slots: slots as f64, fp32: fp32 as f64, banks: slots as f64, cycles: cycles as f64 }
    }

    const fn with_banks(self, banks: u32) -> Self {
        Self { banks: banks as f64, ..self }
    }

    fn times(self, n: u32) -> Self {
        let n = f64::from(n);
        Self { slots: self.slots * n, fp32: self.fp32 * n, banks: self.banks * n, cycles: self.cycles * n }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            slots: self.slots + other.slots,
            fp32: self.fp32 + other.fp32,
            banks: self.banks + other.banks,
            cycles: self.cycles + other.cycles,
        }
    }

    /// Cycles for which it holds a scheduler.
    fn issue_cycles(self, work: &Work) -> f64 {
        self.slots.max(self.banks).max(self.fp32 * 128.0 / f64::from(work.fp32_lanes_per_sm.max(1)))
    }
}

/// How the iterations of a block are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// Compared and counted one by one.
    Each,
    /// Compared one by one; the block with the escape is replayed and counted.
    DeferredCount,
    /// Compared at the end of a block; the block with the escape is replayed and counted.
    Deferred,
    /// The same, with y on a scale.
    DeferredScaled,
}

impl Check {
    /// Whether deferring could change the count of `c`, which is then counted like [`Check::Each`]: as the kernels
    /// decide it.
    fn refuses(self, cx: f32, cy: f32) -> bool {
        let ring = (cx.mul_add(cx, cy * cy) - 4.0).abs() < 1e-3;
        let pow2 = |exponent: i32| 2.0f32.powi(exponent);
        let normal = cy.abs() >= pow2(-5) || (cy.abs() >= pow2(-60) && cx.abs() >= pow2(-80));
        match self {
            Self::Each | Self::DeferredCount => false,
            Self::Deferred => ring,
            Self::DeferredScaled => ring || !(normal || cy == 0.0),
        }
    }
}

/// Which warps there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warps {
    /// One.
    One,
    /// 32 on one SM.
    OneSm,
    /// One for each tile, four to a block.
    Grid,
    /// Persistent, with lanes that take single pixels from a queue.
    Queue,
}

/// The mapping of pixels to lanes, and the costs.
#[derive(Clone, Copy, Debug)]
struct Model {
    warps: Warps,
    check: Check,
    /// Pixels of a lane at a time.
    per_lane: u32,
    /// Iterations of a block.
    iterations: u32,
    /// One block.
    block: Cost,
    /// Once for each tile (or pixel, of the one lane; or refill of the queue).
    fixed: Cost,
    /// One counting block of a replay, and its iterations.
    replay: (Cost, u32),
}

/// A rung of the GPU ladder.
#[derive(Clone, Debug)]
pub struct GpuRung {
    /// What the rung changes, in one line.
    pub what: &'static str,
    /// The kernel, its geometry, FLOPs, bytes and traffic.
    pub descriptor: Descriptor<Work>,
    /// Whether the kernel takes a work counter: one `u32` in device memory, zeroed once and left at zero by every
    /// launch.
    pub takes_counter: bool,
    /// Whether the traffic model is exact. Otherwise it is an upper bound: which lanes store together then depends
    /// on the order in which warps reach the queue.
    pub traffic_is_exact: bool,
    model: Model,
}

/// The instructions that a rung issues and the time they take, by its model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Warp instructions of the whole launch.
    pub slots: f64,
    /// Cycles from the first instruction to the last.
    pub cycles: f64,
}

impl GpuRung {
    /// Stem of the rung.
    pub fn stem(&self) -> &'static str {
        self.descriptor.kernel.stem
    }

    /// Kernel arguments. `counter` is ignored by rungs that take none.
    pub fn args<P>(&self, work: &Work, out: P, counter: P) -> Vec<Arg<P>> {
        let p = &work.problem;
        let mut args = vec![
            Arg::Ptr(out),
            Arg::U32(p.width),
            Arg::U32(p.height),
            Arg::U32(p.max_iter),
            Arg::F32(p.view.x0),
            Arg::F32(p.view.y0),
            Arg::F32(p.dx()),
            Arg::F32(p.dy()),
        ];
        if self.takes_counter {
            args.push(Arg::Ptr(counter));
        }
        args
    }

    /// FP32 instructions that the rung's formulation needs for one iteration of one warp: the least that its ceiling
    /// counts. Loops, counts and replays are overhead.
    pub fn arithmetic_per_iteration(&self) -> f64 {
        match self.model.check {
            // 1 mul, 3 fma, 2 add, 1 comparison.
            Check::Each | Check::DeferredCount => 7.0,
            // Without the |z|^2 (1 fma) and its comparison.
            Check::Deferred => 5.0,
            // Without the x + x.
            Check::DeferredScaled => 4.0,
        }
    }

    /// Schedulers that the rung uses on a device with `sms` SMs.
    pub fn schedulers(&self, sms: u32) -> u32 {
        match self.model.warps {
            Warps::One => 1,
            Warps::OneSm => SCHEDULERS_PER_SM,
            Warps::Grid | Warps::Queue => SCHEDULERS_PER_SM * sms,
        }
    }

    /// Warp instructions that the launch issues.
    pub fn predict_issue_slots(&self, work: &Work) -> f64 {
        self.schedule(work).slots
    }

    /// The time the model expects at an SM clock of `sm_hz`, without the launch itself.
    pub fn predict(&self, work: &Work, sm_hz: f64) -> Prediction {
        let Schedule { slots, cycles } = self.schedule(work);
        let schedulers = self.schedulers(work.sms);
        let (bound, end) = (slots / f64::from(schedulers) / sm_hz * 1e9, cycles / sm_hz * 1e9);
        let text = format!(
            "{:.1} M warp instructions on {schedulers} schedulers at {:.3} GHz issue in {:.1} us; {} {:.1} us",
            slots / 1e6,
            sm_hz / 1e9,
            bound / 1e3,
            if self.model.warps == Warps::One { "their dependences take" } else { "with the end of the launch" },
            end / 1e3,
        );
        Prediction { ns: end, text }
    }

    /// Runs the model.
    pub fn schedule(&self, work: &Work) -> Schedule {
        let model = &self.model;
        match model.warps {
            Warps::One if model.per_lane == 0 => {
                let pixels = work.counts.iter().map(|&n| model.fixed.plus(model.block.times(model.blocks(work, n))));
                let all = pixels.fold(Cost::default(), Cost::plus);
                Schedule { slots: all.slots, cycles: all.cycles }
            }
            Warps::One => {
                let columns = TILE_WIDTH * model.per_lane;
                let tiles = (0..work.tiles(columns)).map(|tile| model.tile(work, columns, tile));
                let all = tiles.fold(Cost::default(), Cost::plus);
                Schedule { slots: all.slots, cycles: all.cycles }
            }
            Warps::OneSm | Warps::Grid => {
                let columns = TILE_WIDTH * model.per_lane;
                let mut tiles = (0..work.tiles(columns)).map(|tile| model.tile(work, columns, tile));
                model.makespan(work, self.schedulers(work.sms), RESIDENT, |_| tiles.next())
            }
            Warps::Queue => {
                let blocks = queue_blocks(work);
                let mut queue = Queue::new(work, model, blocks as usize * (BLOCK as usize / WARP));
                model.makespan(work, self.schedulers(work.sms), QUEUE_BLOCKS_PER_SM, |warp| queue.next(warp))
            }
        }
    }
}

impl Model {
    /// Blocks that a lane executes for a pixel of `n` iterations.
    fn blocks(&self, work: &Work, n: u32) -> u32 {
        let max_iter = work.problem.max_iter;
        match self.check {
            // Point n is tested in block n / 16.
            _ if n >= max_iter => max_iter.div_ceil(self.iterations).max(u32::from(self.check == Check::Each)),
            Check::Each | Check::DeferredCount => n / self.iterations + 1,
            // Point n is seen by the test at the end of the block that it belongs to or ends.
            Check::Deferred | Check::DeferredScaled => n.div_ceil(self.iterations).max(1),
        }
    }

    /// Counting blocks of the replay for a pixel.
    fn replays(&self, work: &Work, px: u32, py: u32) -> u32 {
        let n = work.count(px, py);
        match self.check {
            Check::Each => 0,
            _ if self.refuses(work, px, py) => n.min(work.problem.max_iter - 1) / self.replay.1 + 1,
            _ => u32::from(n < work.problem.max_iter),
        }
    }

    fn refuses(&self, work: &Work, px: u32, py: u32) -> bool {
        self.check.refuses(work.problem.cx(px), work.problem.cy(py))
    }

    fn tile(&self, work: &Work, columns: u32, tile: u32) -> Cost {
        let (mut blocks, mut replays) = (0, 0);
        for (px, py) in work.tile_pixels(columns, tile) {
            if work.problem.max_iter == 0 && self.check != Check::Each {
                continue;
            }
            if !self.refuses(work, px, py) {
                blocks = self.blocks(work, work.count(px, py)).max(blocks);
            }
            replays = self.replays(work, px, py).max(replays);
        }
        self.fixed.plus(self.block.times(blocks)).plus(self.replay.0.times(replays))
    }

    /// Runs jobs on schedulers that each share their issue slots evenly among up to `resident` warps.
    ///
    /// `next` gives a warp its next job. A warp never runs faster than its dependences allow. That the four warps of a
    /// block keep their places until the last is done is left out.
    fn makespan(
        &self,
        work: &Work,
        schedulers: u32,
        resident: u32,
        mut next: impl FnMut(usize) -> Option<Cost>,
    ) -> Schedule {
        /// Progress is in instructions made for each resident warp; a job ends at a progress.
        #[derive(Default)]
        struct Scheduler {
            now: f64,
            progress: f64,
            ends: Vec<(f64, usize)>,
        }
        // Cycles for an instruction, as the blocks have it: when it waits for the one before, and when it waits for
        // its turn at the scheduler.
        let alone = self.block.cycles / self.block.slots;
        let crowded = self.block.issue_cycles(work) / self.block.slots;
        let mut all: Vec<Scheduler> = (0..schedulers).map(|_| Scheduler::default()).collect();
        let (mut slots, mut cycles) = (0.0, 0.0f64);
        for warp in 0..schedulers as usize * resident as usize {
            if let Some(job) = next(warp) {
                slots += job.slots;
                all[warp % schedulers as usize].ends.push((job.slots, warp));
            }
        }
        // The first end of each scheduler, earliest on top. Times are positive: their bits are in their order.
        let first_end = |s: &Scheduler| {
            let end = s.ends.iter().map(|&(end, _)| end).reduce(f64::min)?;
            Some((s.now + (end - s.progress) * (s.ends.len() as f64 * crowded).max(alone)).to_bits())
        };
        let mut ends: BinaryHeap<_> =
            all.iter().enumerate().filter_map(|(i, s)| Some(Reverse((first_end(s)?, i)))).collect();
        while let Some(Reverse((now, i))) = ends.pop() {
            let scheduler = &mut all[i];
            scheduler.now = f64::from_bits(now);
            cycles = cycles.max(scheduler.now);
            let mut at = 0;
            for (j, end) in scheduler.ends.iter().enumerate() {
                if end.0 < scheduler.ends[at].0 {
                    at = j;
                }
            }
            let (end, warp) = scheduler.ends.swap_remove(at);
            scheduler.progress = end;
            if let Some(job) = next(warp) {
                slots += job.slots;
                scheduler.ends.push((end + job.slots, warp));
            }
            ends.extend(first_end(scheduler).map(|end| Reverse((end, i))));
        }
        Schedule { slots, cycles }
    }
}

/// Idle lanes that make a warp of the queue stop to refill; `REFILL_FROM` in the kernels.
const REFILL_FROM: usize = 8;

/// The pixels of the persistent rungs on their way through the lanes.
struct Queue<'a> {
    work: &'a Work,
    model: &'a Model,
    /// Next unclaimed pixel.
    next_pixel: (u32, u32),
    warps: Vec<QueueWarp>,
}

#[derive(Clone, Default)]
struct QueueWarp {
    /// Rest of the claimed chunk: row, and columns from..to.
    row: u32,
    from: u32,
    to: u32,
    /// Of each lane: whether it has a pixel, and blocks and counting blocks that the pixel still needs.
    lanes: [(bool, u32, u32); WARP],
}

impl<'a> Queue<'a> {
    fn new(work: &'a Work, model: &'a Model, warps: usize) -> Self {
        Self { work, model, next_pixel: (0, 0), warps: vec![QueueWarp::default(); warps] }
    }

    /// One stop of a warp and the blocks up to its next stop. None when it has gone home.
    fn next(&mut self, warp: usize) -> Option<Cost> {
        let (problem, work, model) = (&self.work.problem, self.work, self.model);
        let warp = self.warps.get_mut(warp)?;
        let replays = warp.lanes.iter().filter(|l| l.0 && l.1 == 0).map(|l| l.2).max().unwrap_or(0);
        let mut more = true;
        for lane in &mut warp.lanes {
            if lane.1 > 0 {
                continue;
            }
            *lane = (false, 0, 0);
            if warp.from == warp.to {
                if self.next_pixel.1 == problem.height || problem.width == 0 {
                    more = false;
                    continue;
                }
                (warp.from, warp.row) = self.next_pixel;
                warp.to = (warp.from + WARP as u32).min(problem.width);
                self.next_pixel = if warp.to < problem.width { (warp.to, warp.row) } else { (0, warp.row + 1) };
            }
            let (px, py) = (warp.from, warp.row);
            warp.from += 1;
            let blocks = if model.refuses(work, px, py) { 0 } else { model.blocks(work, work.count(px, py)) };
            *lane = (true, blocks, if problem.max_iter == 0 { 0 } else { model.replays(work, px, py) });
        }
        let mut left = warp.lanes.map(|l| l.1);
        left.sort_unstable();
        let stop = if more { REFILL_FROM - 1 } else { WARP - 1 };
        let stopping = model.fixed.plus(model.replay.0.times(replays));
        if !more && warp.lanes.iter().all(|l| !l.0) {
            // The last stop delivers; a warp that never had a pixel has none.
            let delivered = replays > 0 || warp.to > 0;
            warp.to = 0;
            warp.from = 0;
            return delivered.then_some(stopping);
        }
        let blocks = left[stop].max(1);
        for lane in &mut warp.lanes {
            lane.1 = lane.1.saturating_sub(blocks);
        }
        Some(stopping.plus(model.block.times(blocks)))
    }
}

fn flops(work: &Work) -> f64 {
    // 1 multiplication, 2 additions, 3 fused multiply-adds; rungs that skip the test are credited with it.
    9.0 * work.iterations as f64
}

fn bytes(work: &Work) -> f64 {
    4.0 * work.problem.pixels() as f64
}

/// A warp for each tile.
fn grid(work: &Work, columns: u32) -> Geometry {
    let blocks = work.tiles(columns).div_ceil(BLOCK / WARP as u32);
    Geometry { shared_bytes: GRID_SHARED_BYTES, ..Geometry::linear(blocks, BLOCK) }
}

fn one_warp(work: &Work, threads: u32) -> Geometry {
    Geometry::linear(u32::from(work.problem.pixels() > 0), threads)
}

fn queue_blocks(work: &Work) -> u32 {
    let chunks = work.problem.width.div_ceil(WARP as u32) * work.problem.height;
    chunks.div_ceil(BLOCK / WARP as u32).min(work.sms * QUEUE_BLOCKS_PER_SM)
}

/// Each pixel is stored alone.
fn pixel_stores(work: &Work) -> Traffic {
    Traffic { store_sectors: work.problem.pixels() as f64, ..Traffic::default() }
}

/// Each tile of 8x4 pixels is stored by one instruction; sectors that two of its rows share count once.
fn tile_stores(work: &Work) -> Traffic {
    let mut sectors = 0u64;
    for tile in 0..work.tiles(TILE_WIDTH) {
        let mut free = 0;
        for (py, columns) in work.tile_rows(TILE_WIDTH, tile) {
            let at = |px: u32| (u64::from(py) * u64::from(work.problem.width) + u64::from(px)) * 4 / 32;
            let (first, last) = (at(columns.start), at(columns.end - 1));
            sectors += last + 1 - first.max(free);
            free = last + 1;
        }
    }
    Traffic { store_sectors: sectors as f64, ..Traffic::default() }
}

const NO_REPLAY: (Cost, u32) = (Cost::new(0, 0, 0), 1);

const fn rung(kernel: Kernel, what: &'static str, geometry: fn(&Work) -> Geometry, model: Model) -> GpuRung {
    let queue = matches!(model.warps, Warps::Queue);
    let alone = queue || model.per_lane == 0;
    GpuRung {
        what,
        descriptor: Descriptor {
            kernel,
            geometry,
            flops,
            bytes,
            traffic: if alone { pixel_stores } else { tile_stores },
        },
        takes_counter: queue,
        traffic_is_exact: !queue,
        model,
    }
}

const fn model(warps: Warps, per_lane: u32, block: Cost, fixed: Cost) -> Model {
    Model { warps, check: Check::Each, per_lane, iterations: 16, block, fixed, replay: NO_REPLAY }
}

/// One lane computes all pixels.
pub(crate) const fn one_lane(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = model(Warps::One, 0, Cost::new(131, 96, 191), Cost::new(18, 2, 48));
    rung(kernel, what, |work| one_warp(work, 1), model)
}

/// One warp computes all pixels, a tile at a time.
pub(crate) const fn one_warp_tiles(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = model(Warps::One, 1, Cost::new(131, 96, 191), Cost::new(54, 4, 186));
    rung(kernel, what, |work| one_warp(work, 32), model)
}

/// One warp computes all pixels, two tiles at a time.
pub(crate) const fn one_warp_ilp2(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = model(Warps::One, 2, Cost::new(265, 192, 295), Cost::new(64, 5, 185));
    rung(kernel, what, |work| one_warp(work, 32), model)
}

/// 32 warps on one SM.
pub(crate) const fn one_sm(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = model(Warps::OneSm, 1, Cost::new(131, 96, 189).with_banks(136), Cost::new(53, 4, 184));
    rung(kernel, what, |work| one_warp(work, 1024), model)
}

/// A warp for each tile.
pub(crate) const fn whole_gpu(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = model(Warps::Grid, 1, Cost::new(131, 96, 190).with_banks(135), Cost::new(59, 4, 250));
    rung(kernel, what, |work| grid(work, TILE_WIDTH), model)
}

/// A warp for each pair of tiles.
pub(crate) const fn whole_gpu_ilp2(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = model(Warps::Grid, 2, Cost::new(265, 192, 291).with_banks(274), Cost::new(71, 5, 250));
    rung(kernel, what, |work| grid(work, 2 * TILE_WIDTH), model)
}

/// Persistent warps with lane refill.
pub(crate) const fn lane_refill(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = model(Warps::Queue, 1, Cost::new(137, 96, 219).with_banks(143), Cost::new(110, 2, 350));
    rung(kernel, what, |work| Geometry::linear(queue_blocks(work), BLOCK), model)
}

/// As [`whole_gpu`], with the count deferred.
pub(crate) const fn deferred_count(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = Model {
        check: Check::DeferredCount,
        replay: (Cost::new(131, 96, 190), 16),
        ..model(Warps::Grid, 1, Cost::new(118, 96, 198).with_banks(122), Cost::new(68, 4, 250))
    };
    rung(kernel, what, |work| grid(work, TILE_WIDTH), model)
}

/// As [`whole_gpu`], with the check deferred.
pub(crate) const fn deferred_check(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = Model {
        check: Check::Deferred,
        replay: (Cost::new(132, 96, 193), 16),
        ..model(Warps::Grid, 1, Cost::new(89, 82, 209).with_banks(98), Cost::new(74, 7, 250))
    };
    rung(kernel, what, |work| grid(work, TILE_WIDTH), model)
}

/// As [`lane_refill`], with the check deferred.
pub(crate) const fn refill_deferred(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = Model {
        check: Check::Deferred,
        iterations: 32,
        replay: (Cost::new(68, 48, 109), 8),
        ..model(Warps::Queue, 1, Cost::new(176, 162, 385).with_banks(190), Cost::new(135, 12, 450))
    };
    rung(kernel, what, |work| Geometry::linear(queue_blocks(work), BLOCK), model)
}

/// As [`deferred_check`], with four instructions an iteration.
pub(crate) const fn scaled(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = Model {
        check: Check::DeferredScaled,
        iterations: 32,
        replay: (Cost::new(132, 96, 191), 16),
        ..model(Warps::Grid, 1, Cost::new(140, 133, 317).with_banks(156), Cost::new(104, 28, 250))
    };
    rung(kernel, what, |work| grid(work, TILE_WIDTH), model)
}

/// As [`refill_deferred`], with four instructions an iteration.
pub(crate) const fn refill_scaled(kernel: Kernel, what: &'static str) -> GpuRung {
    let model = Model {
        check: Check::DeferredScaled,
        iterations: 32,
        replay: (Cost::new(68, 48, 109), 8),
        ..model(Warps::Queue, 1, Cost::new(147, 133, 333).with_banks(154), Cost::new(173, 40, 500))
    };
    rung(kernel, what, |work| Geometry::linear(queue_blocks(work), BLOCK), model)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ladder::GPU;
    use crate::reference::Formulation;
    use crate::view::{BOUNDARY, INTERIOR, View, WHOLE};

    /// Near c = -2, where pixels lie in the ring of the deferred check.
    const TIP: View = View { name: "tip", x0: -2.01, y0: -0.005, x1: -1.99, y1: 0.005 };
    /// Imaginary parts too small for the scaled rungs.
    const AXIS: View = View { name: "axis", x0: -1.5, y0: -1e-18, x1: 0.3, y1: 1e-18 };

    fn work(view: View, width: u32, height: u32, max_iter: u32) -> Work {
        let problem = Problem::new(view, width, height, max_iter).unwrap();
        let mut counts = vec![0; problem.pixels()];
        Formulation::Fused.counts(&problem, &mut counts);
        Work::new(problem, counts.into(), 132, 128)
    }

    fn awkward() -> impl Iterator<Item = Work> {
        let sizes = [(1, 1), (1, 100), (100, 1), (33, 17), (64, 40), (7, 9)];
        let views = [WHOLE, BOUNDARY, INTERIOR, TIP, AXIS];
        let all = views.into_iter().flat_map(move |view| sizes.map(|size| (view, size)));
        all.flat_map(|(view, (w, h))| [0, 1, 16, 100, 333].map(|max_iter| work(view, w, h, max_iter)))
    }

    fn get(stem: &str) -> &'static GpuRung {
        GPU.iter().find(|rung| rung.stem() == stem).unwrap()
    }

    #[test]
    fn arguments_fit_the_entry_of_the_ptx() {
        let w = work(WHOLE, 8, 4, 10);
        for rung in GPU {
            let kernel = rung.descriptor.kernel;
            let (_, entry) = kernel.ptx.split_once(&format!(".visible .entry {}(", kernel.entry)).expect(kernel.stem);
            let types: Vec<&str> = entry
                .split_once(')')
                .map(|(params, _)| params)
                .unwrap()
                .lines()
                .filter_map(|line| line.trim().strip_prefix(".param ."))
                .filter_map(|param| param.split(' ').next())
                .collect();
            let given: Vec<&str> = rung
                .args(&w, 0u64, 0u64)
                .iter()
                .map(|arg| match arg {
                    Arg::Ptr(_) | Arg::U64(_) => "u64",
                    Arg::U32(_) => "u32",
                    Arg::I32(_) => "s32",
                    Arg::F32(_) => "f32",
                })
                .collect();
            assert_eq!(types, given, "{}", kernel.stem);
        }
    }

    #[test]
    fn an_empty_problem_launches_nothing_and_costs_nothing() {
        for (width, height) in [(0, 0), (0, 5), (5, 0)] {
            let w = work(WHOLE, width, height, 10);
            for rung in GPU {
                assert!((rung.descriptor.geometry)(&w).is_empty(), "{} {width}x{height}", rung.stem());
                assert_eq!(rung.schedule(&w), Schedule { slots: 0.0, cycles: 0.0 }, "{}", rung.stem());
                assert_eq!((rung.descriptor.traffic)(&w), Traffic::default());
            }
        }
    }

    #[test]
    fn grids_cover_the_picture_and_queues_bring_no_idle_blocks() {
        for w in awkward() {
            let pixels = w.problem.pixels() as u64;
            for stem in ["gpu_04_whole_gpu", "gpu_07_deferred_count", "gpu_08_deferred_check", "gpu_10_scaled"] {
                let g = (get(stem).descriptor.geometry)(&w);
                assert!(g.blocks() * g.threads_per_block() >= pixels);
            }
            let g = (get("gpu_05_whole_gpu_ilp2").descriptor.geometry)(&w);
            assert!(2 * g.blocks() * g.threads_per_block() >= pixels);
            let g = (get("gpu_06_lane_refill").descriptor.geometry)(&w);
            assert!(g.blocks() >= 1 && g.blocks() <= u64::from(w.problem.width.div_ceil(32) * w.problem.height));
        }
        let large = work(INTERIOR, 1024, 1024, 1);
        assert_eq!((get("gpu_06_lane_refill").descriptor.geometry)(&large), Geometry::linear(528, 128));
        assert_eq!(
            (get("gpu_04_whole_gpu").descriptor.geometry)(&large),
            Geometry { shared_bytes: 27 * 1024, ..Geometry::linear(8192, 128) }
        );
    }

    /// The lanes of a tile as the kernels compute them.
    fn lanes(columns: u32, tile: u32, w: &Work) -> Vec<(u32, u32)> {
        let tiles_x = w.problem.width.div_ceil(columns);
        let all = (0..32).flat_map(|lane| (0..columns / 8).map(move |second| (lane % 8 + 8 * second, lane / 8)));
        let at = all.map(|(x, y)| (tile % tiles_x * columns + x, tile / tiles_x * 4 + y));
        at.filter(|&(px, py)| px < w.problem.width && py < w.problem.height).collect()
    }

    #[test]
    fn store_sectors_are_those_of_the_lanes_addresses() {
        for w in awkward() {
            let mut want = 0;
            for tile in 0..w.tiles(8) {
                let address = |&(px, py): &(u32, u32)| (u64::from(py) * u64::from(w.problem.width) + u64::from(px)) * 4;
                want += lanes(8, tile, &w).iter().map(|lane| address(lane) / 32).collect::<BTreeSet<_>>().len();
            }
            for rung in GPU.iter().filter(|rung| rung.model.warps != Warps::Queue && rung.model.per_lane > 0) {
                let traffic = (rung.descriptor.traffic)(&w);
                assert_eq!(traffic, Traffic { store_sectors: want as f64, ..Traffic::default() }, "{}", rung.stem());
            }
            let lane = (get("gpu_00_one_lane").descriptor.traffic)(&w);
            assert_eq!(lane.store_sectors, w.problem.pixels() as f64);
        }
        // Whole sectors only, where a row is a multiple of 8 pixels long.
        let aligned = (get("gpu_04_whole_gpu").descriptor.traffic)(&work(WHOLE, 64, 40, 1));
        assert_eq!(aligned.store_sectors, 64.0 * 40.0 * 4.0 / 32.0);
    }

    /// Whether a block is compared only at its end.
    fn is_deferred(check: Check) -> bool {
        matches!(check, Check::Deferred | Check::DeferredScaled)
    }

    /// Blocks of one lane by running the kernel's loop, and counting blocks of its replay.
    fn run_lane(check: Check, iterations: u32, replay: u32, cx: f32, cy: f32, max_iter: u32) -> (u32, u32) {
        let inside = |x: f32, y: f32| x.mul_add(x, y * y) <= 4.0;
        let step = |x: &mut f32, y: &mut f32| {
            let t = cx - *y * *y;
            *y = (*x + *x).mul_add(*y, cy);
            *x = x.mul_add(*x, t);
        };
        let block = |x: &mut f32, y: &mut f32, n: &mut u32, k: u32| {
            let mut alive = true;
            for _ in 0..k {
                alive = alive && inside(*x, *y);
                *n += u32::from(alive);
                step(x, y);
            }
            alive
        };
        let (mut x, mut y, mut n, mut blocks, mut replays) = (0.0, 0.0, 0, 0, 0);
        if check == Check::Each {
            loop {
                blocks += 1;
                if !block(&mut x, &mut y, &mut n, iterations) || n >= max_iter {
                    return (blocks, 0);
                }
            }
        }
        let refused = check.refuses(cx, cy);
        while n < max_iter && !refused {
            blocks += 1;
            let (mut xb, mut yb, mut ignored) = (x, y, 0);
            let alive = block(&mut xb, &mut yb, &mut ignored, iterations);
            if !(if is_deferred(check) { inside(xb, yb) } else { alive }) {
                break;
            }
            (x, y, n) = (xb, yb, n + iterations);
        }
        // A short replay starts at the last of the block's points that is known to lie inside.
        for _ in 0..iterations / replay - 1 {
            let (mut xb, mut yb, mut ignored) = (x, y, 0);
            if n < max_iter && !refused && block(&mut xb, &mut yb, &mut ignored, replay) && inside(xb, yb) {
                (x, y, n) = (xb, yb, n + replay);
            }
        }
        while n < max_iter {
            replays += 1;
            let alive = block(&mut x, &mut y, &mut n, replay);
            if !alive || (check != Check::Each && !refused) {
                break;
            }
        }
        (blocks, replays)
    }

    #[test]
    fn block_counts_are_those_of_the_loops() {
        for w in awkward() {
            let p = &w.problem;
            for rung in GPU {
                let m = &rung.model;
                for (px, py) in (0..p.height).flat_map(|py| (0..p.width).map(move |px| (px, py))) {
                    let n = w.count(px, py);
                    let got = if m.refuses(&w, px, py) { 0 } else { m.blocks(&w, n) };
                    let replay = if m.check == Check::Each { 1 } else { m.replay.1 };
                    let want = run_lane(m.check, m.iterations, replay, p.cx(px), p.cy(py), p.max_iter);
                    assert_eq!(got, want.0, "{} at {px},{py} of {:?}: {n}", rung.stem(), p);
                    // A pixel that is still inside at max_iter may leave in the rest of its last block, and is then
                    // replayed; the model leaves that out.
                    if n < p.max_iter || (!is_deferred(m.check) && p.max_iter % m.iterations == 0) {
                        assert_eq!(m.replays(&w, px, py), want.1, "{} at {px},{py} of {:?}: {n}", rung.stem(), p);
                    }
                }
            }
        }
    }

    #[test]
    fn issue_slots_are_the_sum_over_warps_of_the_longest_lane() {
        for w in awkward().filter(|w| w.problem.max_iter > 0) {
            for (stem, columns, block, fixed, replay) in [
                ("gpu_01_one_warp", 8, 131, 54, 0),
                ("gpu_02_one_warp_ilp2", 16, 265, 64, 0),
                ("gpu_03_one_sm", 8, 131, 53, 0),
                ("gpu_04_whole_gpu", 8, 131, 59, 0),
                ("gpu_05_whole_gpu_ilp2", 16, 265, 71, 0),
                ("gpu_07_deferred_count", 8, 118, 68, 131),
            ] {
                let mut want = 0;
                for tile in 0..w.tiles(columns) {
                    let counts: Vec<u32> = lanes(columns, tile, &w).iter().map(|&(x, y)| w.count(x, y)).collect();
                    let longest = *counts.iter().max().unwrap();
                    let blocks = if longest < w.problem.max_iter { longest / 16 + 1 } else { longest.div_ceil(16) };
                    let escapes = counts.iter().any(|&n| n < w.problem.max_iter);
                    want += fixed + block * blocks + replay * u32::from(escapes);
                }
                assert_eq!(get(stem).predict_issue_slots(&w), f64::from(want), "{stem} {:?}", w.problem);
            }
        }
    }

    #[test]
    fn the_queue_hands_out_every_pixel_once() {
        for w in awkward() {
            for stem in ["gpu_06_lane_refill", "gpu_09_refill_deferred", "gpu_11_refill_scaled"] {
                let rung = get(stem);
                let mut queue = Queue::new(&w, &rung.model, 3);
                let (mut taken, mut stops) = (0, 0);
                let mut home = [false; 3];
                while home != [true; 3] {
                    for (warp, home) in home.iter_mut().enumerate() {
                        let before = queue.next_pixel;
                        let left = queue.warps[warp].to - queue.warps[warp].from;
                        *home = queue.next(warp).is_none();
                        stops += u32::from(!*home);
                        let claimed = |at: (u32, u32)| at.1 * w.problem.width + at.0;
                        taken += claimed(queue.next_pixel) - claimed(before) + left
                            - (queue.warps[warp].to - queue.warps[warp].from);
                    }
                }
                assert_eq!(taken as usize, w.problem.pixels(), "{stem} {:?}", w.problem);
                assert!(stops > 0);
            }
        }
    }

    #[test]
    fn schedules_keep_their_bounds() {
        let w = work(INTERIOR, 256, 256, 160);
        // 2048 equal warps of 10 blocks on 528 schedulers: at most 4 of them on one.
        let plain = get("gpu_04_whole_gpu").schedule(&w);
        assert_eq!(plain.slots, 2048.0 * (59.0 + 10.0 * 131.0));
        assert!((plain.cycles - 4.0 * (59.0 + 10.0 * 131.0) * 135.0 / 131.0).abs() < 1e-6, "{plain:?}");
        // One warp alone runs at the pace of its dependences.
        let lone = get("gpu_04_whole_gpu").schedule(&work(INTERIOR, 8, 4, 160));
        assert!((lone.cycles - (59.0 + 1310.0) * 190.0 / 131.0).abs() < 1e-6, "{lone:?}");
        for w in awkward().chain([work(BOUNDARY, 128, 128, 400)]) {
            for rung in GPU {
                let s = rung.schedule(&w);
                let least = s.slots / f64::from(rung.schedulers(w.sms));
                assert!(s.slots > 0.0 && s.cycles >= least * (1.0 - 1e-12), "{} {s:?}", rung.stem());
                // Half as many FP32 lanes can only be slower.
                let half = Work { fp32_lanes_per_sm: 64, ..w.clone() };
                assert!(rung.model.warps == Warps::One || rung.schedule(&half).cycles >= s.cycles, "{}", rung.stem());
            }
        }
    }

    #[test]
    fn refill_issues_less_where_lanes_diverge_and_more_where_they_do_not() {
        let slots = |stem: &str, w: &Work| get(stem).predict_issue_slots(w);
        let boundary = work(BOUNDARY, 512, 512, 2000);
        assert!(slots("gpu_06_lane_refill", &boundary) < 0.85 * slots("gpu_04_whole_gpu", &boundary));
        assert!(slots("gpu_09_refill_deferred", &boundary) < slots("gpu_06_lane_refill", &boundary));
        assert!(slots("gpu_11_refill_scaled", &boundary) < slots("gpu_09_refill_deferred", &boundary));
        let interior = work(INTERIOR, 64, 64, 2000);
        assert!(slots("gpu_06_lane_refill", &interior) > slots("gpu_04_whole_gpu", &interior));
    }

    #[test]
    fn predictions_state_their_arithmetic() {
        let p = get("gpu_04_whole_gpu").predict(&work(INTERIOR, 256, 256, 160), 2e9);
        assert!((p.ns - 4.0 * 1369.0 * 135.0 / 131.0 / 2.0).abs() < 1e-6);
        assert_eq!(
            p.text,
            "2.8 M warp instructions on 528 schedulers at 2.000 GHz issue in 2.7 us; with the end of the launch 2.8 us"
        );
    }
}
