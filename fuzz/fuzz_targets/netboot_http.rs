//! Requests to the boot services over HTTP, a line each: method, target and range, parts of them from a stranger. Whatever
//! is asked, the answer has one of the statuses that there are, and a script has no line but its own.
#![no_main]
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use libfuzzer_sys::fuzz_target;
use netboot::boot_files::BootFiles;
use netboot::director::{BootPlan, BootStep, DhcpClient, DhcpDecision, Director, MacAddress, ScriptRequest};
use netboot::http::{Services, router};
use tower::ServiceExt as _;

/// Refuses every machine, with what it said about itself.
struct Refuse;

impl Director for Refuse {
    fn dhcp(&self, _: &DhcpClient) -> DhcpDecision {
        DhcpDecision::Ignore
    }

    fn plan(&self, request: &ScriptRequest) -> BootPlan {
        BootPlan::Refuse(format!("{:?} {:?}", request.platform, request.uuid))
    }

    fn step(&self, _: MacAddress, _: BootStep) {}
}

static ROUTER: LazyLock<Router> = LazyLock::new(|| {
    let files = BootFiles::from_memory([("ipxe.efi".to_owned(), vec![7; 1000].into())]);
    router(Services { files: Arc::new(files), neighbours: Arc::default(), director: Arc::new(Refuse) })
});

/// The lines of a refusal's script.
const REFUSAL_LINES: usize = 5;

fuzz_target!(|input: &[u8]| {
    for line in input.split(|byte| *byte == b'\n').take(8) {
        let mut parts = line.split(|byte| *byte == b'\t');
        let mut part = || parts.next().unwrap_or_default();
        let request = Request::builder().method(part()).uri(part()).header("range", part());
        let Ok(mut request) = request.body(Body::empty()) else { continue };
        let is_script = request.uri().path() == "/v1/boot/script";
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((IpAddr::V4(Ipv4Addr::LOCALHOST), 1))));
        let mut answer = std::pin::pin!(ROUTER.clone().oneshot(request));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(response)) = answer.as_mut().poll(&mut context) else { panic!("no answer") };
        let status = response.status();
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR);
        if is_script && status == StatusCode::OK {
            let mut body = std::pin::pin!(axum::body::to_bytes(response.into_body(), 4096));
            let Poll::Ready(Ok(script)) = body.as_mut().poll(&mut context) else { panic!("no script") };
            let lines = script.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
            assert!(lines <= REFUSAL_LINES, "{lines} lines");
            assert!(script.iter().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\n')));
        }
    }
});
