//! What this process takes of its machine, as the kernel counts it in `/proc/self`.
use ::api::live::ProcessStatus;
use block::ByteLength;

/// A tick of processor time in microseconds: `USER_HZ` is 100 towards programs on every architecture that Linux runs on,
/// whatever the kernel itself counts in (`time(7)`).
const TICK_US: u64 = 10_000;

/// Of this moment; `cache_memory` is what write caches in memory take and may take.
pub(super) fn status(cache_memory: (ByteLength, ByteLength)) -> ProcessStatus {
    let (used, limit) = cache_memory;
    let text = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    ProcessStatus {
        cpu_us: worked_us(&text("/proc/self/stat")).unwrap_or(0),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        memory_bytes: resident_bytes(&text("/proc/self/status")).unwrap_or(0),
        cache_memory_bytes: used.get(),
        cache_memory_limit_bytes: limit.get(),
    }
}

/// `proc_pid_stat(5)`: fields 14 and 15 are ticks in user mode and in the kernel. Field 2, the name, may hold spaces and
/// brackets itself, so fields are counted behind the last bracket.
fn worked_us(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.collect::<Result<Vec<_>, _>>().ok().filter(|ticks| ticks.len() == 2)?;
    Some(ticks.iter().copied().fold(0, u64::saturating_add).saturating_mul(TICK_US))
}

/// `proc_pid_status(5)`: `VmRSS` in KiB.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_are_read_as_the_kernel_writes_them() {
        let stat = "812 (head) water) S 1 812 812 0 -1 4194560 19 0 0 0 250 50 0 0 20 0 9 0 77 1 2";
        assert_eq!(worked_us(stat), Some(3_000_000));
        assert_eq!((worked_us(""), worked_us("1 (x) S 1")), (None, None));
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t  2048 kB\nThreads:\t9\n"), Some(2 << 20));
        assert_eq!(resident_bytes("VmRSS:\t many kB\n"), None);
    }

    #[test]
    fn process_that_runs_holds_memory() {
        let found = status((ByteLength::new(1), ByteLength::new(2)));
        assert!(found.memory_bytes > 0 && found.processors > 0, "{found:?}");
        assert_eq!((found.cache_memory_bytes, found.cache_memory_limit_bytes), (1, 2));
    }
}
