//! The commands, and which options each takes.

use crate::options::Opt;

/// A command: what the first argument says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the command of its name, see `Verb::name`")]
pub enum Verb {
    AddService,
    EditService,
    DeleteService,
    Flush,
    List,
    AddServer,
    DeleteServer,
    EditServer,
    Set,
    StartDaemon,
    StopDaemon,
    Restore,
    Save,
    Zero,
    AddLocal,
    DeleteLocal,
    GetLocal,
    AddDenied,
    DeleteDenied,
    GetDenied,
    AddAllowed,
    DeleteAllowed,
    GetAllowed,
}

impl Verb {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AddService => "add-service",
            Self::EditService => "edit-service",
            Self::DeleteService => "delete-service",
            Self::Flush => "flush",
            Self::List => "list",
            Self::AddServer => "add-server",
            Self::DeleteServer => "delete-server",
            Self::EditServer => "edit-server",
            Self::Set => "set",
            Self::StartDaemon => "start-daemon",
            Self::StopDaemon => "stop-daemon",
            Self::Restore => "restore",
            Self::Save => "save",
            Self::Zero => "zero",
            Self::AddLocal => "add-laddr",
            Self::DeleteLocal => "del-laddr",
            Self::GetLocal => "get-laddr",
            Self::AddDenied => "add-blklst",
            Self::DeleteDenied => "del-blklst",
            Self::GetDenied => "get-blklst",
            Self::AddAllowed => "add-whtlst",
            Self::DeleteAllowed => "del-whtlst",
            Self::GetAllowed => "get-whtlst",
        }
    }

    /// What it must have.
    pub(crate) const fn needs(self) -> &'static [Opt] {
        match self {
            Self::AddService | Self::EditService | Self::DeleteService => &[Opt::Service],
            Self::AddServer | Self::EditServer | Self::DeleteServer => {
                &[Opt::Service, Opt::RealServer]
            }
            Self::AddLocal | Self::DeleteLocal => &[Opt::Service, Opt::LocalAddress],
            Self::AddDenied | Self::DeleteDenied => &[Opt::Service, Opt::Denied],
            Self::AddAllowed | Self::DeleteAllowed => &[Opt::Service, Opt::Allowed],
            _ => &[],
        }
    }

    /// What it may have, besides.
    const fn may_have(self) -> &'static [Opt] {
        use Opt as O;
        match self {
            Self::AddService | Self::EditService => &[
                O::Scheduler,
                O::Persistent,
                O::Netmask,
                O::OnePacket,
                O::Engine,
                O::SchedFlags,
                O::SynProxy,
                O::HashTarget,
                O::ExpireQuiescent,
                O::DestCheck,
                O::ConnTimeout,
                O::ProxyProtocol,
                O::Quic,
            ],
            Self::List => &[
                O::Numeric,
                O::Connection,
                O::Service,
                O::Timeout,
                O::Daemon,
                O::Stats,
                O::Rate,
                O::Thresholds,
                O::PersistentConn,
                O::NoSort,
                O::SyncId,
                O::Exact,
                O::TunInfo,
                O::SockPair,
                O::Cpu,
                O::Local,
            ],
            Self::AddServer | Self::EditServer => &[
                O::Method,
                O::Weight,
                O::Upper,
                O::Lower,
                O::TunType,
                O::TunPort,
                O::TunNoCsum,
                O::TunCsum,
                O::TunRemCsum,
            ],
            Self::StartDaemon => &[
                O::McastInterface,
                O::SyncId,
                O::McastGroup,
                O::McastPort,
                O::McastTtl,
                O::SyncMaxlen,
            ],
            Self::StopDaemon => &[O::SyncId],
            Self::Save => &[O::Numeric],
            Self::Zero => &[O::Service],
            Self::AddLocal | Self::DeleteLocal => &[O::Interface],
            Self::GetLocal | Self::GetDenied | Self::GetAllowed => &[O::Service, O::Numeric],
            _ => &[],
        }
    }

    /// Whether it takes an option at all.
    pub(crate) fn takes(self, option: Opt) -> bool {
        self.needs().contains(&option) || self.may_have().contains(&option)
    }

    /// Whether an option is one of those of which it takes only one.
    pub(crate) fn excludes(self, option: Opt) -> bool {
        const ONE: [Opt; 4] = [Opt::Connection, Opt::Service, Opt::Timeout, Opt::Daemon];
        self == Self::List && ONE.contains(&option)
    }
}
