//! A large arena's allocator starts without memory of its own.

use remora_arena::Slots;
use remora_testing::in_own_process;

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn an_allocator_of_64_gib_costs_next_to_nothing_at_first() {
    in_own_process(|| {
        let before = resident_bytes();
        let slots = Slots::new(4096, 64 << 30);
        assert_eq!(slots.largest_run_bytes(), (64 << 30) - 4096);
        assert!(resident_bytes() < before + (1 << 20));
    });
}
