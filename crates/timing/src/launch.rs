//! What a kernel is and how it is launched: plain data that the driver and the emulator both accept.
//!
//! A rung declares a [`Descriptor`]: its PTX, and its launch geometry, FLOPs, compulsory bytes and traffic as
//! functions of the shape `S`. Nothing here touches a device; see [`crate::cuda`] for that.

/// Grid, block and dynamic shared memory of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Geometry {
    /// A one-dimensional launch without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// Threads of one block.
    pub fn threads_per_block(&self) -> u64 {
        self.block.iter().map(|&n| u64::from(n)).product()
    }

    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// Whether any extent is zero: such a launch does nothing, and the driver refuses it.
    pub fn is_empty(&self) -> bool {
        self.blocks() == 0 || self.threads_per_block() == 0
    }
}

/// One kernel argument. `P` is the address type of the target (a device pointer on the GPU).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg<P> {
    /// Address of a device buffer.
    Ptr(P),
    /// `.u32` / `.b32` parameter.
    U32(u32),
    /// `.s32` parameter.
    I32(i32),
    /// `.u64` parameter that is not an address.
    U64(u64),
    /// `.f32` parameter.
    F32(f32),
}

/// One entry point in one committed PTX file.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Stem of the rung; the PTX is `ptx/<study>/<stem>.ptx`.
    pub stem: &'static str,
    /// Entry point: the stem, or `<stem>__<part>`.
    pub entry: &'static str,
    /// Text of the PTX file.
    pub ptx: &'static str,
    /// Lowest compute capability that the PTX is compiled for.
    pub target: (u32, u32),
}

/// Traffic that a rung's model says it causes, in PTX-level units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// 32-byte sectors that global loads request.
    pub load_sectors: f64,
    /// 32-byte sectors that global stores request.
    pub store_sectors: f64,
    /// Shared-memory wavefronts (128 bytes a cycle each).
    pub shared_wavefronts: f64,
}

/// A kernel with everything a reader or a scheduler needs to know, as functions of the shape `S`.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<S: 'static> {
    /// The code.
    pub kernel: Kernel,
    /// Launch geometry.
    pub geometry: fn(&S) -> Geometry,
    /// Floating-point operations (an FMA is two).
    pub flops: fn(&S) -> f64,
    /// Bytes that must cross device memory: each input once, each output once.
    pub bytes: fn(&S) -> f64,
    /// Traffic by the rung's own model.
    pub traffic: fn(&S) -> Traffic,
}
