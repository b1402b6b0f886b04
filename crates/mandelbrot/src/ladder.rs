//! The rungs, in order. Everything else iterates these lists.

use timing::launch::Kernel;

use crate::gpu::{self, GpuRung};

/// The kernel of a stem: its PTX, whose only entry has the same name.
macro_rules! kernel {
    ($stem:literal) => {
        Kernel {
            stem: $stem,
            entry: $stem,
            ptx: include_str!(concat!("../../../ptx/mandelbrot/", $stem, ".ptx")),
            target: (6, 0),
        }
    };
}

/// The GPU rungs.
pub const GPU: &[GpuRung] = &[
    gpu::one_lane(kernel!("gpu_00_one_lane"), "one lane computes every pixel"),
    gpu::one_warp_tiles(kernel!("gpu_01_one_warp"), "32 lanes, one pixel each"),
    gpu::one_warp_ilp2(kernel!("gpu_02_one_warp_ilp2"), "32 lanes, two pixels each"),
    gpu::one_sm(kernel!("gpu_03_one_sm"), "32 warps fill one SM"),
    gpu::whole_gpu(kernel!("gpu_04_whole_gpu"), "a warp for each tile, on every SM"),
    gpu::whole_gpu_ilp2(kernel!("gpu_05_whole_gpu_ilp2"), "two pixels per thread on every SM"),
    gpu::lane_refill(kernel!("gpu_06_lane_refill"), "finished lanes take new pixels from a queue"),
    gpu::deferred_count(kernel!("gpu_07_deferred_count"), "count by blocks, replay the last one"),
    gpu::deferred_check(kernel!("gpu_08_deferred_check"), "compare once a block, replay the last one"),
    gpu::refill_deferred(kernel!("gpu_09_refill_deferred"), "lane refill and deferred check together"),
    gpu::scaled(kernel!("gpu_10_scaled"), "four instructions an iteration, with y on a moving scale"),
    gpu::refill_scaled(kernel!("gpu_11_refill_scaled"), "lane refill and scaled y together"),
];
