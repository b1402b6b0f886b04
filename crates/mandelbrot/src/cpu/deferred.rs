//! The machinery of the deferred rungs: pixels flow through three stages, each with full vectors.
//!
//! 1. *Seed.* The first [`SEED`] iterations of 64 pixels at a time, checked. Most pixels that escape do so here.
//! 2. *Flight.* The survivors are packed, and `K` vectors of them run in blocks of [`BLOCK`] iterations *without* compare
//!    or count: an orbit is looked at only at the end of its block. The state of a lane that is still inside is saved
//!    with a masked store; a lane that has left the disc keeps its last save, and is idle until its vector is serviced:
//!    the save goes to stage 3 and a new survivor takes the lane.
//! 3. *Replay.* Saved lanes, again packed into full vectors, repeat their last block with the checks, for exact counts.
//!
//! # Why a check at the end of the block is enough
//!
//! Claim: for `c` with `|c|^2 <= 4 - 1e-3`, if the computed `m = fma(x, x, y*y)` of one iterate is not `<= 4`, neither is
//! any later one. Let `z` be that iterate, `u = 2^-24`, `eps = 2.5e-4 <= 2 - |c|`. A computed `m > 4` has relative error
//! below `2u`, so `|z|^2 > 4 (1 - 2u)`. One computed step differs from `z^2 + c` by less than `8u |z|^2` in the norm:
//! `y2`, `t` and `x'` round once each, values below `2|z|^2` (as `|c| < 2 < |z|^2`), `y'` rounds once. Hence
//! `|z'| >= |z|^2 (1 - 8u) - |c| >= 4 (1 - 11u) - 2 + eps > 2 + eps/2`, so that `m' >= (4 + 2 eps)(1 - 2u) > 4`: `eps` is
//! 500 times the rounding it must cover (44u = 2.6e-6 against 2 eps = 5e-4). By induction this holds for every later finite
//! iterate. Once an `x` or `y` is infinite or NaN: `x = inf` gives `x' = fma(x, x, t)` infinite or NaN; `y = inf` gives
//! `y2 = inf`, `t = -inf`, `x'` infinite or NaN; a NaN gives NaN; and then `m` is infinite or NaN, never `<= 4`.
//! Larger `|c|` have `z1 = c` exactly and leave in the seed, or lie within the guard band around `|c| = 2` (`c = -2` never
//! leaves). The survivors of the seed that fail [`Block::admits`] are counted with checks throughout, one by one.
//! The band is there for the proof: a search of 4e8 `c` next to `|c| = 2` found none that needs it.
//! The replay runs until its lanes have left, so a count never relies on the block length.

use super::avx512::{Avx512, F32x16, Kernel, LANES, Mask, U32x16, front};
use super::cpu_00_scalar;
use super::pixels::Cursor;
use crate::view::Problem;

/// Iterations of a block.
pub(crate) const BLOCK: u32 = 24;

/// Checked iterations of every pixel.
const SEED: u32 = 16;

/// Vectors of a seed or a replay.
const WIDE: usize = 4;

/// Pixels in one chunk of the output: the unit in which workers take them.
pub(crate) const CHUNK: usize = 256;

/// Idle lanes, summed over blocks, that make a service worth its time: about as long as the service takes.
const IDLE: u32 = 64;

/// Survivors of a whole seed, on top of fewer than a vector left over, and room to store a whole vector at the end.
const QUEUE: usize = (WIDE + 2) * LANES;

/// What a deferred rung does in a block.
pub(crate) trait Block: Sized {
    /// Constants of one vector, in memory.
    type Constants: Copy;

    /// Constants of a vector with these `c`.
    fn constants(simd: Avx512, cx: F32x16, cy: F32x16) -> Self::Constants;

    /// Lanes of `among` whose `c` the block gets exactly right.
    fn admits(simd: Avx512, among: Mask, cx: F32x16, cy: F32x16) -> Mask;

    /// [`BLOCK`] iterations of `K` vectors.
    fn run<const K: usize>(simd: Avx512, x: &mut [F32x16; K], y: &mut [F32x16; K], constants: &[Self::Constants; K]);
}

/// Lanes of any vector. Not a comparison of arrays, which would take the masks through memory.
#[inline(always)]
fn any(masks: &[Mask]) -> Mask {
    masks.iter().fold(0, |any, mask| any | mask)
}

/// `|c|^2 <= 4 - 1e-3`.
#[inline(always)]
pub(crate) fn off_the_guard_band(simd: Avx512, among: Mask, cx: F32x16, cy: F32x16) -> Mask {
    cx.mul_add(cx, cy.mul(cy)).le(among, simd.f32(4.0 - 1e-3))
}

/// Counts the pixels of all chunks that `next` hands out: `CHUNK` pixels each (the last one may have fewer), with the
/// number of the first.
pub(crate) struct Flight<'a, 'p, B, N, const K: usize> {
    pub(crate) problem: &'p Problem,
    pub(crate) next: N,
    pub(crate) block: std::marker::PhantomData<(B, &'a ())>,
}

/// What a block reads and writes, together in at most 4 KiB: a load whose address equals that of an earlier store in the
/// low 12 bits waits for the store, which has to wait for the end of its block.
#[repr(align(4096))]
struct Hot<C, const K: usize> {
    constants: [C; K],
    saves: [Save; K],
    /// First block at whose end a pixel has made `max_iter` iterations or more; 0 for a lane without a pixel.
    deadlines: [Deadline; K],
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Deadline([u32; LANES]);

/// The last state of each lane that was inside, and the block at whose end that was.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Save {
    x: [f32; LANES],
    y: [f32; LANES],
    block: [u32; LANES],
}

/// Whose lanes a vector in flight holds.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    cx: [f32; LANES],
    cy: [f32; LANES],
    pixel: [u32; LANES],
    /// Lanes that hold a pixel.
    busy: Mask,
}

/// Orbits that wait for a lane, or for their replay.
#[repr(align(64))]
struct Queue {
    x: [f32; QUEUE],
    y: [f32; QUEUE],
    cx: [f32; QUEUE],
    cy: [f32; QUEUE],
    /// Iterations made.
    n: [u32; QUEUE],
    pixel: [u32; QUEUE],
    len: usize,
}

impl Queue {
    fn new() -> Self {
        let (f, u) = ([0.0; QUEUE], [0; QUEUE]);
        Self { x: f, y: f, cx: f, cy: f, n: u, pixel: u, len: 0 }
    }

    /// Appends the lanes of `mask`.
    #[inline(always)]
    fn push(&mut self, mask: Mask, [x, y, cx, cy]: [F32x16; 4], n: U32x16, pixel: U32x16) {
        let at = self.len;
        x.compress(mask).store(&mut self.x[at..]);
        y.compress(mask).store(&mut self.y[at..]);
        cx.compress(mask).store(&mut self.cx[at..]);
        cy.compress(mask).store(&mut self.cy[at..]);
        n.compress(mask).store(&mut self.n[at..]);
        pixel.compress(mask).store(&mut self.pixel[at..]);
        self.len += mask.count_ones() as usize;
    }
}

/// Everything of a flight but the registers.
struct Field<'a, 'p, B: Block, N, const K: usize> {
    problem: &'p Problem,
    next: N,
    /// The chunks taken so far: `pixel` is a number in their concatenation.
    chunks: Vec<&'a mut [u32]>,
    /// The chunk being seeded: its pixels not yet taken, and how many were.
    cursor: Cursor<'p>,
    taken: usize,
    exhausted: bool,
    survivors: Queue,
    replays: Queue,
    slots: [Slot; K],
    hot: Hot<B::Constants, K>,
    seed: u32,
    /// Blocks that a survivor flies.
    blocks: u32,
}

impl<'a, B, N, const K: usize> Kernel for Flight<'a, '_, B, N, K>
where
    B: Block,
    N: FnMut() -> Option<(usize, &'a mut [u32])>,
{
    type Output = ();

    #[inline(always)]
    fn run(self, simd: Avx512) {
        let problem = self.problem;
        let seed = problem.max_iter.min(SEED);
        let (zero, four) = (simd.f32(0.0), simd.f32(4.0));
        let (f, u) = ([0.0; LANES], [0; LANES]);
        let mut field = Field::<'_, '_, B, N, K> {
            problem,
            next: self.next,
            chunks: Vec::new(),
            cursor: Cursor::new(problem, 0, 0),
            taken: 0,
            exhausted: false,
            survivors: Queue::new(),
            replays: Queue::new(),
            slots: [Slot { cx: f, cy: f, pixel: u, busy: 0 }; K],
            hot: Hot {
                constants: [B::constants(simd, zero, zero); K],
                saves: [Save { x: f, y: f, block: u }; K],
                deadlines: [Deadline(u); K],
            },
            seed,
            blocks: (problem.max_iter - seed).div_ceil(BLOCK),
        };
        let (mut x, mut y) = ([zero; K], [zero; K]);
        let mut inside = [0 as Mask; K];
        let mut block = 0u32;

        // The first service fills all lanes.
        let mut idle = IDLE;
        loop {
            if idle >= IDLE && !field.exhausted {
                idle = 0;
                inside = simd.run_out_of_line(Service { field: &mut field, block, inside });
                // All of them: a save of a lane inside is its state, and no register need survive the call.
                for v in 0..K {
                    (x[v], y[v]) = (simd.load_f32(&field.hot.saves[v].x), simd.load_f32(&field.hot.saves[v].y));
                }
            }
            if field.exhausted && any(&inside) == 0 {
                break;
            }

            B::run(simd, &mut x, &mut y, &field.hot.constants);
            block += 1;
            let now = simd.u32(block);
            // One number, since separate population counts would be gathered into a vector, at the expense of its ports.
            let mut busy = 0u128;
            for v in 0..K {
                // Of all lanes: those that have left stay outside.
                let bounded = x[v].mul_add(x[v], y[v].mul(y[v])).le(Mask::MAX, four);
                let save = &mut field.hot.saves[v];
                x[v].store_where(bounded, &mut save.x);
                y[v].store_where(bounded, &mut save.y);
                now.store_where(bounded, &mut save.block);
                inside[v] = now.lt(bounded, simd.load_u32(&field.hot.deadlines[v].0));
                busy |= u128::from(inside[v]) << (LANES * v);
            }
            idle += (K * LANES) as u32 - busy.count_ones();
        }
        debug_assert_eq!(field.survivors.len, 0);
        simd.run_out_of_line(Service { field: &mut field, block, inside });
        while field.replays.len > 0 {
            field.replay(simd);
        }
    }
}

/// Services every vector with idle lanes: sends their orbits to the replay and gives them new ones. Returns the lanes in
/// use.
struct Service<'f, 'a, 'p, B: Block, N, const K: usize> {
    field: &'f mut Field<'a, 'p, B, N, K>,
    block: u32,
    inside: [Mask; K],
}

impl<'a, B, N, const K: usize> Kernel for Service<'_, 'a, '_, B, N, K>
where
    B: Block,
    N: FnMut() -> Option<(usize, &'a mut [u32])>,
{
    type Output = [Mask; K];

    #[inline(always)]
    fn run(self, simd: Avx512) -> [Mask; K] {
        let Self { field, block, mut inside } = self;
        for (v, inside) in inside.iter_mut().enumerate() {
            if *inside != Mask::MAX {
                *inside = field.service(simd, v, block, *inside);
            }
        }
        inside
    }
}

impl<'a, B, N, const K: usize> Field<'a, '_, B, N, K>
where
    B: Block,
    N: FnMut() -> Option<(usize, &'a mut [u32])>,
{
    /// Sends the lanes of vector `v` that are not `flying` to the replay and gives them new pixels; returns the lanes in use.
    #[inline(always)]
    fn service(&mut self, simd: Avx512, v: usize, block: u32, flying: Mask) -> Mask {
        let (slot, save) = (&mut self.slots[v], &mut self.hot.saves[v]);
        let (x, y) = (simd.load_f32(&save.x), simd.load_f32(&save.y));
        let (cx, cy) = (simd.load_f32(&slot.cx), simd.load_f32(&slot.cy));
        let (deadline, pixel) = (simd.load_u32(&self.hot.deadlines[v].0), simd.load_u32(&slot.pixel));
        // A pixel saved `left` blocks before its deadline has made `at_deadline - left * BLOCK` iterations. One that was still
        // inside at its deadline is finished: the seed has set the counts of all survivors to `max_iter`.
        let at_deadline = simd.u32(self.seed + self.blocks * BLOCK);
        let saved = simd.load_u32(&save.block);
        let unfinished = saved.lt(slot.busy & !flying, deadline);
        slot.busy = flying;
        if unfinished != 0 {
            let n = saved.sub(deadline).mul(simd.u32(BLOCK)).add(at_deadline);
            self.replays.push(unfinished, [x, y, cx, cy], n, pixel);
            if self.replays.len >= WIDE * LANES {
                self.replay(simd);
            }
        }

        let wanted = flying.count_zeros() as usize;
        while self.survivors.len < wanted && !self.exhausted {
            self.seed(simd);
        }
        let count = wanted.min(self.survivors.len);
        // The lowest `count` of the free lanes.
        let mut free = !flying;
        for _ in count..wanted {
            free &= !(1 << (LANES as u32 - 1 - free.leading_zeros()));
        }
        let queue = &mut self.survivors;
        queue.len -= count;
        let at = queue.len;
        let (cx, cy) =
            (cx.expand(free, simd.load_f32(&queue.cx[at..])), cy.expand(free, simd.load_f32(&queue.cy[at..])));
        let (slot, save) = (&mut self.slots[v], &mut self.hot.saves[v]);
        x.expand(free, simd.load_f32(&queue.x[at..])).store(&mut save.x);
        y.expand(free, simd.load_f32(&queue.y[at..])).store(&mut save.y);
        cx.store(&mut slot.cx);
        cy.store(&mut slot.cy);
        pixel.expand(free, simd.load_u32(&queue.pixel[at..])).store(&mut slot.pixel);
        // Lanes that stay without a pixel are done at once.
        simd.u32(0).store_where(!flying, &mut self.hot.deadlines[v].0);
        simd.u32(block).store_where(free, &mut save.block);
        simd.u32(block + self.blocks).store_where(free, &mut self.hot.deadlines[v].0);
        slot.busy = flying | free;
        self.hot.constants[v] = B::constants(simd, cx, cy);
        flying | free
    }

    /// Stage 1 for the next pixels of the chunk, at most 64; takes the next chunk first if there is none left.
    #[inline(always)]
    fn seed(&mut self, simd: Avx512) {
        if self.cursor.is_empty() {
            let Some((start, chunk)) = (self.next)() else {
                self.exhausted = true;
                return;
            };
            self.cursor = Cursor::new(self.problem, start, start + chunk.len());
            self.taken = 0;
            self.chunks.push(chunk);
        }
        let (zero, four, one) = (simd.f32(0.0), simd.f32(4.0), simd.u32(1));
        let mut memory = [[0.0; LANES]; 2];
        let (mut x, mut y, mut cx, mut cy) = ([zero; WIDE], [zero; WIDE], [zero; WIDE], [zero; WIDE]);
        let (mut n, mut inside, mut lanes) = ([simd.u32(0); WIDE], [0 as Mask; WIDE], [0 as Mask; WIDE]);
        for v in 0..WIDE {
            let [mx, my] = &mut memory;
            lanes[v] = self.cursor.next(simd, mx, my).1;
            (cx[v], cy[v]) = (simd.load_f32(mx), simd.load_f32(my));
            inside[v] = lanes[v];
        }
        let mut left = self.seed;
        while left > 0 && any(&inside) != 0 {
            let steps = left.min(4);
            for _ in 0..steps {
                for v in 0..WIDE {
                    let y2 = y[v].mul(y[v]);
                    inside[v] = x[v].mul_add(x[v], y2).le(inside[v], four);
                    n[v] = n[v].add_where(inside[v], one);
                    let xn = x[v].mul_add(x[v], cx[v].sub(y2));
                    y[v] = x[v].add(x[v]).mul_add(y[v], cy[v]);
                    x[v] = xn;
                }
            }
            left -= steps;
        }
        let last = self.chunks.len() - 1;
        for v in 0..WIDE {
            let count = lanes[v].count_ones() as usize;
            let result = n[v].select(inside[v], simd.u32(self.problem.max_iter));
            result.store_front(&mut self.chunks[last][self.taken..self.taken + count]);
            if self.blocks > 0 && inside[v] != 0 {
                let first = (last * CHUNK + self.taken) as u32;
                let pixel = simd.u32(first).add(simd.iota());
                let admitted = B::admits(simd, inside[v], cx[v], cy[v]);
                self.survivors.push(admitted, [x[v], y[v], cx[v], cy[v]], n[v], pixel);
                if admitted != inside[v] {
                    self.count_one_by_one(inside[v] & !admitted, cx[v], cy[v]);
                }
            }
            self.taken += count;
        }
    }

    /// The whole orbits of a few pixels of the current chunk, checked.
    #[inline(always)]
    fn count_one_by_one(&mut self, lanes: Mask, cx: F32x16, cy: F32x16) {
        let mut c = [[0.0; LANES]; 2];
        cx.store(&mut c[0]);
        cy.store(&mut c[1]);
        let last = self.chunks.len() - 1;
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 == 1) {
            self.chunks[last][self.taken + lane] = cpu_00_scalar::count(c[0][lane], c[1][lane], self.problem.max_iter);
        }
    }

    /// Stage 3 for up to 64 waiting orbits.
    #[inline(always)]
    fn replay(&mut self, simd: Avx512) {
        let (zero, four, one) = (simd.f32(0.0), simd.f32(4.0), simd.u32(1));
        let max_iter = simd.u32(self.problem.max_iter);
        let queue = &mut self.replays;
        let count = queue.len.min(WIDE * LANES);
        let start = queue.len - count;
        queue.len = start;
        let (mut x, mut y, mut cx, mut cy) = ([zero; WIDE], [zero; WIDE], [zero; WIDE], [zero; WIDE]);
        let (mut n, mut inside) = ([simd.u32(0); WIDE], [0 as Mask; WIDE]);
        for v in 0..WIDE {
            // In bounds even where the queue ends earlier; those lanes are masked.
            let at = start + v * LANES;
            (x[v], y[v]) = (simd.load_f32(&queue.x[at..]), simd.load_f32(&queue.y[at..]));
            (cx[v], cy[v]) = (simd.load_f32(&queue.cx[at..]), simd.load_f32(&queue.cy[at..]));
            n[v] = simd.load_u32(&queue.n[at..]);
            inside[v] = front(count.saturating_sub(v * LANES));
        }
        while any(&inside) != 0 {
            for v in 0..WIDE {
                let y2 = y[v].mul(y[v]);
                inside[v] = x[v].mul_add(x[v], y2).le(n[v].lt(inside[v], max_iter), four);
                n[v] = n[v].add_where(inside[v], one);
                let xn = x[v].mul_add(x[v], cx[v].sub(y2));
                y[v] = x[v].add(x[v]).mul_add(y[v], cy[v]);
                x[v] = xn;
            }
        }
        for (v, n) in n.iter().enumerate() {
            n.store(&mut queue.n[start + v * LANES..]);
        }
        for (&n, &pixel) in queue.n[start..start + count].iter().zip(&queue.pixel[start..start + count]) {
            self.chunks[pixel as usize / CHUNK][pixel as usize % CHUNK] = n;
        }
    }
}
