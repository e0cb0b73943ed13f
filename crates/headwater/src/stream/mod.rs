//! Which device gets which disk: boots and their names, golden images, write caches, and the decisions that the boot services
//! ([`director`]), the iSCSI target ([`directory`]) and the NBD server ([`exports`]) ask for.
//!
//! # Boots and names
//! Every script that is handed out makes a new boot id and with it a target name that nobody used before. The first login to
//! that name begins the boot: the device's write cache is discarded then, and not before, so a script that is fetched and not used
//! harms nobody. Every later login to the same name goes on with the same write cache: the operating system's own initiator,
//! a reconnect, a login after a restart of the server. The names of earlier boots are refused from then on: a machine that was
//! replaced by its own reboot must never write into the new boot's disk. [`device`] holds the rules.
//!
//! # Locks
//! The table of devices is locked to look a device up, and for nothing else. Each device has a lock of its own that is held
//! while its disk is opened: its own logins wait for each other, and for nobody else's.
pub mod access;
pub mod accounts;
pub mod admission;
pub mod boot_disk;
pub mod boot_id;
pub mod device;
pub mod devices;
pub mod director;
pub mod directory;
pub mod exports;
pub mod images;
pub mod kernels;
pub mod known;
pub mod mailbox;
pub mod mark;
pub mod menu;
pub mod names;
pub mod newcomers;
pub mod oddities;
pub mod own_disk;
pub mod private;
