//! The CUDA run-time compiler, opened from one file that we choose.
//!
//! `cudarc::nvrtc` opens the first library with a likely name; where a CUDA toolkit is installed that is the
//! toolkit's own version, and the committed PTX must come from exactly one. So the file is opened here by its path.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use libloading::{Library, Symbol};

use crate::wheels;

/// The version of NVRTC that the committed PTX comes from.
const VERSION: (c_int, c_int) = (12, 4);
/// What the header of every PTX file says about its compiler.
pub(crate) const RELEASE: &str = "release 12.4, V12.4.127";
/// Where the wheel keeps the library, below site-packages. Its builtins library lies in the same folder.
const IN_WHEEL: &str = "nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
const INSTALL: &str = "python3 -m pip install nvidia-cuda-nvrtc-cu12==12.4.127";

/// An open NVRTC library of the pinned version.
pub(crate) struct Nvrtc {
    library: Library,
}

/// What the compiler made of one program.
pub(crate) struct Output {
    /// The PTX text.
    pub(crate) ptx: String,
    /// Warnings, empty when there were none.
    pub(crate) log: String,
}

type Program = *mut c_void;

impl Nvrtc {
    /// Opens the library that `RUNGS_NVRTC` names (file or folder), else the wheel's, else the loader's default.
    ///
    /// # Errors
    /// No library, or none of version 12.4; the message has the command that installs it.
    pub(crate) fn find() -> Result<Self> {
        if let Some(given) = std::env::var_os("RUNGS_NVRTC") {
            let mut file = PathBuf::from(given);
            if file.is_dir() {
                file.push("libnvrtc.so.12");
            }
            return Self::open(&file).context("RUNGS_NVRTC must name libnvrtc.so.12 of NVRTC 12.4 or its folder");
        }
        let mut candidates = wheels::in_site_packages(IN_WHEEL);
        candidates.push("libnvrtc.so.12".into());
        let mut wrong = None;
        for file in candidates {
            match Self::open(&file) {
                Ok(nvrtc) => return Ok(nvrtc),
                Err(error) if file.is_file() => wrong = Some(format!(" ({error:#})")),
                Err(_) => {}
            }
        }
        bail!("NVRTC 12.4 not found{}; install it with: {INSTALL}", wrong.unwrap_or_default())
    }

    fn open(file: &Path) -> Result<Self> {
        // SAFETY: NVRTC's initialisers have no preconditions; the library stays open as long as `Self`.
        let library = unsafe { Library::new(file) }.with_context(|| format!("cannot open {}", file.display()))?;
        let nvrtc = Self { library };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the signature is that of nvrtc.h; both pointers are valid for writes during the call.
        let status = unsafe {
            let version: Symbol<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int> =
                nvrtc.get(b"nvrtcVersion\0")?;
            version(&mut major, &mut minor)
        };
        nvrtc.ok(status, "nvrtcVersion")?;
        if (major, minor) != VERSION {
            bail!("{} is NVRTC {major}.{minor}", file.display());
        }
        Ok(nvrtc)
    }

    /// Compiles `source`, called `name` in messages and line tables, with `headers` as (include name, text).
    ///
    /// # Errors
    /// The program does not compile: the message is the compiler's log.
    pub(crate) fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(String, &str)],
        options: &[String],
    ) -> Result<Output> {
        let (source, c_name) = (c_string(source)?, c_string(name)?);
        let texts = headers.iter().map(|(_, text)| c_string(text)).collect::<Result<Vec<_>>>()?;
        let names = headers.iter().map(|(name, _)| c_string(name)).collect::<Result<Vec<_>>>()?;
        let options = options.iter().map(|option| c_string(option)).collect::<Result<Vec<_>>>()?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
        let (texts_ptr, names_ptr, options_ptr) = (pointers(&texts), pointers(&names), pointers(&options));

        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

        let mut program: Program = std::ptr::null_mut();
        // SAFETY: signatures are those of nvrtc.h. All strings are NUL-terminated and, with the arrays of pointers to
        // them, outlive `program`, which is destroyed exactly once before they are dropped.
        unsafe {
            let create: Symbol<Create> = self.get(b"nvrtcCreateProgram\0")?;
            let compile: Symbol<Compile> = self.get(b"nvrtcCompileProgram\0")?;
            let destroy: Symbol<Destroy> = self.get(b"nvrtcDestroyProgram\0")?;
            let status = create(
                &mut program,
                source.as_ptr(),
                c_name.as_ptr(),
                headers.len() as c_int,
                texts_ptr.as_ptr(),
                names_ptr.as_ptr(),
            );
            self.ok(status, "nvrtcCreateProgram")?;
            let status = compile(program, options_ptr.len() as c_int, options_ptr.as_ptr());
            let log = self.text(program, b"nvrtcGetProgramLogSize\0", b"nvrtcGetProgramLog\0");
            let ptx = match self.ok(status, name) {
                Ok(()) => self.text(program, b"nvrtcGetPTXSize\0", b"nvrtcGetPTX\0"),
                Err(error) => Err(error),
            };
            destroy(&mut program);
            let log = log?.trim().to_string();
            match ptx {
                Ok(ptx) => Ok(Output { ptx, log }),
                Err(error) if log.is_empty() => Err(error),
                Err(error) => bail!("{error:#}\n{log}"),
            }
        }
    }

    /// Reads one of the texts of a program.
    ///
    /// # Safety
    /// `program` is live, and the two functions are a size and a text getter of nvrtc.h.
    unsafe fn text(&self, program: Program, size_of: &[u8], get: &[u8]) -> Result<String> {
        let mut size = 0usize;
        // SAFETY: by the contract of this function; the buffer has the length that the library asked for.
        unsafe {
            let size_of: Symbol<unsafe extern "C" fn(Program, *mut usize) -> c_int> = self.get(size_of)?;
            let get: Symbol<unsafe extern "C" fn(Program, *mut c_char) -> c_int> = self.get(get)?;
            self.ok(size_of(program, &mut size), "size of the output")?;
            let mut buffer = vec![0u8; size.max(1)];
            self.ok(get(program, buffer.as_mut_ptr().cast()), "output")?;
            Ok(CStr::from_bytes_until_nul(&buffer)?.to_str()?.to_string())
        }
    }

    /// Looks a function up.
    ///
    /// # Safety
    /// `T` is the function's type in nvrtc.h.
    unsafe fn get<T>(&self, name: &[u8]) -> Result<Symbol<'_, T>> {
        // SAFETY: by the contract of this function.
        unsafe { self.library.get(name) }.context("not an NVRTC library")
    }

    fn ok(&self, status: c_int, what: &str) -> Result<()> {
        match status {
            0 => Ok(()),
            6 => bail!("{what} does not compile"),
            _ => bail!("{what}: NVRTC status {status}"),
        }
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).context("a CUDA source or option holds a NUL byte")
}
