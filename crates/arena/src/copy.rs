//! The one copying primitive: bytes out of, and into, memory that another
//! thread, process or device may be changing at the same time.
//!
//! On x86-64 the accesses are vector loads and stores written as assembly. The language model
//! treats them as opaque accesses by the hardware: they tear no word of 8 bytes, and they promise
//! nothing else. Under Miri, or with `--cfg remora_atomic_copy` (ThreadSanitizer), they are relaxed
//! atomics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Copies `dst.len()` bytes from `src`, ascending.
///
/// # Safety
/// `src` is 8-byte aligned and valid for reads of `dst.len()` rounded up to
/// whole words.
#[inline(always)]
pub(crate) unsafe fn copy_out(src: *const u8, dst: &mut [u8]) {
    let bytes = dst.len();
    let mut at = 0;
    // x86-ordering: vector loads tear no aligned word of 8 bytes, and come in the order of the program.
    #[cfg(all(target_arch = "x86_64", not(miri), not(remora_atomic_copy)))]
    {
        while at + 64 <= bytes {
            // SAFETY: the caller vouches for `src`; `dst` has at least 64 bytes left.
            unsafe { vector::copy64(src.add(at), dst.as_mut_ptr().add(at)) };
            at += 64;
        }
        while at + 16 <= bytes {
            // SAFETY: as above, with 16 bytes left.
            unsafe { vector::copy16(src.add(at), dst.as_mut_ptr().add(at)) };
            at += 16;
        }
    }
    while at < bytes {
        // SAFETY: whole words are readable, and `at` is a multiple of 8.
        let word = unsafe { load(src.add(at)) }.to_le_bytes();
        let take = (bytes - at).min(8);
        dst[at..at + take].copy_from_slice(&word[..take]);
        at += 8;
    }
}

/// Copies `src` to `dst`, from the last word down to the first, so that on machines with ordered
/// stores a reader that sees the first word sees all. It pads the last word with zeros.
///
/// # Safety
/// `dst` is 8-byte aligned and valid for writes of `src.len()` rounded up to
/// whole words.
#[inline(always)]
pub(crate) unsafe fn copy_in(src: &[u8], dst: *mut u8) {
    let mut at = src.len() & !7;
    if at < src.len() {
        let mut word = [0u8; 8];
        word[..src.len() - at].copy_from_slice(&src[at..]);
        // SAFETY: the word that holds the tail is writable.
        unsafe { store(dst.add(at), u64::from_le_bytes(word)) };
    }
    // x86-ordering: vector stores tear no aligned word of 8 bytes, and become visible in the order of
    // the program, the first word last.
    #[cfg(all(target_arch = "x86_64", not(miri), not(remora_atomic_copy)))]
    while at >= 16 {
        at -= 16;
        // SAFETY: `at + 16 <= src.len()`, and `dst` is valid for as much.
        unsafe { vector::copy16(src.as_ptr().add(at), dst.add(at)) };
    }
    while at >= 8 {
        at -= 8;
        let word = u64::from_le_bytes(src[at..at + 8].try_into().expect("eight bytes"));
        // SAFETY: `at + 8 <= src.len()`.
        unsafe { store(dst.add(at), word) };
    }
}

/// One untorn word.
///
/// # Safety
/// `from` is 8-byte aligned and valid for reads of 8 bytes.
#[inline(always)]
unsafe fn load(from: *const u8) -> u64 {
    // SAFETY: the caller vouches for alignment and validity; the memory is
    // only ever changed by atomic or opaque accesses.
    unsafe { AtomicU64::from_ptr(from.cast_mut().cast()) }.load(Ordering::Relaxed)
}

/// One untorn word.
///
/// # Safety
/// `to` is 8-byte aligned and valid for writes of 8 bytes.
#[inline(always)]
unsafe fn store(to: *mut u8, word: u64) {
    // SAFETY: as for `load`.
    unsafe { AtomicU64::from_ptr(to.cast()) }.store(word, Ordering::Relaxed);
}

#[cfg(all(target_arch = "x86_64", not(miri), not(remora_atomic_copy)))]
mod vector {
    use std::arch::asm;

    /// # Safety
    /// 16 bytes at `src` are readable, 16 bytes at `dst` are writable.
    #[inline(always)]
    pub unsafe fn copy16(src: *const u8, dst: *mut u8) {
        // SAFETY: one unaligned load and one unaligned store of 16 bytes that
        // the caller vouches for; no flags, no stack.
        unsafe {
            asm!(
                "movdqu {t}, [{s}]",
                "movdqu [{d}], {t}",
                t = out(xmm_reg) _, s = in(reg) src, d = in(reg) dst,
                options(nostack, preserves_flags)
            );
        }
    }

    /// # Safety
    /// 64 bytes at `src` are readable, 64 bytes at `dst` are writable.
    #[inline(always)]
    pub unsafe fn copy64(src: *const u8, dst: *mut u8) {
        // SAFETY: as `copy16`, four times.
        unsafe {
            asm!(
                "movdqu {a}, [{s}]",
                "movdqu {b}, [{s} + 16]",
                "movdqu {c}, [{s} + 32]",
                "movdqu {e}, [{s} + 48]",
                "movdqu [{d}], {a}",
                "movdqu [{d} + 16], {b}",
                "movdqu [{d} + 32], {c}",
                "movdqu [{d} + 48], {e}",
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
                s = in(reg) src, d = in(reg) dst,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_round_trips() {
        for length in 0..300usize {
            let source: Vec<u8> = (0..length).map(|i| (i * 7 + 1) as u8).collect();
            let mut memory = vec![u64::MAX; 48];
            // SAFETY: 384 bytes of aligned memory of our own.
            unsafe { copy_in(&source, memory.as_mut_ptr().cast()) };
            let mut back = vec![0u8; length];
            // SAFETY: as above.
            unsafe { copy_out(memory.as_ptr().cast(), &mut back) };
            assert_eq!(back, source);
            assert_eq!(memory[length.div_ceil(8)], u64::MAX, "nothing behind was touched");
        }
    }
}
