//! Which parts of a node are read.

use std::ops::{BitOr, BitOrAssign, Sub};

/// A set of parts of a [`NodeState`](sexton_core::model::NodeState). Parts that are not in it stay empty with the
/// completeness `Unavailable("not read")`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kinds(u32);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $bit:expr;)*) => {
        impl Kinds { $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)* }
    };
}

kinds! {
    /// Pods of this node, from the API.
    PODS = 0;
    /// Services, from the API.
    SERVICES = 1;
    /// EndpointSlices, from the API.
    ENDPOINT_SLICES = 2;
    /// The Node object, from the API.
    NODES = 3;
    /// ServiceCIDRs, from the API.
    SERVICE_CIDRS = 4;
    /// Sandboxes and containers of the runtimes.
    RUNTIME = 5;
    /// Network namespaces.
    NAMESPACES = 6;
    /// iptables, both variants.
    XTABLES = 7;
    /// nftables.
    NFT = 8;
    /// Connection tracking.
    CONNTRACK = 9;
    /// Links.
    LINKS = 10;
    /// Addresses.
    ADDRESSES = 11;
    /// Routes.
    ROUTES = 12;
    /// Neighbours.
    NEIGHBOURS = 13;
    /// host-local leases.
    IPAM = 14;
    /// The CNI cache.
    CNI_CACHE = 15;
    /// CNI configuration.
    CNI_CONFIG = 16;
    /// Rules of the routing policy.
    IP_RULES = 17;
}

impl Kinds {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self((1 << 18) - 1);
    /// What the API server tells.
    pub const API: Self = Self(0b1_1111);
    /// What the kernel tells by netlink and by iptables' own tools, without the insides of namespaces.
    pub const KERNEL: Self = Self(0b111_1111 << 7 | 1 << 17);
    /// Links, addresses, routes, neighbours and rules of the routing policy.
    pub const ROUTING: Self = Self(0b1111 << 10 | 1 << 17);

    /// Whether all of `other` is in it.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether some of `other` is in it.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl Default for Kinds {
    fn default() -> Self {
        Self::ALL
    }
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Kinds {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Sub for Kinds {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_their_members() {
        for kernel in [
            Kinds::XTABLES,
            Kinds::NFT,
            Kinds::CONNTRACK,
            Kinds::LINKS,
            Kinds::NEIGHBOURS,
        ] {
            assert!(Kinds::KERNEL.contains(kernel));
        }
        assert!(!Kinds::KERNEL.intersects(Kinds::NAMESPACES | Kinds::IPAM | Kinds::API));
        assert!(Kinds::API.contains(Kinds::PODS | Kinds::SERVICE_CIDRS));
        assert!(Kinds::ALL.contains(Kinds::CNI_CONFIG) && !Kinds::NONE.intersects(Kinds::ALL));
        assert_eq!(Kinds::ALL - Kinds::API - Kinds::ALL, Kinds::NONE);
    }
}
