//! Which of its own addresses this machine uses towards others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Somebody else's address that is on no real network (RFC 5737, RFC 3849): only the route to it is asked for.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// The address this machine sends from by its default route, IPv4 if there is one. Nothing is sent.
#[must_use]
pub fn outgoing() -> Option<IpAddr> {
    ELSEWHERE.into_iter().find_map(|target| towards(target).ok())
}

/// The address this machine sends from to reach another. Nothing is sent.
///
/// # Errors
/// When there is no route.
pub fn towards(target: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match target {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::from((any, 0)))?;
    // Any port: connecting a datagram socket only looks the route up.
    socket.connect(SocketAddr::from((target, 9)))?;
    Ok(socket.local_addr()?.ip())
}

/// Whether an address is this machine's own, so that whoever answers there is on this machine.
#[must_use]
pub fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::from((address, 0))).is_ok()
}

/// The interface through which an address is on the link, as the kernel's routing tables below `root` say.
///
/// # Errors
/// When a table cannot be read.
pub fn interface_of(root: &Path, address: IpAddr) -> io::Result<Option<String>> {
    let table = |file: &str| std::fs::read_to_string(root.join(file));
    let routes: Vec<(IpNet, String)> = match address {
        IpAddr::V4(_) => table("proc/net/route")?.lines().filter_map(four).collect(),
        IpAddr::V6(_) => table("proc/net/ipv6_route")?.lines().filter_map(six).collect(),
    };
    let towards = routes
        .into_iter()
        .filter(|(range, name)| range.contains(&address) && name != "lo" && range.prefix_len() > 0);
    Ok(towards
        .max_by_key(|(range, _)| range.prefix_len())
        .map(|(_, name)| name))
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask ...`, addresses in the byte order of the machine.
fn four(line: &str) -> Option<(IpNet, String)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| u32::from_str_radix(fields.get(index)?, 16).ok();
    let address = Ipv4Addr::from(number(1)?.swap_bytes());
    let on_link = number(2)? == 0;
    let prefix = u8::try_from(number(7)?.count_ones()).ok()?;
    let range = Ipv4Net::new(address, prefix).ok()?;
    on_link.then(|| (range.into(), (*fields.first().unwrap_or(&"")).to_owned()))
}

/// `Destination Prefix Source Prefix NextHop Metric RefCnt Use Flags Iface`.
fn six(line: &str) -> Option<(IpNet, String)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let address = u128::from_str_radix(fields.first()?, 16).ok()?;
    let prefix = u8::from_str_radix(fields.get(1)?, 16).ok()?;
    let on_link = fields.get(4)?.bytes().all(|byte| byte == b'0');
    let range = Ipv6Net::new(address.into(), prefix).ok()?;
    on_link.then(|| (range.into(), (*fields.last().unwrap_or(&"")).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::atomic_file::{Access, create_folder, write};

    #[test]
    fn loopback_is_reached_from_loopback() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(ELSEWHERE[0]));
        assert_eq!(
            towards(Ipv4Addr::LOCALHOST.into()).unwrap(),
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        );
    }

    #[test]
    fn the_most_specific_network_on_the_link_has_the_interface() {
        let root = tempfile::tempdir().unwrap();
        create_folder(&root.path().join("proc/net"), Access::Public).unwrap();
        let four = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                    eth0\t00000000\tFE004D0A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                    eth0\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                    wide\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";
        write(&root.path().join("proc/net/route"), four.as_bytes(), Access::Public).unwrap();
        let zeros = "0".repeat(32);
        let six = format!(
            "fd000000000000000000000000000000 40 {zeros} 00 {zeros} 00000100 00000001 00000000 00000001     eth1\n"
        );
        write(&root.path().join("proc/net/ipv6_route"), six.as_bytes(), Access::Public).unwrap();
        let of = |address: &str| interface_of(root.path(), address.parse().unwrap()).unwrap();
        assert_eq!(of("10.77.0.9").as_deref(), Some("eth0"));
        assert_eq!(of("10.1.0.9").as_deref(), Some("wide"));
        assert_eq!(of("192.168.0.1"), None);
        assert_eq!(of("fd00::5").as_deref(), Some("eth1"));
        assert_eq!(of("fd01::5"), None);
    }
}
