//! What may be done to the members of etcd. No file, no clock, no network.

use std::fmt;
use std::net::IpAddr;

use super::PEER_PORT;

/// A member's id, as etcd's gateway spells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberId(pub String);

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: MemberId,
    /// Its name; empty until it has started for the first time.
    pub name: String,
    /// Where the others reach it.
    pub peer_urls: Vec<String>,
    /// Whether it has no vote yet.
    pub is_learner: bool,
}

/// All members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(pub Vec<Member>);

/// What a node that joins does about its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// Add it.
    Add,
    /// It is there from an earlier try that never started: go on with it.
    GoOn(MemberId),
    /// Somebody else has the name or the address.
    Taken(Member),
    /// Another one is joining; etcd takes one at a time.
    Wait(Member),
}

/// What a node that leaves does about its member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Remove it: the others have a quorum.
    Remove(MemberId),
    /// It is not a member.
    Gone,
    /// It is the only one with a vote: the data goes with it.
    Last,
    /// Too few of the others are well, and with it gone they could not decide anything.
    NoQuorum {
        /// Others with a vote that answer.
        healthy: usize,
        /// Others with a vote that are needed.
        needed: usize,
    },
}

/// The URL under which the other members reach a node.
#[must_use]
pub fn peer_url(address: IpAddr) -> String {
    format!("https://{}", std::net::SocketAddr::from((address, PEER_PORT)))
}

impl Member {
    /// The addresses the others reach it at. A URL that names a host by name has none.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.peer_urls.iter().filter_map(|url| {
            let url: http::Uri = url.parse().ok()?;
            url.host()?.trim_matches(['[', ']']).parse().ok()
        })
    }
}

impl Members {
    /// The member of a node, by its address; the name is empty before its first start.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Option<&Member> {
        let url = peer_url(address);
        self.0.iter().find(|member| member.peer_urls.contains(&url))
    }

    /// What node `name` at `address` does to join.
    #[must_use]
    pub fn joining(&self, name: &str, address: IpAddr) -> Joining {
        match self.at(address) {
            Some(member) if member.name.is_empty() => return Joining::GoOn(member.id.clone()),
            Some(member) => return Joining::Taken(member.clone()),
            None => {}
        }
        if let Some(namesake) = self.0.iter().find(|member| member.name == name) {
            return Joining::Taken(namesake.clone());
        }
        match self.0.iter().find(|member| member.is_learner) {
            Some(learner) => Joining::Wait(learner.clone()),
            None => Joining::Add,
        }
    }

    /// What the node at `address` does to leave; `is_well` tells which members answer.
    pub fn leaving(&self, address: IpAddr, is_well: impl Fn(&Member) -> bool) -> Leaving {
        let Some(own) = self.at(address) else {
            return Leaving::Gone;
        };
        if own.is_learner {
            return Leaving::Remove(own.id.clone());
        }
        let others: Vec<&Member> = self
            .0
            .iter()
            .filter(|member| member.id != own.id && !member.is_learner)
            .collect();
        if others.is_empty() {
            return Leaving::Last;
        }
        let healthy = others.iter().filter(|member| is_well(member)).count();
        let needed = others.len() / 2 + 1;
        if healthy < needed {
            return Leaving::NoQuorum { healthy, needed };
        }
        Leaving::Remove(own.id.clone())
    }
}

impl fmt::Display for Member {
    /// `NAME (URL)`
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() {
            "not started yet"
        } else {
            &self.name
        };
        write!(formatter, "{name} ({})", self.peer_urls.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, last: u8, is_learner: bool) -> Member {
        Member {
            id: MemberId(format!("id-{last}")),
            name: name.to_owned(),
            peer_urls: vec![peer_url([10, 0, 0, last].into())],
            is_learner,
        }
    }

    #[test]
    fn a_peer_has_its_brackets() {
        assert_eq!(peer_url("10.0.0.1".parse().unwrap()), "https://10.0.0.1:2380");
        assert_eq!(peer_url("fd00::1".parse().unwrap()), "https://[fd00::1]:2380");
        let urls = [
            "https://10.0.0.1:2380",
            "https://[fd00::1]:2380",
            "https://name:2380",
            "",
        ];
        let member = Member {
            peer_urls: urls.map(str::to_owned).to_vec(),
            ..member("a", 1, false)
        };
        let addresses: Vec<String> = member.addresses().map(|address| address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.1", "fd00::1"]);
    }

    #[test]
    fn joining() {
        let one = member("a", 1, false);
        let decide = |others: &[Member], name: &str, last: u8| {
            let members = [std::slice::from_ref(&one), others].concat();
            Members(members).joining(name, [10, 0, 0, last].into())
        };
        assert_eq!(decide(&[], "b", 2), Joining::Add);
        assert_eq!(
            decide(&[member("", 2, true)], "b", 2),
            Joining::GoOn(MemberId("id-2".to_owned()))
        );
        // What runs already is not gone on with: its data may be another's.
        assert_eq!(
            decide(&[member("b", 2, true)], "b", 2),
            Joining::Taken(member("b", 2, true))
        );
        assert_eq!(decide(&[], "a", 2), Joining::Taken(one.clone()));
        assert_eq!(decide(&[], "b", 1), Joining::Taken(one.clone()));
        assert_eq!(
            decide(&[member("c", 3, true)], "b", 2),
            Joining::Wait(member("c", 3, true))
        );
        assert_eq!(decide(&[member("c", 3, false)], "b", 2), Joining::Add);
    }

    #[test]
    fn leaving_never_loses_the_quorum() {
        let decide = |others: &[(u8, bool)], well: &[u8]| {
            let mut members = vec![member("a", 1, false)];
            members.extend(others.iter().map(|(last, learner)| member("x", *last, *learner)));
            let is_well = |member: &Member| well.iter().any(|last| member.id.0 == format!("id-{last}"));
            Members(members).leaving([10, 0, 0, 1].into(), is_well)
        };
        let remove = Leaving::Remove(MemberId("id-1".to_owned()));
        assert_eq!(decide(&[], &[]), Leaving::Last);
        // A learner has no vote to go on with.
        assert_eq!(decide(&[(2, true)], &[2]), Leaving::Last);
        assert_eq!(decide(&[(2, false)], &[2]), remove);
        assert_eq!(decide(&[(2, false)], &[]), Leaving::NoQuorum { healthy: 0, needed: 1 });
        assert_eq!(decide(&[(2, false), (3, false)], &[2, 3]), remove);
        assert_eq!(
            decide(&[(2, false), (3, false)], &[2]),
            Leaving::NoQuorum { healthy: 1, needed: 2 }
        );
        assert_eq!(decide(&[(2, false), (3, false), (4, false)], &[2, 4]), remove);
        let gone = Members(vec![member("b", 2, false)]).leaving([10, 0, 0, 1].into(), |_| true);
        assert_eq!(gone, Leaving::Gone);
        let learner = Members(vec![member("a", 1, true), member("b", 2, false)]);
        assert_eq!(
            learner.leaving([10, 0, 0, 1].into(), |_| false),
            Leaving::Remove(MemberId("id-1".to_owned()))
        );
    }
}
