//! Packet filters, as far as they matter for a new connection from outside to one of our ports.
use std::collections::BTreeMap;

/// How deep chains may call each other; the kernel allows 16 (`NFT_JUMP_STACK_SIZE`).
const MAX_DEPTH: u32 = 16;

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// The first packet of a connection to us.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) protocol: Protocol,
    pub(super) port: u16,
    /// Where it comes in, if only one interface is heard.
    pub(super) interface: Option<String>,
    pub(super) ipv6: bool,
}

/// What becomes of a packet; worse ones are greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Accept,
    /// That depends on more than is looked at: on this rule.
    Unclear(String),
    /// This rule drops it.
    Drop(String),
}

/// All chains of a packet filter.
#[derive(Clone, Debug, Default)]
pub(super) struct Ruleset {
    /// By family, table and name.
    pub(super) chains: BTreeMap<ChainName, Chain>,
}

/// Which chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChainName {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) chain: String,
}

impl std::fmt::Display for ChainName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.family, self.table, self.chain)
    }
}

/// A chain of rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    /// Where packets to this machine begin; `None`: only other chains lead here.
    pub(super) input: Option<Input>,
    pub(super) rules: Vec<Rule>,
}

/// That packets to this machine go through a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    /// Lower ones come first.
    pub(super) priority: i64,
    /// Whether those are dropped that no rule decides about.
    pub(super) drops: bool,
}

/// A rule: where all conditions hold, the action is done.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) conditions: Vec<Condition>,
    pub(super) action: Action,
    /// As the tool shows it, for messages.
    pub(super) text: String,
}

/// What a rule asks of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Protocol(Vec<Protocol>),
    /// Port ranges, of this protocol or of any.
    Port(Option<Protocol>, Vec<(u16, u16)>),
    /// It comes in by one of these interfaces.
    Interface(Vec<String>),
    /// Its connection is new.
    New(bool),
    /// Turned round.
    Not(Box<Condition>),
    /// Never, for a connection from outside.
    Never,
    /// Something that is not looked at.
    Unknown,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Accept,
    Drop,
    /// Goes through the chain of the same table, and comes back.
    Jump(String),
    /// Goes through it, and does not.
    Goto(String),
    Return,
    /// Counts, logs, marks.
    Nothing,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Yes,
    No,
    Perhaps,
}

impl Condition {
    fn holds(&self, packet: &Packet) -> Holds {
        let certain = |truth: bool| if truth { Holds::Yes } else { Holds::No };
        match self {
            Self::Protocol(protocols) => certain(protocols.contains(&packet.protocol)),
            Self::Port(protocol, ranges) => certain(
                protocol.is_none_or(|protocol| protocol == packet.protocol)
                    && ranges.iter().any(|(first, last)| (*first..=*last).contains(&packet.port)),
            ),
            Self::Interface(names) => match &packet.interface {
                Some(own) => certain(names.iter().any(|name| is_like(own, name))),
                // Devices do not come by the loopback interface.
                None if names.iter().all(|name| name == "lo") => Holds::No,
                None => Holds::Perhaps,
            },
            Self::New(new) => certain(*new),
            Self::Not(condition) => match condition.holds(packet) {
                Holds::Yes => Holds::No,
                Holds::No => Holds::Yes,
                Holds::Perhaps => Holds::Perhaps,
            },
            Self::Never => Holds::No,
            Self::Unknown => Holds::Perhaps,
        }
    }
}

/// `eth*` (nft) and `eth+` (iptables) stand for all that begin so.
fn is_like(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix(['*', '+']) {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// How a walk through a chain ends.
enum End {
    Accepted,
    Dropped(String),
    /// No rule decided.
    Through,
}

/// What might have decided before.
#[derive(Default)]
struct Doubts {
    accept: Option<String>,
    drop: Option<String>,
}

impl Ruleset {
    /// What becomes of a packet.
    pub(super) fn verdict(&self, packet: &Packet) -> Verdict {
        let family = if packet.ipv6 { "ip6" } else { "ip" };
        let mut bases: Vec<(&ChainName, Input)> = self
            .chains
            .iter()
            .filter(|(name, _)| name.family == family || name.family == "inet")
            .filter_map(|(name, chain)| Some((name, chain.input?)))
            .collect();
        bases.sort_by_key(|(_, input)| input.priority);
        // Each base chain must let it through: what one accepts goes on to the next.
        let verdicts = bases.into_iter().map(|(name, input)| self.verdict_of(name, input, packet));
        verdicts.max().unwrap_or(Verdict::Accept)
    }

    fn verdict_of(&self, name: &ChainName, input: Input, packet: &Packet) -> Verdict {
        let mut doubts = Doubts::default();
        let end = self.walk(name, packet, &mut doubts, false, 0);
        let policy = || format!("the policy of chain \"{name}\" drops what no rule accepts");
        let end = match end {
            End::Through if input.drops => End::Dropped(policy()),
            other => other,
        };
        match (end, doubts.accept, doubts.drop) {
            (End::Dropped(_), Some(rule), _) => Verdict::Unclear(rule),
            (End::Dropped(rule), None, _) => Verdict::Drop(rule),
            (End::Accepted | End::Through, _, Some(rule)) => Verdict::Unclear(rule),
            (End::Accepted | End::Through, _, None) => Verdict::Accept,
        }
    }

    /// `perhaps`: whether it comes here at all is not certain.
    fn walk(&self, name: &ChainName, packet: &Packet, doubts: &mut Doubts, perhaps: bool, depth: u32) -> End {
        let Some(chain) = self.chains.get(name).filter(|_| depth < MAX_DEPTH) else { return End::Through };
        for rule in &chain.rules {
            let held = rule.conditions.iter().map(|condition| condition.holds(packet));
            let held = held.fold(Holds::Yes, |all, one| match (all, one) {
                (Holds::No, _) | (_, Holds::No) => Holds::No,
                (Holds::Perhaps, _) | (_, Holds::Perhaps) => Holds::Perhaps,
                (Holds::Yes, Holds::Yes) => Holds::Yes,
            });
            if held == Holds::No {
                continue;
            }
            let doubtful = perhaps || held == Holds::Perhaps;
            let text = || format!("the rule \"{}\" of chain \"{name}\"", rule.text);
            let end = match &rule.action {
                Action::Nothing => End::Through,
                Action::Accept => End::Accepted,
                Action::Drop => End::Dropped(text()),
                Action::Return if doubtful => End::Through,
                Action::Return => return End::Through,
                Action::Jump(chain) | Action::Goto(chain) => {
                    let next = ChainName { chain: chain.clone(), ..name.clone() };
                    self.walk(&next, packet, doubts, doubtful, depth.saturating_add(1))
                }
            };
            match end {
                End::Accepted if doubtful => drop(doubts.accept.get_or_insert_with(text)),
                End::Dropped(rule) if doubtful => drop(doubts.drop.get_or_insert(rule)),
                End::Through if doubtful || !matches!(rule.action, Action::Goto(_)) => {}
                decided => return decided,
            }
        }
        End::Through
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(conditions: Vec<Condition>, action: Action) -> Rule {
        let text = format!("{conditions:?} {action:?}");
        Rule { conditions, action, text }
    }

    fn ruleset(drops: bool, input: Vec<Rule>, other: Vec<Rule>) -> Ruleset {
        let name = |chain: &str| ChainName { family: "inet".into(), table: "f".into(), chain: chain.into() };
        let base = Chain { input: Some(Input { priority: 0, drops }), rules: input };
        let other = Chain { input: None, rules: other };
        Ruleset { chains: [(name("input"), base), (name("other"), other)].into() }
    }

    fn tcp(port: u16) -> Packet {
        Packet { protocol: Protocol::Tcp, port, interface: None, ipv6: false }
    }

    fn port(port: u16) -> Condition {
        Condition::Port(Some(Protocol::Tcp), vec![(port, port)])
    }

    #[test]
    fn policy_decides_what_no_rule_does() {
        assert_eq!(Ruleset::default().verdict(&tcp(1)), Verdict::Accept);
        assert_eq!(ruleset(false, vec![], vec![]).verdict(&tcp(1)), Verdict::Accept);
        assert!(matches!(ruleset(true, vec![], vec![]).verdict(&tcp(1)), Verdict::Drop(_)));
        let one = ruleset(true, vec![rule(vec![port(1)], Action::Accept)], vec![]);
        assert_eq!(one.verdict(&tcp(1)), Verdict::Accept);
        assert!(matches!(one.verdict(&tcp(2)), Verdict::Drop(_)));
    }

    #[test]
    fn what_depends_on_more_is_unclear_unless_it_makes_no_difference() {
        let perhaps = |action| vec![rule(vec![Condition::Unknown, port(1)], action)];
        assert!(matches!(
            ruleset(true, perhaps(Action::Accept), vec![]).verdict(&tcp(1)),
            Verdict::Unclear(_)
        ));
        assert!(matches!(
            ruleset(false, perhaps(Action::Drop), vec![]).verdict(&tcp(1)),
            Verdict::Unclear(_)
        ));
        assert_eq!(ruleset(false, perhaps(Action::Accept), vec![]).verdict(&tcp(1)), Verdict::Accept);
        assert!(matches!(ruleset(true, perhaps(Action::Drop), vec![]).verdict(&tcp(1)), Verdict::Drop(_)));
    }

    #[test]
    fn chains_are_followed_and_come_back() {
        let jump = vec![rule(vec![], Action::Jump("other".into())), rule(vec![port(2)], Action::Accept)];
        let both =
            ruleset(true, jump, vec![rule(vec![port(1)], Action::Accept), rule(vec![], Action::Return)]);
        assert_eq!(both.verdict(&tcp(1)), Verdict::Accept);
        assert_eq!(both.verdict(&tcp(2)), Verdict::Accept);
        let goto = vec![rule(vec![], Action::Goto("other".into())), rule(vec![port(2)], Action::Accept)];
        assert!(matches!(ruleset(true, goto, vec![]).verdict(&tcp(2)), Verdict::Drop(_)));
        let endless = vec![rule(vec![], Action::Jump("input".into()))];
        assert!(matches!(ruleset(true, endless, vec![]).verdict(&tcp(1)), Verdict::Drop(_)));
    }

    #[test]
    fn interface_matters_only_where_one_is_known() {
        let lo =
            ruleset(true, vec![rule(vec![Condition::Interface(vec!["lo".into()])], Action::Accept)], vec![]);
        assert!(matches!(lo.verdict(&tcp(1)), Verdict::Drop(_)));
        let eth = ruleset(
            true,
            vec![rule(vec![Condition::Interface(vec!["eth*".into()])], Action::Accept)],
            vec![],
        );
        assert!(matches!(eth.verdict(&tcp(1)), Verdict::Unclear(_)));
        assert_eq!(eth.verdict(&Packet { interface: Some("eth1".into()), ..tcp(1) }), Verdict::Accept);
    }
}
