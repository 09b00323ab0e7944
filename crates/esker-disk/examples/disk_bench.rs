//! What a device gives: sequential and random direct reads of 64 KiB and of 1.4 MB (an expert) at queue depths 1
//! to 32, through io_uring and the worker pool, into small pages, huge pages and a registered arena; and what
//! `read_now` makes of it for a caller that waits for each 64 MiB.
//!
//! Isolated: the path from `submit` to a completion, with reads kept at the given depth and nothing computed on
//! the bytes; of a file made by `--create` the first word of every read is compared with what was written.
//! Figures are decimal MB; "CPU" is the processor time of the whole process, kernel included, per MB read.
//!
//! ```text
//! disk_bench --create FILE BYTES
//! disk_bench FILE [SECONDS_PER_FIGURE]
//! ```

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use esker_disk::{
    Arena, Backend, Buffer, Disk, DiskOptions, FileId, Full, Priority, Read, ReadId, Segment, aligned_span,
    open_best, page_cache,
};

const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const BLOCKS: [usize; 2] = [64 << 10, 342 * 4096];
const DEPTH_MAX: usize = DEPTHS[DEPTHS.len() - 1];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--create", path, bytes] => create(Path::new(path), bytes.parse()?),
        [path] => bench(Path::new(path), 0.5),
        [path, seconds] => bench(Path::new(path), seconds.parse()?),
        _ => Err("expected `--create FILE BYTES` or `FILE [SECONDS_PER_FIGURE]`".into()),
    }
}

/// The 8 bytes at `8 * index` of a created file.
fn word(index: u64) -> u64 {
    (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn create(path: &Path, bytes: u64) -> Result<(), Box<dyn Error>> {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    for index in 0..bytes / 8 {
        file.write_all(&word(index).to_le_bytes())?;
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}

fn bench(path: &Path, seconds: f64) -> Result<(), Box<dyn Error>> {
    let limit = Duration::try_from_secs_f64(seconds)?;
    page_cache::drop_page_cache(path)?;
    let uring = |memory| (Backend::Uring, memory);
    for (backend, memory) in [
        uring(Memory::SmallPages),
        uring(Memory::HugePages),
        uring(Memory::Registered),
        uring(Memory::HugeRegistered),
        (Backend::Pool, Memory::SmallPages),
    ] {
        let options = DiskOptions { backend, direct: true, reads_max: DEPTH_MAX, workers: DEPTH_MAX };
        let mut disk = match open_best(options) {
            Ok(disk) => disk,
            Err(error) => {
                println!("{backend:?}: {error}");
                continue;
            }
        };
        let file = disk.open(path)?;
        let access = disk.buffered_reason(file).unwrap_or("direct").to_string();
        for block in BLOCKS {
            let len = aligned_span(0, block, disk.alignment(file)).len;
            let mut arena = Arena::new(Arena::bytes_for([len; DEPTH_MAX]))?;
            let is_huge = matches!(memory, Memory::HugePages | Memory::HugeRegistered);
            let is_registered = matches!(memory, Memory::Registered | Memory::HugeRegistered);
            let mut prepared = Ok(());
            if is_huge {
                prepared = arena.advise_huge_pages().map_err(Box::<dyn Error>::from);
            }
            if is_registered && prepared.is_ok() {
                prepared = disk.register(&arena).map_err(Box::<dyn Error>::from);
            }
            println!("\n{}, {memory:?}; {access}; blocks of {block} bytes", disk.description());
            if let Err(error) = prepared {
                println!("{error}");
                break;
            }
            let mut buffers = arena.carve([len; DEPTH_MAX]);
            buffers.iter_mut().for_each(|buffer| buffer.fill(0));
            println!("depth | sequential MB/s   reads/s  CPU us/MB |     random MB/s   reads/s  CPU us/MB");
            for depth in DEPTHS {
                let mut line = format!("{depth:>5} |");
                for random in [false, true] {
                    let figure = measure(disk.as_mut(), file, block, &mut buffers, depth, random, limit)?;
                    line += &format!(
                        " {:>15.0} {:>9.0} {:>10.1} |",
                        figure.mb_per_s, figure.reads_per_s, figure.cpu_us_per_mb
                    );
                }
                println!("{}", line.trim_end_matches(" |"));
            }
            disk.unregister();
        }
    }
    read_now(path, limit)?;
    if let Ok(cached) = page_cache::resident_pages(path) {
        println!("\n{} of {} pages of the file are in the page cache now", cached.resident, cached.total);
    }
    Ok(())
}

/// What the reads go to.
#[derive(Debug, Clone, Copy)]
enum Memory {
    SmallPages,
    HugePages,
    Registered,
    HugeRegistered,
}

/// The rate of `read_now` into memory aligned like the file, which takes no copy, and off by one byte.
fn read_now(path: &Path, limit: Duration) -> Result<(), Box<dyn Error>> {
    const BYTES: usize = 64 << 20;
    let mut disk = open_best(DiskOptions::default())?;
    let file = disk.open(path)?;
    let parts = disk.identity(file).size / BYTES as u64;
    let mut buffer = Arena::new(BYTES + 4096)?.carve([BYTES + 4096]).remove(0);
    buffer.fill(0);
    for shift in [0, 1] {
        let (started, mut count) = (Instant::now(), 0);
        while count < parts && started.elapsed() < limit {
            disk.read_now(file, count * BYTES as u64, &mut buffer[shift..shift + BYTES])?;
            count += 1;
        }
        let mb_per_s = count as f64 * BYTES as f64 / 1e6 / started.elapsed().as_secs_f64();
        println!("\nread_now, off by {shift}: {mb_per_s:.0} MB/s");
    }
    Ok(())
}

struct Figure {
    mb_per_s: f64,
    reads_per_s: f64,
    cpu_us_per_mb: f64,
}

fn measure(
    disk: &mut dyn Disk,
    file: FileId,
    block: usize,
    buffers: &mut Vec<Buffer>,
    depth: usize,
    random: bool,
    limit: Duration,
) -> Result<Figure, Box<dyn Error>> {
    let blocks = disk.identity(file).size / block as u64;
    if blocks == 0 {
        return Err(format!("the file has less than {block} bytes").into());
    }
    let mut first = [0; 8];
    disk.read_now(file, 0, &mut first)?;
    let is_created = u64::from_le_bytes(first) == word(0);

    let (started, cpu_started) = (Instant::now(), cpu_seconds());
    let (mut submitted, mut completed, mut done) = (0u64, 0u64, Vec::new());
    loop {
        while disk.in_flight() < depth && started.elapsed() < limit {
            // Multiplying by an odd constant visits the blocks in an order without a stride.
            let step = if random { submitted.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 } else { submitted };
            let offset = step % blocks * block as u64;
            let segments = Segment { file, offset, len: block, into: 0 }.into();
            let buffer = buffers.pop().ok_or("more reads in flight than buffers")?;
            let read = Read { id: ReadId(offset), priority: Priority::Demand, buffer, segments };
            if let Err(Full(_)) = disk.submit(read) {
                return Err("the disk takes fewer reads than it promised".into());
            }
            submitted += 1;
        }
        if completed == submitted {
            break;
        }
        disk.wait(&mut done)?;
        for completion in done.drain(..) {
            completion.result?;
            let found = u64::from_le_bytes(completion.buffer[..8].try_into()?);
            if is_created && found != word(completion.id.0 / 8) {
                return Err(format!("wrong bytes at offset {}", completion.id.0).into());
            }
            buffers.push(completion.buffer);
            completed += 1;
        }
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu_started);
    let mb = completed as f64 * block as f64 / 1e6;
    Ok(Figure {
        mb_per_s: mb / seconds,
        reads_per_s: completed as f64 / seconds,
        cpu_us_per_mb: cpu * 1e6 / mb,
    })
}

/// Processor time of this process so far, user and system.
fn cpu_seconds() -> f64 {
    // SAFETY: rusage is plain old data, for which zero bytes are valid, and writable during the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
