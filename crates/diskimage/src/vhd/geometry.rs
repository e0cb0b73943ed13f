//! Cylinders, heads and sectors: how the firmware of old machines addressed a disk, and how Virtual PC still counts
//! its size.

/// A geometry, as the footer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskGeometry {
    pub(crate) cylinders: u16,
    pub(crate) heads: u8,
    pub(crate) sectors_per_track: u8,
}

impl DiskGeometry {
    /// The largest there is. It stands for every larger size and so says nothing about it.
    pub(crate) const MAX: Self = Self { cylinders: 65535, heads: 16, sectors_per_track: 255 };

    /// How many sectors it addresses.
    pub(crate) fn sectors(self) -> u64 {
        let tracks = u64::from(self.cylinders).saturating_mul(u64::from(self.heads));
        tracks.saturating_mul(u64::from(self.sectors_per_track))
    }

    /// The geometry of a disk of so many sectors: the most that it can address without addressing more than there is
    /// ([VHD] Appendix "CHS Calculation").
    pub(crate) fn of_sectors(sectors: u64) -> Self {
        let sectors = sectors.min(Self::MAX.sectors());
        // Which of the shapes fits is the appendix's; each is (heads, sectors of a track).
        let (heads, per_track) = if sectors >= 65535 * 16 * 63 {
            (16, 255)
        } else {
            let heads = (sectors / 17).div_ceil(1024).max(4);
            match (sectors / 17, heads) {
                (tracks, ..=16) if tracks < heads.saturating_mul(1024) => (heads, 17),
                _ if sectors / 31 < 16 * 1024 => (16, 31),
                _ => (16, 63),
            }
        };
        let per_cylinder = u64::saturating_mul(heads, per_track);
        let cylinders = sectors.checked_div(per_cylinder).unwrap_or_default();
        Self {
            cylinders: u16::try_from(cylinders).unwrap_or(u16::MAX),
            heads: u8::try_from(heads).unwrap_or(u8::MAX),
            sectors_per_track: u8::try_from(per_track).unwrap_or(u8::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sectors: u64) -> (u16, u8, u8) {
        let geometry = DiskGeometry::of_sectors(sectors);
        (geometry.cylinders, geometry.heads, geometry.sectors_per_track)
    }

    #[test]
    fn geometry_is_the_one_that_other_programs_wrote() {
        // Windows 10 (4 MiB), Hyper-V 2012 R2 (127 GiB), and qemu-img 7.2 with `-o force_size=off`, whose sizes are
        // those of its geometries.
        assert_eq!(of(8192), (120, 4, 17));
        assert_eq!(of(136_365_211_648 / 512), (65278, 16, 255));
        assert_eq!(of(3_221_471_232 / 512), (6242, 16, 63));
    }

    #[test]
    fn shapes_change_where_the_appendix_says() {
        assert_eq!(of(0), (0, 4, 17));
        assert_eq!(of(1), (0, 4, 17));
        assert_eq!(of(17 * 4 * 1024 - 1), (1023, 4, 17));
        assert_eq!(of(17 * 4 * 1024), (140, 16, 31));
        assert_eq!(of(17 * 16 * 1024 - 17), (1023, 16, 17));
        assert_eq!(of(17 * 16 * 1024), (561, 16, 31));
        assert_eq!(of(31 * 16 * 1024), (503, 16, 63));
        assert_eq!(of(65535 * 16 * 63 - 1), (65534, 16, 63));
        assert_eq!(of(65535 * 16 * 63), (16191, 16, 255));
        assert_eq!(DiskGeometry::of_sectors(u64::MAX), DiskGeometry::MAX);
    }

    #[test]
    fn geometry_never_addresses_more_than_there_is() {
        for sectors in (0..1 << 22).step_by(97).chain((1 << 22..600 << 20).step_by(999_983)) {
            let geometry = DiskGeometry::of_sectors(sectors);
            assert!(geometry.sectors() <= sectors, "{sectors}: {geometry:?}");
        }
    }
}
