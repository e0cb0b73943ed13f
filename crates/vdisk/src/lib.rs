//! Volumes: a read-only golden image and a write cache for one device.
