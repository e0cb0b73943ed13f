//! Questions to the directory, asked on a worker; the answers come back as messages.
use std::sync::Arc;

use super::event_loop::Context;
use super::link::post;
use super::mailbox::{ConnectionId, Letter, Mailbox, Message, Opened};
use super::registry::{Entrant, NoEntry};
use super::shared::Shared;
use crate::directory::{IscsiName, LoginAttempt, Refusal};
use crate::limits::REPLACE_WAIT;
use crate::login::{CHALLENGE_BYTES, Challenge, NotOpened};
use crate::session::SendTargets;
use connections::Lane;

/// A CHAP challenge from the operating system's random source.
///
/// # Errors
/// Where there is none.
pub(super) fn challenge() -> Result<Challenge, getrandom::Error> {
    let mut identifier = [0; 1];
    let mut bytes = [0; CHALLENGE_BYTES];
    getrandom::fill(&mut identifier)?;
    getrandom::fill(&mut bytes)?;
    Ok(Challenge { identifier: identifier[0], bytes })
}

/// What must this initiator prove?
pub(super) fn ask_authentication(context: &Context, id: ConnectionId, attempt: LoginAttempt) {
    let (shared, post) = (Arc::clone(&context.shared), post(context));
    context.shared.logins.submit(
        Lane::default(),
        Box::new(move || {
            post(Message::To(id, Letter::Authentication(shared.directory.authentication(&attempt))));
        }),
    );
}

/// May it open the target? Its place is taken from the sessions that it replaces.
pub(super) fn ask_open(
    context: &Context,
    id: ConnectionId,
    arrival_number: u64,
    attempt: LoginAttempt,
    tsih: u16,
) {
    let (shared, mailbox) = (Arc::clone(&context.shared), Arc::clone(&context.mailbox));
    let Some(target) = attempt.target.clone() else {
        // A discovery session has nothing to open.
        let tsih = shared.registry.new_tsih();
        let units = Arc::new(scsi::Units::new(&attempt.port(), []));
        let opened = Opened { tsih, units, life: None, account: meter::Account::default() };
        mailbox.post(Message::To(id, Letter::Opened(Ok(opened))));
        return;
    };
    context.shared.logins.submit(
        Lane::default(),
        Box::new(move || {
            let opened = open(&shared, &mailbox, (id, arrival_number), attempt, target, tsih);
            mailbox.post(Message::To(id, Letter::Opened(opened)));
        }),
    );
}

fn open(
    shared: &Arc<Shared>,
    mailbox: &Arc<Mailbox>,
    (connection, arrival_number): (ConnectionId, u64),
    attempt: LoginAttempt,
    target: IscsiName,
    tsih: u16,
) -> Result<Opened, NotOpened> {
    let grant = shared.directory.open(&attempt).map_err(NotOpened::Refused)?;
    let units = Arc::new(scsi::Units::new(&attempt.port(), grant.units));
    let entrant = Entrant {
        target,
        attempt,
        tsih,
        mailbox: Arc::clone(mailbox),
        connection,
        arrival_number,
        coexistence: grant.coexistence,
        units: Arc::clone(&units),
        observer: grant.observer,
    };
    match shared.registry.enter(entrant, REPLACE_WAIT) {
        Ok((life, tsih)) => Ok(Opened { tsih, units, life: Some(life), account: grant.account }),
        Err(NoEntry::NoSuchSession) => Err(NotOpened::NoSuchSession),
        Err(NoEntry::Overtaken) => {
            let reason = "a later login of this machine has come first".to_owned();
            Err(NotOpened::Refused(Refusal::Unavailable(reason)))
        }
        Err(NoEntry::StillBusy) => {
            let reason = "requests of the session before are still waiting for storage".to_owned();
            Err(NotOpened::Refused(Refusal::Unavailable(reason)))
        }
    }
}

/// Which targets does it see?
pub(super) fn ask_targets(context: &Context, id: ConnectionId, attempt: LoginAttempt, asked: SendTargets) {
    let (shared, post) = (Arc::clone(&context.shared), post(context));
    context.shared.logins.submit(
        Lane::default(),
        Box::new(move || {
            let mut targets = shared.directory.discover(&attempt);
            if let SendTargets::Named(name) = asked {
                targets.retain(|target| *target == name);
            }
            let portals = shared.directory.portals(&attempt);
            post(Message::To(id, Letter::Targets(targets, portals)));
        }),
    );
}
