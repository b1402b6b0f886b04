//! Describes the machine that runs the host side.

use std::sync::OnceLock;

use crate::cpu::allowed_cores;
use crate::record::Host;

/// The machine as CPUID and the operating system describe it, read once. What neither tells is empty or 0.
pub fn host() -> Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        let caches = linux_caches();
        let cache = |level: u8| match caches[usize::from(level) - 1] {
            0 => cpuid_cache(level),
            bytes => bytes,
        };
        Host {
            cpu: cpuid_name().or_else(linux_cpu_name).unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            threads: allowed_cores(),
            memory_bytes: linux_memory_bytes(),
            os: std::env::consts::OS.to_string(),
            arch: std::env::consts::ARCH.to_string(),
            features: features(),
            l1d_bytes: cache(1),
            l2_bytes: cache(2),
            l3_bytes: cache(3),
        }
    })
    .clone()
}

#[cfg(target_arch = "x86_64")]
fn cpuid_name() -> Option<String> {
    let brand = raw_cpuid::CpuId::new().get_processor_brand_string()?;
    let name = brand.as_str().split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

#[cfg(not(target_arch = "x86_64"))]
fn cpuid_name() -> Option<String> {
    None
}

/// Bytes of the data or unified cache of `level`; 0 when CPUID does not list it.
#[cfg(target_arch = "x86_64")]
fn cpuid_cache(level: u8) -> u64 {
    let caches = raw_cpuid::CpuId::new().get_cache_parameters();
    let wanted = |c: &raw_cpuid::CacheParameter| {
        c.level() == level && matches!(c.cache_type(), raw_cpuid::CacheType::Data | raw_cpuid::CacheType::Unified)
    };
    let bytes = |c: raw_cpuid::CacheParameter| {
        [c.associativity(), c.physical_line_partitions(), c.coherency_line_size(), c.sets()]
            .iter()
            .map(|&n| n as u64)
            .product()
    };
    caches.into_iter().flatten().find(wanted).map_or(0, bytes)
}

#[cfg(not(target_arch = "x86_64"))]
fn cpuid_cache(_level: u8) -> u64 {
    0
}

/// Features that some rung asks for, of those this machine has.
fn features() -> Vec<String> {
    #[cfg(target_arch = "x86_64")]
    let found = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512cd", is_x86_feature_detected!("avx512cd")),
        ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512vbmi2", is_x86_feature_detected!("avx512vbmi2")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let found: [(&str, bool); 0] = [];
    found.iter().filter(|(_, has)| *has).map(|(name, _)| name.to_string()).collect()
}

/// `model name` of /proc/cpuinfo (absent on most aarch64 kernels and off Linux).
fn linux_cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_string())
}

fn linux_memory_bytes() -> u64 {
    std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_mem_total(&text)).unwrap_or(0)
}

fn parse_mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Bytes of the L1 data, L2 and L3 caches of processor 0 as Linux lists them; 0 for those it does not.
fn linux_caches() -> [u64; 3] {
    let mut bytes = [0; 3];
    for index in 0..8 {
        let read = |file: &str| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}")).ok()
        };
        let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else { continue };
        let (Ok(level @ 1..=3), false) = (level.trim().parse::<usize>(), kind.trim() == "Instruction") else {
            continue;
        };
        bytes[level - 1] = parse_size(&size).unwrap_or(0);
    }
    bytes
}

/// `48K`, `2M`, as Linux writes cache sizes.
fn parse_size(size: &str) -> Option<u64> {
    let size = size.trim();
    let (digits, unit) = match size.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => match size.strip_suffix('M') {
            Some(digits) => (digits, 1 << 20),
            None => (size, 1),
        },
    };
    digits.parse::<u64>().ok().map(|n| n * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_says_what_it_is() {
        let host = host();
        assert!(!host.cpu.is_empty() && !host.os.is_empty() && !host.arch.is_empty());
        assert!(host.threads >= 1);
        if cfg!(target_os = "linux") {
            assert!(host.memory_bytes > 1 << 20, "{host:?}");
        }
        let caches = [host.l1d_bytes, host.l2_bytes, host.l3_bytes];
        let known: Vec<u64> = caches.into_iter().filter(|&b| b > 0).collect();
        assert!(known.is_sorted(), "caches grow outwards: {caches:?}");
    }

    #[test]
    fn features_are_those_that_the_kernels_detect() {
        let features = host().features;
        let has = |name: &str| features.iter().any(|f| f == name);
        assert_eq!(has("avx512f"), crate::cpu::Avx512::detect().is_some());
        assert_eq!(has("avx2") && has("fma"), crate::cpu::Avx2::detect().is_some());
    }

    #[test]
    fn sizes_of_linux_are_read() {
        assert_eq!(parse_size("48K\n"), Some(48 << 10));
        assert_eq!(parse_size("2M"), Some(2 << 20));
        assert_eq!(parse_size("512"), Some(512));
        assert_eq!(parse_size("x"), None);
        assert_eq!(parse_mem_total("MemTotal:       24689764 kB\nMemFree: 1 kB\n"), Some(24_689_764 * 1024));
        assert_eq!(parse_mem_total("MemFree: 1 kB\n"), None);
    }
}
