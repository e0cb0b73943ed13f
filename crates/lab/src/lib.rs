//! Golden images, lab networks and QEMU targets for demo, tests and benches.
