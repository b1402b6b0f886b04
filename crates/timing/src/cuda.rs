//! The CUDA driver, opened at run time: context, memory, modules, launches, events, graphs.
//!
//! All `unsafe` of the GPU side is in this file. What leaves it is safe to call and reports every failure as one
//! line. The library is only opened after [`open_driver`] has seen that it is there and has every function used
//! here: cudarc panics on a missing library, on a missing symbol, and when it formats an error without a library.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_uint, c_void};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaStream, sys};
use thiserror::Error;

use crate::check::POISON_BYTE;
use crate::launch::{Arg, Geometry, Kernel};
use crate::record::{Device, Resources};

/// The CUDA version whose drivers load PTX 8.4, the version that NVRTC 12.4 writes.
pub const NEEDED_CUDA: (u32, u32) = (12, 4);

/// Why there is no GPU to use. Each is a reason to skip, in one line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Absence {
    /// No libcuda on the loader's path.
    #[error("no CUDA driver library (libcuda) on this machine")]
    NoLibrary,
    /// A library of that name that is not a usable driver.
    #[error("the CUDA driver library lacks {0}: it is not a driver for CUDA 12")]
    Incomplete(String),
    /// The driver is older than the PTX.
    #[error("PTX 8.4 needs a driver for CUDA {}.{}; this one is for {}.{}", NEEDED_CUDA.0, NEEDED_CUDA.1, .0.0, .0.1)]
    TooOld((u32, u32)),
    /// The driver answers but has no device to offer.
    #[error("the CUDA driver is there, but it sees no device")]
    NoDevice,
    /// `cuInit` failed for another reason.
    #[error("the CUDA driver does not start: {0}")]
    InitFailed(String),
}

/// What a [`GpuError`] means for the rung that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The rung asks for more than this device has: a reason to skip it. The device goes on working.
    Unsupported,
    /// The rung is wrong: it wrote where it must not, gave a wrong value, or its launch does not fit its kernel. A
    /// failed check of that rung, which has no time. The device goes on working.
    CheckFailed,
    /// A call of the driver failed, for example because a kernel read or wrote outside all memory. What follows on
    /// this device may fail as well, so nothing more can be measured on it: an input/output error.
    Driver,
}

/// A failed call on a GPU that is there. [`GpuError::kind`] says what becomes of the rung.
#[derive(Clone, Debug, Error)]
pub enum GpuError {
    /// A driver call failed.
    #[error("{call} failed: {text}")]
    Driver {
        /// Driver function.
        call: &'static str,
        /// Name and text of the error.
        text: String,
    },
    /// The driver refused the PTX.
    #[error("the driver cannot compile {stem}.ptx: {log}")]
    Jit {
        /// Stem of the kernel.
        stem: &'static str,
        /// The JIT compiler's log, on one line.
        log: String,
    },
    /// The PTX needs a newer GPU.
    #[error("{stem} needs compute capability {}.{}; this device has {}.{}", needs.0, needs.1, has.0, has.1)]
    Capability {
        /// Stem of the kernel.
        stem: &'static str,
        /// What the PTX was compiled for.
        needs: (u32, u32),
        /// What the device has.
        has: (u32, u32),
    },
    /// The PTX uses features of one architecture (`sm_90a`), which later ones do not have.
    #[error("{stem} is compiled for {target} alone; this device has compute capability {}.{}", has.0, has.1)]
    Architecture {
        /// Stem of the kernel.
        stem: &'static str,
        /// Target of the PTX.
        target: String,
        /// What the device has.
        has: (u32, u32),
    },
    /// The arguments do not fit the entry's parameters.
    #[error("{entry} takes ({expected}); the launch gives ({given})")]
    Arguments {
        /// Entry point.
        entry: &'static str,
        /// Types of the parameters in the PTX.
        expected: String,
        /// Types of the arguments.
        given: String,
    },
    /// The PTX has no such entry.
    #[error("{stem}.ptx has no entry {entry}")]
    NoEntry {
        /// Stem of the kernel.
        stem: &'static str,
        /// Entry point asked for.
        entry: &'static str,
    },
    /// A launch outside the limits of the device: grid, block, or more registers than an SM has.
    #[error("{entry}: grid {grid:?} x block {block:?} is outside the device's limits")]
    Geometry {
        /// Entry point.
        entry: &'static str,
        /// Grid.
        grid: [u32; 3],
        /// Block.
        block: [u32; 3],
    },
    /// A block needs more shared memory than the device lets it have.
    #[error("{entry} needs {needed} bytes of shared memory for a block; this device has {available}")]
    SharedMemory {
        /// Entry point.
        entry: &'static str,
        /// Static and dynamic bytes of a block.
        needed: u64,
        /// Bytes that a block may have.
        available: u32,
    },
    /// Device memory is short.
    #[error("{needed} bytes of device memory are needed; {free} are free")]
    Memory {
        /// Bytes asked for.
        needed: usize,
        /// Bytes free.
        free: usize,
    },
    /// A copy between buffers of different length.
    #[error("copy of {from} elements into a buffer of {to}")]
    Length {
        /// Elements of the source.
        from: usize,
        /// Elements of the destination.
        to: usize,
    },
    /// A kernel wrote past the end of a buffer.
    #[error("memory behind a buffer of {bytes} bytes was overwritten")]
    Guard {
        /// Bytes of the buffer.
        bytes: usize,
    },
    /// A calibration kernel computed something else than it must.
    #[error("the calibration kernel {stem} returned a wrong value")]
    WrongValue {
        /// Stem of the kernel.
        stem: &'static str,
    },
}

impl GpuError {
    /// What becomes of the rung: a skip, a failed check, or the end of measuring on this device.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Capability { .. }
            | Self::Architecture { .. }
            | Self::Geometry { .. }
            | Self::SharedMemory { .. }
            | Self::Memory { .. } => ErrorKind::Unsupported,
            Self::Guard { .. }
            | Self::WrongValue { .. }
            | Self::Arguments { .. }
            | Self::NoEntry { .. }
            | Self::Length { .. } => ErrorKind::CheckFailed,
            Self::Driver { .. } | Self::Jit { .. } => ErrorKind::Driver,
        }
    }
}

/// Result of a GPU call.
pub type Result<T, E = GpuError> = std::result::Result<T, E>;

fn driver_text(code: sys::CUresult) -> String {
    let mut name = std::ptr::null();
    let mut text = std::ptr::null();
    // SAFETY: both calls write a pointer to a static string, or leave null for an unknown code.
    let (name, text) = unsafe {
        let _ = sys::cuGetErrorName(code, &mut name);
        let _ = sys::cuGetErrorString(code, &mut text);
        let read =
            |p: *const std::ffi::c_char| (!p.is_null()).then(|| CStr::from_ptr(p).to_string_lossy().into_owned());
        (read(name), read(text))
    };
    match (name, text) {
        (Some(name), Some(text)) => format!("{name} ({text})"),
        (Some(name), None) => name,
        _ => format!("error {}", code as u32),
    }
}

fn ok(call: &'static str, code: sys::CUresult) -> Result<()> {
    if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(GpuError::Driver { call, text: driver_text(code) }) }
}

/// Every driver function called below or by the parts of cudarc used below.
const SYMBOLS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuLaunchKernel",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventElapsedTime",
];

/// Opens the driver library and starts it. Returns the CUDA version it is for.
///
/// # Errors
/// The [`Absence`] that says what is missing. Never panics.
pub fn open_driver() -> std::result::Result<(u32, u32), Absence> {
    // SAFETY: loading libcuda runs its constructors, as every CUDA program does.
    if !unsafe { sys::is_culib_present() } {
        return Err(Absence::NoLibrary);
    }
    // SAFETY: the library is present, so this does not panic; symbols are looked up and not called.
    let library = unsafe { sys::culib() };
    for symbol in SYMBOLS {
        let name = CString::new(*symbol).expect("no symbol has a NUL");
        // SAFETY: the pointer is only tested for being there.
        if unsafe { library.get::<*const c_void>(name.as_bytes_with_nul()) }.is_err() {
            return Err(Absence::Incomplete((*symbol).to_string()));
        }
    }
    let mut version = 0;
    // SAFETY: cuDriverGetVersion may be called before cuInit and writes one int.
    let code = unsafe { sys::cuDriverGetVersion(&mut version) };
    if code != sys::CUresult::CUDA_SUCCESS {
        return Err(Absence::InitFailed(driver_text(code)));
    }
    let version = (version as u32 / 1000, version as u32 % 1000 / 10);
    // SAFETY: cuInit takes no pointers.
    let code = unsafe { sys::cuInit(0) };
    if code == sys::CUresult::CUDA_ERROR_NO_DEVICE {
        return Err(Absence::NoDevice);
    }
    // An old driver is named as such even where it also fails to start.
    if version < NEEDED_CUDA {
        return Err(Absence::TooOld(version));
    }
    if code != sys::CUresult::CUDA_SUCCESS {
        return Err(Absence::InitFailed(driver_text(code)));
    }
    let mut count = 0;
    // SAFETY: the driver is initialised; the call writes one int.
    let code = unsafe { sys::cuDeviceGetCount(&mut count) };
    if code != sys::CUresult::CUDA_SUCCESS {
        return Err(Absence::InitFailed(driver_text(code)));
    }
    if count < 1 { Err(Absence::NoDevice) } else { Ok(version) }
}

/// A device address; only good on the [`Gpu`] it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePtr(u64);

impl DevicePtr {
    /// The address `bytes` further on.
    pub fn offset_bytes(self, bytes: u64) -> Self {
        DevicePtr(self.0 + bytes)
    }
}

/// `len` elements of device memory, followed by a guard that [`Gpu::check_guard`] inspects. Freed on drop.
pub struct Buffer<T> {
    address: u64,
    len: usize,
    context: Arc<CudaContext>,
    element: PhantomData<T>,
}

/// Byte that poisons float outputs: four of them are a NaN, as eight and two are.
pub const POISON_FLOAT: u8 = 0xFF;
const GUARD_BYTES: usize = 512;
const GUARD_BYTE: u8 = 0x5C;

impl<T> Buffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size without the guard.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Address of the first element, aligned to 256 bytes.
    pub fn ptr(&self) -> DevicePtr {
        DevicePtr(self.address)
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the address came from cuMemAlloc and is freed once. A failure (a context that a faulty kernel
            // has killed) leaves nothing to do.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

struct Module {
    raw: sys::CUmodule,
    context: Arc<CudaContext>,
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: loaded once, unloaded once; functions hold the module alive.
            let _ = unsafe { sys::cuModuleUnload(self.raw) };
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Param {
    Bits64,
    Bits32,
    Float32,
}

impl Param {
    fn name(self) -> &'static str {
        match self {
            Param::Bits64 => "u64",
            Param::Bits32 => "u32",
            Param::Float32 => "f32",
        }
    }
}

/// Target of the PTX and the only compute capability that has it, if it is one of those with the suffix `a`.
fn one_architecture(ptx: &str) -> Option<(&str, (u32, u32))> {
    let target = ptx.lines().find_map(|line| line.trim_start().strip_prefix(".target"))?;
    let target = target.split([',', ' ', '\t']).find(|word| !word.is_empty())?;
    let number: u32 = target.strip_prefix("sm_")?.strip_suffix('a')?.parse().ok()?;
    Some((target, (number / 10, number % 10)))
}

/// Types of the parameters of `entry`, read from the PTX text; none when the entry is not there.
fn entry_params(ptx: &str, entry: &str) -> Option<Vec<String>> {
    let mut rest = ptx;
    loop {
        let at = rest.find(".entry")?;
        rest = rest[at + ".entry".len()..].trim_start();
        let Some(after) = rest.strip_prefix(entry) else { continue };
        let after = after.trim_start();
        let list = match after.strip_prefix('(') {
            Some(list) => list.split_once(')')?.0,
            None if after.starts_with(['{', '.']) => "",
            None => continue,
        };
        let params = list.split(',').map(str::trim).filter(|p| !p.is_empty());
        let of_param = |p: &str| {
            let words: Vec<&str> = p.split_whitespace().skip_while(|w| *w != ".param").skip(1).collect();
            let at = if words.first() == Some(&".align") { 2 } else { 0 };
            words.get(at).unwrap_or(&"").trim_start_matches('.').to_string()
        };
        return Some(params.map(of_param).collect());
    }
}

/// A loaded kernel, ready to launch.
#[derive(Clone)]
pub struct Function {
    raw: sys::CUfunction,
    entry: &'static str,
    params: Vec<Param>,
    static_shared: u32,
    dynamic_shared: Rc<Cell<u32>>,
    _module: Rc<Module>,
}

/// A pair of these around work on the stream gives its time.
pub struct Event {
    raw: sys::CUevent,
    context: Arc<CudaContext>,
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: created once, destroyed once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}

/// Recorded launches that replay with one call.
pub struct Graph {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    context: Arc<CudaContext>,
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: both handles came from this graph's capture and are destroyed once; exec may be null.
            unsafe {
                if !self.exec.is_null() {
                    let _ = sys::cuGraphExecDestroy(self.exec);
                }
                let _ = sys::cuGraphDestroy(self.graph);
            }
        }
    }
}

/// One device with one stream: everything below runs in order on it.
pub struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    device: Device,
    driver: (u32, u32),
    limits: Limits,
}

struct Limits {
    grid: [u32; 3],
    block: [u32; 3],
    threads: u64,
}

/// FP32 lanes of an SM by compute capability, from the throughput table of the CUDA C++ Programming Guide.
fn fp32_lanes(cc: (u32, u32)) -> u32 {
    match cc {
        (6, 0) | (7, _) | (8, 0) => 64,
        _ => 128,
    }
}

impl Gpu {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// The [`Absence`] that says why there is none.
    pub fn open(ordinal: usize) -> std::result::Result<Gpu, Absence> {
        let driver = open_driver()?;
        let failed = |e: cudarc::driver::DriverError| Absence::InitFailed(driver_text(e.0));
        let count = CudaContext::device_count().map_err(failed)?;
        if ordinal >= count as usize {
            return Err(Absence::NoDevice);
        }
        let context = CudaContext::new(ordinal).map_err(failed)?;
        // SAFETY: cudarc's events order several streams; there is one stream here, and its hidden event calls would
        // stand between the launches being timed and break graph capture.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(failed)?;
        let (device, limits) = describe(&context, ordinal).map_err(|e| Absence::InitFailed(e.to_string()))?;
        Ok(Gpu { context, stream, device, driver, limits })
    }

    /// What the driver says of the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// CUDA version of the driver.
    pub fn driver(&self) -> (u32, u32) {
        self.driver
    }

    /// The stream, for libraries that enqueue on it.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(|e| GpuError::Driver { call: "cuCtxSetCurrent", text: driver_text(e.0) })
    }

    fn raw_stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    /// Waits for all enqueued work.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream lives as long as self.
        ok("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw_stream()) })
    }

    /// Free and total device memory, in bytes.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        ok("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// Allocates `len` elements, poisoned with [`POISON_BYTE`], and the guard behind them.
    ///
    /// # Errors
    /// [`GpuError::Memory`] when the device has too little, before anything is allocated.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.bind()?;
        let (free, _) = self.memory()?;
        let needed = len.checked_mul(size_of::<T>()).and_then(|n| n.checked_add(GUARD_BYTES)).unwrap_or(usize::MAX);
        if needed > free {
            return Err(GpuError::Memory { needed, free });
        }
        let mut address = 0;
        // SAFETY: writes one address; the size is positive.
        ok("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, needed) })?;
        let buffer = Buffer { address, len, context: self.context.clone(), element: PhantomData };
        self.set_guard(&buffer)?;
        self.fill(&buffer, POISON_BYTE)?;
        Ok(buffer)
    }

    /// Fills a buffer with one byte: zero, or [`POISON_BYTE`] or [`POISON_FLOAT`], so that an element that no
    /// kernel writes is seen.
    pub fn fill<T: Pod>(&self, buffer: &Buffer<T>, byte: u8) -> Result<()> {
        self.bind()?;
        if buffer.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is the buffer.
        ok("cuMemsetD8", unsafe { sys::cuMemsetD8Async(buffer.address, byte, buffer.bytes(), self.raw_stream()) })
    }

    /// Copies `data` to the device.
    ///
    /// # Errors
    /// [`GpuError::Length`] when the lengths differ.
    pub fn upload<T: Pod>(&self, data: &[T], buffer: &Buffer<T>) -> Result<()> {
        if data.len() != buffer.len {
            return Err(GpuError::Length { from: data.len(), to: buffer.len });
        }
        if data.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: both ranges have buffer.bytes() bytes, and the copy is waited for while `data` is borrowed.
        let code = unsafe {
            sys::cuMemcpyHtoDAsync_v2(buffer.address, data.as_ptr().cast(), buffer.bytes(), self.raw_stream())
        };
        ok("cuMemcpyHtoD", code)?;
        self.synchronize()
    }

    /// Copies a buffer back, after all enqueued work.
    pub fn download<T: Pod>(&self, buffer: &Buffer<T>) -> Result<Vec<T>> {
        let mut data = vec![T::zeroed(); buffer.len];
        if data.is_empty() {
            self.synchronize()?;
            return Ok(data);
        }
        self.bind()?;
        // SAFETY: both ranges have buffer.bytes() bytes, and the copy is waited for before `data` is read.
        let code = unsafe {
            sys::cuMemcpyDtoHAsync_v2(data.as_mut_ptr().cast(), buffer.address, buffer.bytes(), self.raw_stream())
        };
        ok("cuMemcpyDtoH", code)?;
        self.synchronize()?;
        Ok(data)
    }

    /// Enqueues a copy between two device buffers of equal length.
    pub fn copy<T: Pod>(&self, from: &Buffer<T>, to: &Buffer<T>) -> Result<()> {
        if from.len != to.len {
            return Err(GpuError::Length { from: from.len, to: to.len });
        }
        self.bind()?;
        // SAFETY: both ranges have from.bytes() bytes.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to.address, from.address, from.bytes(), self.raw_stream()) };
        ok("cuMemcpyDtoD", code)
    }

    fn set_guard<T>(&self, buffer: &Buffer<T>) -> Result<()> {
        let end = buffer.address + buffer.bytes() as u64;
        // SAFETY: the guard lies behind the buffer in the same allocation.
        ok("cuMemsetD8", unsafe { sys::cuMemsetD8Async(end, GUARD_BYTE, GUARD_BYTES, self.raw_stream()) })
    }

    /// Whether the guard behind a buffer is as [`Gpu::alloc`] left it. If not it is set anew, so that a wrong rung does
    /// not fail the next one on the same buffer.
    ///
    /// # Errors
    /// [`GpuError::Guard`] when something wrote there.
    pub fn check_guard<T>(&self, buffer: &Buffer<T>) -> Result<()> {
        self.bind()?;
        let mut guard = [0u8; GUARD_BYTES];
        // SAFETY: the guard lies behind the buffer in the same allocation; the copy is waited for.
        let code = unsafe {
            sys::cuMemcpyDtoHAsync_v2(
                guard.as_mut_ptr().cast(),
                buffer.address + buffer.bytes() as u64,
                GUARD_BYTES,
                self.raw_stream(),
            )
        };
        ok("cuMemcpyDtoH", code)?;
        self.synchronize()?;
        if guard.iter().all(|&b| b == GUARD_BYTE) {
            return Ok(());
        }
        self.set_guard(buffer)?;
        Err(GpuError::Guard { bytes: buffer.bytes() })
    }

    /// Compiles a kernel for this device.
    ///
    /// # Errors
    /// [`GpuError::Capability`] or [`GpuError::Architecture`] when the PTX is for a newer or for another device,
    /// [`GpuError::Jit`] with the compiler's log when the driver refuses it, [`GpuError::NoEntry`].
    pub fn load(&self, kernel: &Kernel) -> Result<Function> {
        let has = self.device.compute_capability;
        if kernel.target > has {
            return Err(GpuError::Capability { stem: kernel.stem, needs: kernel.target, has });
        }
        if let Some((target, _)) = one_architecture(kernel.ptx).filter(|(_, only)| *only != has) {
            return Err(GpuError::Architecture { stem: kernel.stem, target: target.to_string(), has });
        }
        let no_entry = || GpuError::NoEntry { stem: kernel.stem, entry: kernel.entry };
        let params = entry_params(kernel.ptx, kernel.entry).ok_or_else(no_entry)?;
        let params = params
            .iter()
            .map(|p| match p.as_str() {
                "u64" | "b64" | "s64" => Ok(Param::Bits64),
                "u32" | "b32" | "s32" => Ok(Param::Bits32),
                "f32" => Ok(Param::Float32),
                other => Err(GpuError::Arguments {
                    entry: kernel.entry,
                    expected: format!("a parameter of type {other}"),
                    given: "u64, u32 and f32 only".to_string(),
                }),
            })
            .collect::<Result<Vec<_>>>()?;
        self.bind()?;
        let module = Rc::new(self.load_module(kernel)?);
        let name = CString::new(kernel.entry).map_err(|_| no_entry())?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: module and name are valid; the function lives as long as the module, which Function holds.
        let code = unsafe { sys::cuModuleGetFunction(&mut raw, module.raw, name.as_ptr()) };
        if code == sys::CUresult::CUDA_ERROR_NOT_FOUND {
            return Err(no_entry());
        }
        ok("cuModuleGetFunction", code)?;
        let mut static_shared = 0;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // SAFETY: writes one int; the function is loaded.
        ok("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut static_shared, attribute, raw) })?;
        Ok(Function {
            raw,
            entry: kernel.entry,
            params,
            static_shared: static_shared as u32,
            dynamic_shared: Rc::new(Cell::new(0)),
            _module: module,
        })
    }

    fn load_module(&self, kernel: &Kernel) -> Result<Module> {
        const LOG_BYTES: usize = 8192;
        let image = CString::new(kernel.ptx)
            .map_err(|_| GpuError::Jit { stem: kernel.stem, log: "the PTX has a NUL byte".to_string() })?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options =
            [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(LOG_BYTES)];
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image is NUL-terminated PTX; options and values have two entries each, and the log buffer is
        // as long as the size option says and outlives the call.
        let code = unsafe {
            sys::cuModuleLoadDataEx(
                &mut raw,
                image.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if code != sys::CUresult::CUDA_SUCCESS {
            let text = String::from_utf8_lossy(&log);
            let lines: Vec<&str> =
                text.trim_end_matches('\0').lines().map(str::trim).filter(|l| !l.is_empty()).collect();
            let log = if lines.is_empty() { driver_text(code) } else { lines.join("; ") };
            return Err(GpuError::Jit { stem: kernel.stem, log });
        }
        Ok(Module { raw, context: self.context.clone() })
    }

    /// Enqueues one launch. An empty geometry enqueues nothing.
    ///
    /// # Errors
    /// [`GpuError::Arguments`] when count or types differ from the PTX, [`GpuError::Geometry`],
    /// [`GpuError::SharedMemory`], or the driver's.
    pub fn launch(&self, function: &Function, geometry: Geometry, args: &[Arg<DevicePtr>]) -> Result<()> {
        self.check_arguments(function, args)?;
        if geometry.is_empty() {
            return Ok(());
        }
        let fits = (0..3).all(|i| geometry.grid[i] <= self.limits.grid[i] && geometry.block[i] <= self.limits.block[i])
            && geometry.threads_per_block() <= self.limits.threads;
        let outside = || GpuError::Geometry { entry: function.entry, grid: geometry.grid, block: geometry.block };
        if !fits {
            return Err(outside());
        }
        self.allow_shared(function, geometry.shared_bytes)?;
        // Each argument in eight bytes of its own; the driver reads as many as the parameter has.
        let words: Vec<u64> = args
            .iter()
            .map(|arg| match *arg {
                Arg::Ptr(p) => p.0,
                Arg::U64(v) => v,
                Arg::U32(v) => u64::from(v),
                Arg::I32(v) => u64::from(v as u32),
                Arg::F32(v) => u64::from(v.to_bits()),
            })
            .collect();
        let mut pointers: Vec<*mut c_void> = words.iter().map(|w| std::ptr::from_ref(w).cast_mut().cast()).collect();
        let Geometry { grid, block, shared_bytes } = geometry;
        // SAFETY: `pointers` has one entry per parameter of the entry, checked above against the PTX, each to eight
        // readable bytes (little-endian, so the first four are a 32-bit value); the driver copies them before it
        // returns. That the kernel stays inside its buffers is what the checks, the guards and the emulator test.
        let code = unsafe {
            sys::cuLaunchKernel(
                function.raw,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                self.raw_stream(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        // The block needs more registers than an SM has. Nothing ran.
        if code == sys::CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES {
            return Err(outside());
        }
        ok("cuLaunchKernel", code)
    }

    fn check_arguments(&self, function: &Function, args: &[Arg<DevicePtr>]) -> Result<()> {
        let given = |a: &Arg<DevicePtr>| match a {
            Arg::Ptr(_) | Arg::U64(_) => Param::Bits64,
            Arg::U32(_) | Arg::I32(_) => Param::Bits32,
            Arg::F32(_) => Param::Float32,
        };
        let given: Vec<Param> = args.iter().map(given).collect();
        if given == function.params {
            return Ok(());
        }
        let list = |p: &[Param]| p.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ");
        Err(GpuError::Arguments { entry: function.entry, expected: list(&function.params), given: list(&given) })
    }

    /// More than 48 KiB of shared memory must be asked for, once per function.
    fn allow_shared(&self, function: &Function, bytes: u32) -> Result<()> {
        let needed = u64::from(function.static_shared) + u64::from(bytes);
        if needed <= 48 * 1024 || bytes <= function.dynamic_shared.get() {
            return Ok(());
        }
        let available = self.device.shared_per_block_optin_bytes;
        if needed > u64::from(available) {
            return Err(GpuError::SharedMemory { entry: function.entry, needed, available });
        }
        self.bind()?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded.
        ok("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function.raw, attribute, bytes as i32) })?;
        function.dynamic_shared.set(bytes);
        Ok(())
    }

    /// Registers, local and shared memory of a kernel, and how many of its blocks fit on an SM.
    pub fn resources(&self, function: &Function, geometry: Geometry) -> Result<Resources> {
        self.bind()?;
        self.allow_shared(function, geometry.shared_bytes)?;
        let get = |attribute| {
            let mut value = 0;
            // SAFETY: writes one int.
            ok("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut value, attribute, function.raw) })?;
            Ok::<u32, GpuError>(value as u32)
        };
        let mut blocks = 0;
        let threads = geometry.threads_per_block();
        // SAFETY: writes one int.
        let code = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                function.raw,
                threads as i32,
                geometry.shared_bytes as usize,
            )
        };
        ok("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        let warps = |threads: u64| threads.div_ceil(32) as f64;
        Ok(Resources {
            registers: get(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: get(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: function.static_shared + geometry.shared_bytes,
            blocks_per_sm: blocks as u32,
            occupancy: f64::from(blocks) * warps(threads) / warps(u64::from(self.device.max_threads_per_sm)),
            grid: geometry.grid,
            block: geometry.block,
        })
    }

    /// A new event that keeps time.
    pub fn event(&self) -> Result<Event> {
        self.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle. Flags 0: timing on.
        ok("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, 0) })?;
        Ok(Event { raw, context: self.context.clone() })
    }

    /// Enqueues an event.
    pub fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: event and stream are of this context.
        ok("cuEventRecord", unsafe { sys::cuEventRecord(event.raw, self.raw_stream()) })
    }

    /// Waits for `end` and returns the time from `start`, in ns.
    pub fn elapsed_ns(&self, start: &Event, end: &Event) -> Result<f64> {
        let mut ms = 0.0f32;
        // SAFETY: both events are of this context and have been recorded.
        ok("cuEventSynchronize", unsafe { sys::cuEventSynchronize(end.raw) })?;
        // SAFETY: as above; writes one float.
        ok("cuEventElapsedTime", unsafe { sys::cuEventElapsedTime(&mut ms, start.raw, end.raw) })?;
        Ok(f64::from(ms) * 1e6)
    }

    /// Records what `work` enqueues, without running it.
    ///
    /// # Errors
    /// Those of `work`, or the driver's when something in it cannot be captured.
    pub fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Graph> {
        self.bind()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as self.
        ok("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.raw_stream(), mode) })?;
        let worked = work();
        let mut graph = std::ptr::null_mut();
        // SAFETY: ends the capture begun above, also when `work` failed.
        let ended = ok("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.raw_stream(), &mut graph) });
        worked?;
        ended?;
        let mut graph = Graph { graph, exec: std::ptr::null_mut(), context: self.context.clone() };
        // SAFETY: the graph came from the capture; writes one handle.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&mut graph.exec, graph.graph, 0) };
        ok("cuGraphInstantiate", code)?;
        Ok(graph)
    }

    /// Enqueues one replay.
    pub fn replay(&self, graph: &Graph) -> Result<()> {
        // SAFETY: the graph is instantiated in this context.
        ok("cuGraphLaunch", unsafe { sys::cuGraphLaunch(graph.exec, self.raw_stream()) })
    }
}

fn describe(context: &CudaContext, ordinal: usize) -> Result<(Device, Limits)> {
    use sys::CUdevice_attribute as A;
    let failed = |e: cudarc::driver::DriverError| GpuError::Driver { call: "cuDeviceGet...", text: driver_text(e.0) };
    let get = |a: sys::CUdevice_attribute| context.attribute(a).map(|v| v as u32).map_err(failed);
    let cc =
        (get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?, get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?);
    let device = Device {
        ordinal,
        name: context.name().map_err(failed)?,
        compute_capability: cc,
        sms: get(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        fp32_lanes_per_sm: fp32_lanes(cc),
        memory_bytes: context.total_mem().map_err(failed)? as u64,
        l2_bytes: u64::from(get(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        shared_per_block_optin_bytes: get(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_per_sm_bytes: get(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        registers_per_sm: get(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        max_threads_per_sm: get(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        max_clock_khz: get(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
    };
    let limits = Limits {
        grid: [
            get(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
            get(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
            get(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
        ],
        block: [
            get(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
            get(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
            get(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
        ],
        threads: u64::from(get(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?),
    };
    Ok((device, limits))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
.visible .entry other(
\t.param .u64 other_param_0
)
{ }
.visible .entry calib(
\t.param .u64 calib_param_0,
\t.param .u32 calib_param_1,
\t.param .align 8 .f32 calib_param_2
)
.maxntid 256, 1, 1
{ }
.visible .entry calib_empty()
{ }
";

    #[test]
    fn parameters_are_read_from_the_entry_asked_for() {
        assert_eq!(entry_params(PTX, "other").unwrap(), ["u64"]);
        assert_eq!(entry_params(PTX, "calib").unwrap(), ["u64", "u32", "f32"]);
        assert_eq!(entry_params(PTX, "calib_empty").unwrap(), [""; 0]);
        assert_eq!(entry_params(PTX, "cal"), None);
        assert_eq!(entry_params(PTX, "missing"), None);
    }

    #[test]
    fn only_targets_with_the_suffix_are_of_one_architecture() {
        assert_eq!(one_architecture(".version 8.4\n.target sm_90a\n"), Some(("sm_90a", (9, 0))));
        assert_eq!(one_architecture(".target sm_100a, debug\n"), Some(("sm_100a", (10, 0))));
        assert_eq!(one_architecture(".target sm_90\n"), None);
        assert_eq!(one_architecture(PTX), None);
    }

    #[test]
    fn errors_tell_a_skip_from_a_failed_check_and_from_a_failed_driver() {
        let has = (8, 6);
        for unsupported in [
            GpuError::Capability { stem: "a", needs: (9, 0), has },
            GpuError::Architecture { stem: "a", target: "sm_90a".to_string(), has: (10, 0) },
            GpuError::SharedMemory { entry: "a", needed: 200 << 10, available: 99 << 10 },
            GpuError::Geometry { entry: "a", grid: [1, 70_000, 1], block: [32, 1, 1] },
            GpuError::Memory { needed: 2, free: 1 },
        ] {
            assert_eq!(unsupported.kind(), ErrorKind::Unsupported, "{unsupported}");
        }
        for wrong in [GpuError::Guard { bytes: 4 }, GpuError::WrongValue { stem: "a" }] {
            assert_eq!(wrong.kind(), ErrorKind::CheckFailed, "{wrong}");
        }
        let lost = GpuError::Driver { call: "cuStreamSynchronize", text: "CUDA_ERROR_ILLEGAL_ADDRESS".to_string() };
        assert_eq!(lost.kind(), ErrorKind::Driver);
    }

    #[test]
    fn absences_say_what_is_missing_and_what_is_needed() {
        assert_eq!(Absence::TooOld((12, 2)).to_string(), "PTX 8.4 needs a driver for CUDA 12.4; this one is for 12.2");
    }
}
