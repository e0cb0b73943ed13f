//! Answers that go on: what changes, for whoever listens.
//!
//! A listener of `/v1/events` (server-sent events, WHATWG HTML §9.2) hears of changes, of tasks that get on, of boots, and of devices
//! that come and go.
//! Changes are read from the audit, whose numbers are the ids of the events: whoever comes back with `Last-Event-ID`
//! hears what was missed, and whoever reads slowly is read to from where they were. Nothing is queued for a listener but a
//! bounded number of events; the feeder waits for it, and news waits in the catalogue.
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body as HttpBody, Bytes, HttpBody as BodyTrait};
use axum::http::{Response, StatusCode, header};
use control::people::Origin;
use control::{Caller, Code, Control, ControlError, Notice, Notices};
use farm::catalogue::ListQuery;
use farm::filter::{Filter, Operator, Term};
use farm::model::{AuditEntry, ChangeNumber, ObjectKind, Task, TaskId};
use farm::rules::permission::{Action, Place};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

use crate::Api;
use crate::asked::Asked;
use crate::live::{Followed, Requests};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::resources::object::tell;
use crate::resources::tasks::Tasks;
use crate::sight::Sight;
use crate::wire::{Names, Plain, Word};

/// The most listeners at once.
pub(crate) const MAX_LISTENERS: usize = 256;
/// The most events that wait for a listener who does not read.
const QUEUE: usize = 64;
/// How often a listener hears that there is nothing, so that connections that are dead end; and how often it is looked at
/// whether who listens may still do so.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The most changes that are told again to whoever comes back.
const MAX_REPLAY: i64 = 1000;
/// How many changes are read at once.
const AT_ONCE: usize = 100;

pub(crate) fn all() -> Vec<Operation> {
    vec![
        Operation::stream(
            "/v1/events",
            "listen",
            "Tells of changes, tasks, boots and devices that come and go, as server-sent events: change, task, boot, \
             presence, lost; and that the server is there: alive.",
            "text/event-stream",
            listen,
        ),
        Operation::stream(
            "/v1/boots/follow",
            "followBoots",
            "Tells each boot under way as a line of JSON, and again whenever it changes.",
            "application/x-ndjson",
            follow,
        ),
    ]
}

/// Who listens.
struct Listener {
    api: Arc<Api>,
    /// What they were let in by, to be looked at again; `None`: root on this server.
    shown: Option<(String, Origin)>,
    /// As they were looked at last.
    rights: Mutex<Rights>,
    sender: mpsc::Sender<Bytes>,
}

/// What somebody may hear of.
struct Rights {
    caller: Caller,
    /// Of devices, and so of their boots: as far as the farm has not changed since.
    sight: Sight,
}

impl Rights {
    fn of(caller: &Caller, control: &Control) -> Result<Self, ControlError> {
        Ok(Self { caller: caller.clone(), sight: Sight::of(caller, control)? })
    }

    /// What they see in the farm as it is now.
    fn sight(&mut self, control: &Control) -> &Sight {
        let snapshot = control.snapshot();
        if !self.sight.is_of(&snapshot) {
            self.sight = Sight::at(&self.caller, snapshot);
        }
        &self.sight
    }

    /// Whether they may hear of users, roles and tokens.
    fn people(&self) -> bool {
        self.caller.may(Action::See, ObjectKind::User, Place::Farm).is_ok()
    }
}

/// The listener is gone, or is to go.
struct Gone;

fn listener(asked: &Asked<'_>) -> Result<(Listener, mpsc::Receiver<Bytes>), Problem> {
    let rights = Mutex::new(Rights::of(asked.caller()?, asked.control())?);
    let identity = asked.who.as_ref().and_then(|who| who.identity.as_ref());
    let shown = identity.map(|(_, shown)| (shown.clone(), asked.origin.clone()));
    let (sender, receiver) = mpsc::channel(QUEUE);
    Ok((Listener { api: Arc::clone(asked.api), shown, rights, sender }, receiver))
}

/// An answer of what comes, as long as a place among the listeners is free.
fn answer(
    api: &Api,
    content_type: &'static str,
    receiver: mpsc::Receiver<Bytes>,
) -> Result<Response<HttpBody>, Problem> {
    let place = Arc::clone(&api.listeners).try_acquire_owned().map_err(|_| {
        let message = format!("{MAX_LISTENERS} listen already, and that is the most");
        Problem::new(StatusCode::TOO_MANY_REQUESTS, Code::Throttled.word(), message)
    })?;
    let body = HttpBody::new(Pieces { receiver, _place: place });
    let response = Response::builder().header(header::CONTENT_TYPE, content_type).body(body);
    response.map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal.word(), error.to_string())
    })
}

/// A body whose pieces come from elsewhere.
struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    _place: tokio::sync::OwnedSemaphorePermit,
}

impl BodyTrait for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// `GET /v1/boots/follow`.
fn follow(asked: &Asked<'_>) -> Result<Response<HttpBody>, Problem> {
    let (listener, receiver) = listener(asked)?;
    let response = answer(asked.api, "application/x-ndjson", receiver)?;
    tokio::spawn(async move {
        // Gone is how it ends.
        let _ = follow_boots(&listener).await;
    });
    Ok(response)
}

async fn follow_boots(listener: &Listener) -> Result<(), Gone> {
    let mut boots = listener.api.live.follow(Requests::UntilTheEnd);
    let mut stopping = listener.api.stopping.clone();
    listener.boots_under_way().await?;
    let mut look_again = every_heartbeat();
    while !*stopping.borrow_and_update() {
        let boot = tokio::select! {
            boot = boots.recv() => boot,
            () = listener.sender.closed() => return Err(Gone),
            _ = stopping.changed() => return Ok(()),
            _ = look_again.tick() => {
                listener.look_again().await?;
                continue;
            }
        };
        match boot {
            Some(Followed::Boot(boot)) => listener.line(&boot).await?,
            Some(Followed::Lost) => listener.boots_under_way().await?,
            None => return Ok(()),
        }
    }
    Ok(())
}

/// `GET /v1/events`.
fn listen(asked: &Asked<'_>) -> Result<Response<HttpBody>, Problem> {
    let last = match asked.headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default().trim()) {
        None | Some("") => None,
        Some(id) => Some(id.parse().map(ChangeNumber).map_err(|_| {
            Problem::bad_request("Last-Event-ID is none of ours: a number of a change").field("Last-Event-ID")
        })?),
    };
    let (listener, receiver) = listener(asked)?;
    // Before the present state is read: what changes between the two is heard twice rather than never.
    let notices = asked.control().changes();
    let latest = asked.control().catalogue().latest_change()?;
    let response = answer(asked.api, "text/event-stream", receiver)?;
    let from = last.filter(|last| (0..=latest.0).contains(&last.0)).unwrap_or(latest);
    tokio::spawn(async move {
        // Gone is how it ends.
        let _ = feed(&listener, notices, from, latest).await;
    });
    Ok(response)
}

async fn feed(
    listener: &Listener,
    mut notices: Notices,
    from: ChangeNumber,
    latest: ChangeNumber,
) -> Result<(), Gone> {
    let mut told = from;
    if latest.0.saturating_sub(from.0) > MAX_REPLAY {
        let lost = json!({ "after": from.0, "before": latest.0 });
        listener.send("lost", Some(latest), &lost).await?;
        told = latest;
    }
    listener.comment("listening").await?;
    listener.changes(&mut told).await?;
    let mut boots = listener.api.live.follow(Requests::UntilReady);
    let mut presences = listener.api.live.follow_presence();
    let (mut boots_go_on, mut presences_go_on) = (true, true);
    let mut stopping = listener.api.stopping.clone();
    let mut heartbeat = every_heartbeat();
    while !*stopping.borrow_and_update() {
        tokio::select! {
            () = listener.sender.closed() => return Err(Gone),
            _ = stopping.changed() => {}
            _ = heartbeat.tick() => {
                listener.look_again().await?;
                // As an event, since comments are kept from pages: one that hears nothing knows that it is cut off.
                listener.send("alive", None, &json!({})).await?;
            }
            boot = boots.recv(), if boots_go_on => match boot {
                Some(Followed::Boot(boot)) if listener.sees(|sight| sight.boot(&boot)) => {
                    listener.send("boot", None, &boot).await?;
                }
                Some(Followed::Boot(_)) => {}
                Some(Followed::Lost) => listener.send("lost", None, &json!({ "boots": true })).await?,
                None => boots_go_on = false,
            },
            change = presences.recv(), if presences_go_on => match change {
                Some(change) if listener.sees(|sight| sight.presence(&change)) => {
                    listener.send("presence", None, &json!(change)).await?;
                }
                Some(_) => {}
                None => presences_go_on = false,
            },
            notice = notices.recv() => match notice {
                Ok(Notice::Progress(task)) => listener.task(task).await?,
                // Behind the others there may be more than was said; all of it is in the catalogue.
                Ok(Notice::Changed(_)) | Err(RecvError::Lagged(_)) => listener.changes(&mut told).await?,
                Err(RecvError::Closed) => return Err(Gone),
            },
        }
    }
    Ok(())
}

/// Ticks from one heartbeat after now on.
fn every_heartbeat() -> Interval {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.reset();
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}

impl Listener {
    fn rights(&self) -> MutexGuard<'_, Rights> {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the listener sees something, as the farm is now.
    fn sees(&self, what: impl FnOnce(&Sight) -> bool) -> bool {
        what(self.rights().sight(&self.api.control))
    }

    async fn comment(&self, text: &str) -> Result<(), Gone> {
        self.sender.send(format!(": {text}\n\n").into()).await.map_err(|_| Gone)
    }

    async fn send(&self, event: &str, id: Option<ChangeNumber>, data: &Value) -> Result<(), Gone> {
        self.sender.send(event_text(event, id, data).into()).await.map_err(|_| Gone)
    }

    /// Tells the boots under way, each in a line.
    async fn boots_under_way(&self) -> Result<(), Gone> {
        for boot in self.waiting(|api| api.live.boots_under_way()).await? {
            self.line(&boot).await?;
        }
        Ok(())
    }

    /// Tells a boot that is seen, in a line.
    async fn line(&self, boot: &Value) -> Result<(), Gone> {
        if !self.sees(|sight| sight.boot(boot)) {
            return Ok(());
        }
        self.sender.send(format!("{boot}\n").into()).await.map_err(|_| Gone)
    }

    /// Tells all changes behind `told`.
    async fn changes(&self, told: &mut ChangeNumber) -> Result<(), Gone> {
        loop {
            let after = *told;
            let entries =
                self.waiting(move |api| api.control.read(|reader| Ok(reader.audit(&behind(after))?.items)));
            let entries = entries.await?;
            let more = entries.len() >= AT_ONCE;
            for entry in entries {
                *told = entry.number;
                let of_people =
                    matches!(entry.kind, ObjectKind::User | ObjectKind::Grant | ObjectKind::Token);
                let sees =
                    if of_people { self.rights().people() } else { self.sees(|sight| sight.change(&entry)) };
                if sees {
                    let number = entry.number;
                    self.send("change", Some(number), &change(&entry)).await?;
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Tells how far a task is. One that is gone meanwhile is told of as a change.
    async fn task(&self, task: TaskId) -> Result<(), Gone> {
        let told = self.waiting(move |api| {
            api.control.read(|reader| {
                let Some(task) = reader.find::<Task>(task)? else { return Ok(None) };
                tell::<Tasks>(&mut Names::default(), reader, &task).map(Some)
            })
        });
        match told.await? {
            Some(told) => self.send("task", None, &told).await,
            None => Ok(()),
        }
    }

    /// Looks again at who listens: whether they would still be let in, and what they may hear of from now on.
    async fn look_again(&self) -> Result<(), Gone> {
        let Some((shown, origin)) = self.shown.clone() else { return Ok(()) };
        let identity = self.waiting(move |api| api.people.identify(&api.control, &shown, &origin)).await?;
        let rights = identity.and_then(|identity| Rights::of(&identity.caller, &self.api.control).ok());
        let mut known = self.rights();
        let Some(rights) = rights else {
            tracing::info!(user = %known.caller.actor().user, "a listener may not listen any more");
            return Err(Gone);
        };
        *known = rights;
        Ok(())
    }

    /// What waits for the database, off the threads that drive connections. While it cannot be reached, nothing is told.
    async fn waiting<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Api) -> Result<R, ControlError> + Send + 'static,
    ) -> Result<R, Gone> {
        let api = Arc::clone(&self.api);
        let done = tokio::task::spawn_blocking(move || work(&api)).await;
        match done {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a listener is let go: it comes back for what it missed");
                Err(Gone)
            }
            Err(_) => Err(Gone),
        }
    }
}

fn behind(number: ChangeNumber) -> ListQuery {
    let compared = Some((Operator::Greater, number.0.to_string()));
    let filter = Filter::Term(Term { field: "number".to_owned(), compared });
    ListQuery { filter, order: Some("number".to_owned()), limit: AT_ONCE, ..ListQuery::default() }
}

/// A change without what it changed, which is for those who may read the audit.
fn change(entry: &AuditEntry) -> Value {
    json!({
        "number": entry.number.0,
        "at": Plain(entry.at),
        "actor": entry.actor.user.as_str(),
        "action": entry.action,
        "kind": Word(entry.kind),
        "object": entry.object,
        "name": entry.name,
    })
}

/// WHATWG HTML §9.2.5: fields in lines, an empty line behind the event. JSON has no line ends in it.
fn event_text(event: &str, id: Option<ChangeNumber>, data: &Value) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {event}\ndata: {data}\n\n")
}
