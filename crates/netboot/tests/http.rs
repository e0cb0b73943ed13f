//! The HTTP routes, over a real connection on the loopback interface.
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use netboot::boot_files::BootFiles;
use netboot::director::{
    BootPlan, BootStep, DhcpClient, DhcpDecision, Director, MacAddress, SanBoot, ScriptRequest,
};
use netboot::http::{Services, router};
use netboot::neighbours::Neighbours;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0x78, 0, 0x10]);

#[derive(Default)]
struct Recorder {
    requests: Mutex<Vec<ScriptRequest>>,
    steps: Mutex<Vec<(MacAddress, BootStep)>>,
}

impl Director for Recorder {
    fn dhcp(&self, _: &DhcpClient) -> DhcpDecision {
        DhcpDecision::Ignore
    }

    fn plan(&self, request: &ScriptRequest) -> BootPlan {
        self.requests.lock().unwrap().push(request.clone());
        if request.mac != MAC {
            return BootPlan::Refuse("unknown device".to_owned());
        }
        BootPlan::San(SanBoot {
            portal: SocketAddr::new(request.local, 3260),
            target: "iqn.2026-01.io.headwater:t".to_owned(),
            lun: 1,
            initiator: "iqn.2026-01.io.headwater:i".to_owned(),
            chap: None,
            mutual_chap: None,
            title: "lab".to_owned(),
        })
    }

    fn step(&self, mac: MacAddress, step: BootStep) {
        self.steps.lock().unwrap().push((mac, step));
    }
}

struct Site {
    address: SocketAddr,
    recorder: Arc<Recorder>,
    file: Bytes,
}

async fn site() -> Site {
    let recorder = Arc::new(Recorder::default());
    let file = Bytes::from((0..1_000_000_u32).map(|n| ((n * 7) >> 3) as u8).collect::<Vec<u8>>());
    let neighbours = Neighbours::default();
    neighbours.learn(Ipv4Addr::LOCALHOST, MAC);
    let services = Services {
        files: Arc::new(BootFiles::from_memory([("ipxe.efi".to_owned(), file.clone())])),
        neighbours: Arc::new(neighbours),
        director: Arc::clone(&recorder) as Arc<dyn Director>,
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = router(services).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Site { address, recorder, file }
}

impl Site {
    /// Sends a request; returns the head, in lower case, and the body.
    async fn ask(&self, request: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = request.replace('\n', "\r\n");
        let request = format!("{request}\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let body = answer.split_off(head + 4);
        (String::from_utf8(answer).unwrap().to_lowercase(), body)
    }
}

#[tokio::test]
async fn script_of_a_known_machine_boots_it_from_the_address_that_it_reached() {
    let site = site().await;
    let query = "mac=52:54:00:78:00:10&platform=efi&uuid=00112233-4455-6677-8899-aabbccddeeff";
    let (head, body) = site.ask(&format!("GET /v1/boot/script?{query} HTTP/1.1")).await;
    assert!(head.starts_with("http/1.1 200") && head.contains("cache-control: no-store"), "{head}");
    let script = String::from_utf8(body).unwrap();
    assert!(script.contains("iscsi:127.0.0.1::3260:1:iqn.2026-01.io.headwater:t"), "{script}");
    let requests = site.recorder.requests.lock().unwrap();
    assert_eq!((requests[0].mac, requests[0].platform.as_deref()), (MAC, Some("uefi")));
    assert_eq!(requests[0].uuid.as_deref(), Some("00112233-4455-6677-8899-aabbccddeeff"));
    assert_eq!(site.recorder.steps.lock().unwrap()[..], [(MAC, BootStep::Script)]);
}

#[tokio::test]
async fn refused_machine_gets_a_script_that_says_why() {
    let site = site().await;
    let (head, body) = site.ask("GET /v1/boot/script?mac=02-00-00-00-00-99 HTTP/1.1").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("echo Headwater: unknown device"));
}

#[tokio::test]
async fn ipxe_without_our_url_is_told_to_ask_again_with_its_settings() {
    let site = site().await;
    let (_, body) = site.ask("GET /v1/boot/script HTTP/1.1").await;
    let script = String::from_utf8(body).unwrap();
    assert!(
        script.contains("chain --replace /v1/boot/script?mac=${netX/mac:hexhyp}&platform=${platform}"),
        "{script}"
    );
    assert!(site.recorder.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn hostile_queries_reach_nobody() {
    let site = site().await;
    for mac in ["", "x", "52:54:00:78:00:1", "52:54:00:78:00:10%0Areboot", &"5".repeat(5000)] {
        let (head, _) = site.ask(&format!("GET /v1/boot/script?mac={mac} HTTP/1.1")).await;
        assert!(head.starts_with("http/1.1 400"), "{mac}: {head}");
    }
    let query = "mac=525400780010&platform=$%7Bpassword%7D&uuid=%0Areboot";
    site.ask(&format!("GET /v1/boot/script?{query} HTTP/1.1")).await;
    let requests = site.recorder.requests.lock().unwrap();
    assert_eq!(requests.len(), 1);
    assert_eq!((&requests[0].platform, &requests[0].uuid), (&None, &None));
}

#[tokio::test]
async fn boot_file_has_its_length_and_ranges() {
    let site = site().await;
    let (head, body) = site.ask("HEAD /boot/ipxe.efi HTTP/1.1").await;
    assert!(head.contains("content-length: 1000000") && head.contains("accept-ranges: bytes"), "{head}");
    assert!(body.is_empty());
    let (head, body) = site.ask("GET /boot/ipxe.efi HTTP/1.1\nRange: bytes=999000-").await;
    assert!(head.starts_with("http/1.1 206"), "{head}");
    assert!(head.contains("content-range: bytes 999000-999999/1000000"), "{head}");
    assert_eq!(body, site.file[999_000..]);
    let (head, _) = site.ask("GET /boot/ipxe.efi HTTP/1.1\nRange: bytes=1000000-").await;
    assert!(head.starts_with("http/1.1 416") && head.contains("content-range: bytes */1000000"), "{head}");
    assert!(site.recorder.steps.lock().unwrap().is_empty(), "nothing went out whole");
}

#[tokio::test]
async fn whole_boot_file_is_reported_with_its_machine() {
    let site = site().await;
    let (head, body) = site.ask("GET /boot/ipxe.efi HTTP/1.1").await;
    assert!(head.contains("content-length: 1000000"), "{head}");
    assert!(body == site.file);
    // The report comes when the server lets go of the last bytes, which may be after we have them.
    let reported = async {
        loop {
            if let Some((mac, step)) = site.recorder.steps.lock().unwrap().first().cloned() {
                return (mac, step);
            }
            tokio::task::yield_now().await;
        }
    };
    let (mac, step) = tokio::time::timeout(Duration::from_secs(10), reported).await.unwrap();
    let BootStep::BootFile { name, protocol, size_bytes, .. } = step else { panic!("{step:?}") };
    assert_eq!((mac, name.as_str(), protocol, size_bytes), (MAC, "ipxe.efi", "http", 1_000_000));
}

#[tokio::test]
async fn files_that_are_none_are_not_found() {
    let site = site().await;
    for path in
        ["/boot/other", "/boot/..%2Fipxe.efi", "/boot/%2e%2e/%2e%2e/etc/passwd", "/boot/", "/boot/a%0Ab"]
    {
        let (head, _) = site.ask(&format!("GET {path} HTTP/1.1")).await;
        assert!(head.starts_with("http/1.1 404"), "{path}: {head}");
    }
}
