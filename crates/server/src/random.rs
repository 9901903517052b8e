//! Random bits.

use remora_layout::hash::mix;

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
