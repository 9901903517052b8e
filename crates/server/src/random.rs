//! Random bits.

use remora_layout::hash::mix;

/// Fills a buffer with random bytes of the kernel, for secrets; false if there are none.
pub fn fill(bytes: &mut [u8]) -> bool {
    let mut filled = 0;
    // Bounded: each round fills some.
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(some @ 1..) => filled += some,
            _ => return false,
        }
    }
    true
}

/// Random bits from the kernel, for seeds and incarnations.
pub fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        // Never seen for eight bytes; time and process still make it unlike others.
        _ => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            mix(now.unwrap_or_default().as_nanos() as u64, std::process::id() as u64)
        }
    }
}
