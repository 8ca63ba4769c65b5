//! Services of the engine's own: channelz, health and reflection.

#[cfg(feature = "channelz")]
pub mod channelz;
#[cfg(feature = "health")]
pub mod health;
#[cfg(feature = "reflection")]
pub(crate) mod reflection;

/// Generated from `proto/`.
mod proto {
    #[cfg(feature = "channelz")]
    pub(crate) mod channelz {
        include_proto!("grpc.channelz.v1");
    }

    #[cfg(feature = "health")]
    pub(crate) mod health {
        include_proto!("grpc.health.v1");
    }

    #[cfg(feature = "reflection")]
    pub(crate) mod reflection {
        include_proto!("grpc.reflection.v1");
    }
}
