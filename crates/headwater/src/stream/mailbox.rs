//! Commands that wait until the systems of their devices fetch them.
//!
//! A command is for one boot of each of its devices, the one that runs when it is given: who restarted meanwhile is not
//! restarted once more. The service in the system fetches the oldest that waits, says that it has taken it, and only
//! then does it; what has expired cannot be taken, so what is told here is what happened. Nothing is kept over a restart of the
//! server: a command that nobody has fetched by then is one that nobody was told had been done.
//!
//! Time comes from outside, and who asks was proven before.
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::api::guest_commands::{CommandKind, CommandState, CommandStatus, CommandWanted, CommandedDevice};
use farm::model::Timestamp;
use vdisk::BootId;

use crate::config::DeviceName;

/// The most commands that are kept; those that are settled make room.
const MAX_COMMANDS: usize = 128;
/// The most that wait for one device: a service that does not come is no reason to collect more.
const MAX_WAITING: usize = 8;
/// The most devices whose services are remembered.
const MAX_HEARD: usize = 65_536;
/// The most characters of a device's complaint.
const MAX_COMPLAINT_CHARS: usize = 200;

/// How often a service asks, where there are few of them.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How many more services make it a second longer: so many requests in a second are few for a server.
const SERVICES_A_SECOND: usize = 100;
/// A service that has not asked for so long is gone.
const GONE_AFTER: Duration = Duration::from_secs(90);

/// The commands of all devices.
#[derive(Debug, Default)]
pub struct Mailbox(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    /// Oldest first.
    commands: VecDeque<Command>,
    /// Which boot's service asked last, and when.
    heard: HashMap<DeviceName, (BootId, Timestamp)>,
}

#[derive(Debug)]
struct Command {
    id: u64,
    wanted: CommandWanted,
    given_at: Timestamp,
    expires_at: Timestamp,
    recipients: BTreeMap<DeviceName, Recipient>,
}

#[derive(Debug)]
struct Recipient {
    /// Which boot it is for; `None`: it was given to nobody.
    boot: Option<BootId>,
    state: CommandState,
    problem: Option<String>,
}

/// What a service is told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The command.
    pub id: u64,
    /// What it is.
    pub kind: CommandKind,
    /// The message.
    pub text: String,
}

/// What a service says of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It will be done now.
    Taken,
    /// It cannot be done, and why.
    Failed(String),
}

/// What a service gets that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// When to ask again.
    pub ask_again: Duration,
    /// What to do, the oldest first.
    pub order: Option<Order>,
}

/// Too many commands wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_COMMANDS} commands wait to be fetched: wait until some of them have expired")]
pub struct Full;

impl Mailbox {
    /// Gives a command to the boots that run on devices; `Err` says why a device has none to give it to.
    ///
    /// # Errors
    /// [`Full`].
    pub fn give(
        &self,
        now: Timestamp,
        devices: Vec<(DeviceName, Result<BootId, String>)>,
        wanted: &CommandWanted,
    ) -> Result<CommandStatus, Full> {
        let mut table = self.lock();
        let recipient = |(device, boot): (DeviceName, Result<BootId, String>)| {
            let waiting = table.commands.iter().filter(|command| command.waits_for(&device, now)).count();
            let boot = boot.and_then(|boot| match waiting < MAX_WAITING {
                true => Ok(boot),
                false => Err(format!("{MAX_WAITING} commands wait for it already")),
            });
            let recipient = match boot {
                Ok(boot) => Recipient { boot: Some(boot), state: CommandState::Pending, problem: None },
                Err(why) => Recipient { boot: None, state: CommandState::Refused, problem: Some(why) },
            };
            (device, recipient)
        };
        let recipients = devices.into_iter().map(recipient).collect();
        let expires_at = now.after(wanted.expires_in);
        // Higher than any that a server before this one gave: a receipt for one of those is for none of ours.
        let id = table.last_id.saturating_add(1).max(u64::try_from(now.ms()).unwrap_or(0));
        let command = Command { id, wanted: wanted.clone(), given_at: now, expires_at, recipients };
        let mut status = command.status(now, &table.heard);
        if wanted.dry_run {
            status.id = None;
            return Ok(status);
        }
        table.make_room(now)?;
        table.last_id = id;
        table.commands.push_back(command);
        Ok(status)
    }

    /// What the service of a boot is to do now.
    pub fn fetch(&self, now: Timestamp, device: &DeviceName, boot: &BootId) -> Mail {
        let mut table = self.lock();
        if table.heard.len() >= MAX_HEARD && !table.heard.contains_key(device) {
            table.heard.retain(|_, (_, at)| at.until(now) < GONE_AFTER);
        }
        if table.heard.len() < MAX_HEARD || table.heard.contains_key(device) {
            table.heard.insert(device.clone(), (boot.clone(), now));
        }
        let more = table.heard.len().checked_div(SERVICES_A_SECOND).unwrap_or(0);
        let ask_again =
            ASK_AGAIN.saturating_add(Duration::from_secs(u64::try_from(more).unwrap_or(u64::MAX)));
        let order = table.commands.iter().find(|command| command.is_for(device, boot, now)).map(|command| {
            let CommandWanted { kind, text, .. } = &command.wanted;
            Order { id: command.id, kind: *kind, text: text.clone() }
        });
        Mail { ask_again, order }
    }

    /// The service of a boot says what it does with an order: the kind of it, and whether this is news. `None`: there is no
    /// such order for it, or not any more, and it is to do nothing.
    pub fn receive(
        &self,
        now: Timestamp,
        device: &DeviceName,
        boot: &BootId,
        id: u64,
        receipt: Receipt,
    ) -> Option<(CommandKind, bool)> {
        let mut table = self.lock();
        let command = table.commands.iter_mut().find(|command| command.id == id)?;
        let waits = command.is_for(device, boot, now);
        let kind = command.wanted.kind;
        let recipient =
            command.recipients.get_mut(device).filter(|found| found.boot.as_ref() == Some(boot))?;
        let (state, problem) = match receipt {
            Receipt::Taken => (CommandState::Taken, None),
            Receipt::Failed(why) => {
                let readable = why.chars().filter(|c| !c.is_control()).take(MAX_COMPLAINT_CHARS);
                (CommandState::Failed, Some(readable.collect()))
            }
        };
        // Its answer may have been lost: it may say so again. What it took, it can fail to do.
        let again = recipient.state == state;
        let failed = (recipient.state, state) == (CommandState::Taken, CommandState::Failed);
        if !waits && !failed {
            return again.then_some((kind, false));
        }
        (recipient.state, recipient.problem) = (state, problem);
        Some((kind, true))
    }

    /// The latest commands, latest first.
    pub fn list(&self, now: Timestamp) -> Vec<CommandStatus> {
        let table = self.lock();
        table.commands.iter().rev().map(|command| command.status(now, &table.heard)).collect()
    }

    /// Whether the service of this boot asks for commands.
    pub fn hears(&self, now: Timestamp, device: &DeviceName, boot: &str) -> bool {
        let table = self.lock();
        let heard = table.heard.get(device);
        heard.is_some_and(|(heard, at)| heard.as_str() == boot && at.until(now) < GONE_AFTER)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Makes room for one more, by forgetting the oldest that nobody waits for.
    fn make_room(&mut self, now: Timestamp) -> Result<(), Full> {
        if self.commands.len() < MAX_COMMANDS {
            return Ok(());
        }
        let settled = self.commands.iter().position(|command| command.is_settled(now)).ok_or(Full)?;
        self.commands.remove(settled);
        Ok(())
    }
}

impl Command {
    fn state(&self, recipient: &Recipient, now: Timestamp) -> CommandState {
        match recipient.state {
            CommandState::Pending if now >= self.expires_at => CommandState::Expired,
            state => state,
        }
    }

    fn is_settled(&self, now: Timestamp) -> bool {
        !self.recipients.values().any(|recipient| self.state(recipient, now).is_open())
    }

    fn waits_for(&self, device: &DeviceName, now: Timestamp) -> bool {
        self.recipients.get(device).is_some_and(|recipient| self.state(recipient, now).is_open())
    }

    fn is_for(&self, device: &DeviceName, boot: &BootId, now: Timestamp) -> bool {
        let recipient = self.recipients.get(device);
        recipient.is_some_and(|found| found.boot.as_ref() == Some(boot) && self.state(found, now).is_open())
    }

    fn status(&self, now: Timestamp, heard: &HashMap<DeviceName, (BootId, Timestamp)>) -> CommandStatus {
        let item = |(device, recipient): (&DeviceName, &Recipient)| {
            let same = heard.get(device).filter(|(boot, _)| recipient.boot.as_ref() == Some(boot));
            CommandedDevice {
                name: device.to_string(),
                state: self.state(recipient, now),
                heard_s: same.map(|(_, at)| at.until(now).as_secs()),
                problem: recipient.problem.clone(),
            }
        };
        let CommandWanted { kind, text, by, .. } = &self.wanted;
        CommandStatus {
            id: Some(self.id),
            command: *kind,
            text: (*kind == CommandKind::Message).then(|| text.clone()),
            by: by.clone(),
            given_at: self.given_at.to_string(),
            expires_at: self.expires_at.to_string(),
            items: self.recipients.iter().map(item).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_ms(1_000_000_000 + seconds * 1000)
    }

    fn name(text: &str) -> DeviceName {
        DeviceName::parse(text).unwrap()
    }

    fn boot(text: &str) -> BootId {
        BootId::new(text).unwrap()
    }

    fn wanted(kind: CommandKind) -> CommandWanted {
        let text = if kind == CommandKind::Message { "Good night" } else { "" };
        let expires_in = Duration::from_secs(60);
        CommandWanted { kind, text: text.to_owned(), by: "ann".to_owned(), expires_in, dry_run: false }
    }

    fn give(mailbox: &Mailbox, now: Timestamp, kind: CommandKind) -> u64 {
        let devices = vec![(name("lab-01"), Ok(boot("b1")))];
        mailbox.give(now, devices, &wanted(kind)).unwrap().id.unwrap()
    }

    fn state(mailbox: &Mailbox, now: Timestamp, id: u64) -> CommandState {
        let found = mailbox.list(now).into_iter().find(|command| command.id == Some(id)).unwrap();
        found.items[0].state
    }

    #[test]
    fn commands_are_fetched_in_order_by_their_boot_and_taken_once() {
        let mailbox = Mailbox::default();
        let (device, own) = (name("lab-01"), boot("b1"));
        let first = give(&mailbox, at(0), CommandKind::Message);
        let second = give(&mailbox, at(0), CommandKind::Reboot);
        assert!(second > first);
        for (who, which) in [("lab-02", "b1"), ("lab-01", "b0"), ("lab-01", "b2")] {
            let (who, which) = (name(who), boot(which));
            assert_eq!(mailbox.fetch(at(1), &who, &which).order, None);
            assert_eq!(mailbox.receive(at(1), &who, &which, first, Receipt::Taken), None);
        }
        let order = mailbox.fetch(at(1), &device, &own).order.unwrap();
        assert_eq!((order.id, order.text.as_str()), (first, "Good night"));
        assert_eq!(mailbox.fetch(at(2), &device, &own).order.unwrap().id, first, "an answer can get lost");
        let take = |id| mailbox.receive(at(3), &device, &own, id, Receipt::Taken);
        assert_eq!(
            (take(first), take(first)),
            (Some((CommandKind::Message, true)), Some((CommandKind::Message, false)))
        );
        assert_eq!(state(&mailbox, at(3), first), CommandState::Taken);
        assert_eq!(mailbox.fetch(at(4), &device, &own).order.unwrap().kind, CommandKind::Reboot);
        assert_eq!(take(second), Some((CommandKind::Reboot, true)));
        assert_eq!(mailbox.fetch(at(5), &device, &own).order, None);
        let failed = Receipt::Failed("no \u{1b}power".to_owned());
        assert!(mailbox.receive(at(6), &device, &own, second, failed).is_some());
        let list = mailbox.list(at(6));
        assert_eq!((list[0].id, list[0].items[0].problem.as_deref()), (Some(second), Some("no power")));
    }

    #[test]
    fn command_that_has_expired_is_neither_fetched_nor_taken() {
        let mailbox = Mailbox::default();
        let id = give(&mailbox, at(0), CommandKind::Shutdown);
        assert_eq!(state(&mailbox, at(59), id), CommandState::Pending);
        assert_eq!(state(&mailbox, at(60), id), CommandState::Expired);
        assert_eq!(mailbox.fetch(at(60), &name("lab-01"), &boot("b1")).order, None);
        assert_eq!(mailbox.receive(at(60), &name("lab-01"), &boot("b1"), id, Receipt::Taken), None);
        assert_eq!(mailbox.receive(at(1), &name("lab-01"), &boot("b1"), id + 1, Receipt::Taken), None);
    }

    #[test]
    fn device_that_does_not_run_or_has_too_many_is_refused_and_a_rehearsal_leaves_nothing() {
        let mailbox = Mailbox::default();
        let devices = || vec![(name("a"), Ok(boot("b1"))), (name("b"), Err("it is off".to_owned()))];
        let rehearsed = CommandWanted { dry_run: true, ..wanted(CommandKind::Reboot) };
        let status = mailbox.give(at(0), devices(), &rehearsed).unwrap();
        assert_eq!((status.id, mailbox.list(at(0)).len()), (None, 0));
        let states: Vec<_> = status.items.iter().map(|item| item.state).collect();
        assert_eq!(states, [CommandState::Pending, CommandState::Refused]);
        for _ in 0..MAX_WAITING {
            mailbox.give(at(0), devices(), &wanted(CommandKind::Message)).unwrap();
        }
        let last = mailbox.give(at(0), devices(), &wanted(CommandKind::Message)).unwrap();
        assert!(last.items[0].problem.as_deref().unwrap().contains("wait for it already"), "{last:?}");
    }

    #[test]
    fn mailbox_is_bounded_and_settled_commands_make_room() {
        let mailbox = Mailbox::default();
        let to = |number: usize| vec![(name(&format!("d{number}")), Ok(boot("b1")))];
        for number in 0..MAX_COMMANDS {
            mailbox.give(at(0), to(number), &wanted(CommandKind::Reboot)).unwrap();
        }
        let once_more = |now| mailbox.give(now, to(MAX_COMMANDS), &wanted(CommandKind::Reboot));
        assert_eq!(once_more(at(1)), Err(Full));
        let list = mailbox.list(at(1));
        let third = list[list.len() - 3].id.unwrap();
        assert!(mailbox.receive(at(1), &name("d2"), &boot("b1"), third, Receipt::Taken).is_some());
        assert!(once_more(at(1)).is_ok());
        assert!(once_more(at(100)).is_ok(), "the others have expired");
        assert_eq!(mailbox.list(at(100)).len(), MAX_COMMANDS);
    }

    #[test]
    fn services_are_heard_until_they_are_silent_and_many_ask_less_often() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.fetch(at(0), &name("lab-01"), &boot("b1")).ask_again, ASK_AGAIN);
        assert!(mailbox.hears(at(89), &name("lab-01"), "b1"));
        assert!(!mailbox.hears(at(90), &name("lab-01"), "b1"));
        assert!(!mailbox.hears(at(1), &name("lab-01"), "b2"), "the next boot may be without it");
        for number in 0..1000 {
            mailbox.fetch(at(1), &name(&format!("d{number}")), &boot("b1"));
        }
        assert_eq!(mailbox.fetch(at(2), &name("lab-01"), &boot("b1")).ask_again.as_secs(), 15);
    }
}
