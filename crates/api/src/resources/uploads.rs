//! Images that come into stores in parts, and can be gone on with after whatever happened.
use axum::http::StatusCode;
use control::{ControlError, upload};
use farm::model::{FileName, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked::Asked;
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Plain, find};

/// What a part is: bytes of the file.
const BYTES: &str = "application/octet-stream";

pub(super) fn all() -> Vec<Operation> {
    let path = |end: &str| format!("/v1/stores/{{store}}/uploads{end}");
    vec![
        Operation::post(
            path(""),
            "beginUpload",
            "stores",
            "Begins to upload an image into a store, or tells where to go on with it.",
            begin,
        )
        .takes::<BeginBody>()
        .gives::<UploadAnswer>(),
        Operation::post(
            path("/{file}/parts"),
            "appendUpload",
            "stores",
            "Takes the next part of an upload.",
            append,
        )
        .query(
            "offset",
            ParameterKind::Number(0, upload::MAX_UPLOAD_BYTES),
            "where in the file the part begins",
        )
        .query("sha256", ParameterKind::Text, "the part's SHA-256, in hexadecimal")
        .takes_text(BYTES, upload::MAX_PART_BYTES)
        .gives::<UploadAnswer>(),
        Operation::post(
            path("/{file}/finish"),
            "finishUpload",
            "stores",
            "Gives an upload that is all here its name in the store; it can be adopted then.",
            finish,
        )
        .takes::<FinishBody>(),
        Operation::post(
            path("/{file}/cancel"),
            "cancelUpload",
            "stores",
            "Removes what has come of an upload.",
            cancel,
        ),
    ]
}

/// Which file is to come.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BeginBody {
    /// The name that it is to have in the store: of a VHDX or VHD image.
    name: Plain<FileName>,
    /// Its length.
    length_bytes: u64,
}

/// How far an upload is.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Upload")]
struct UploadAnswer {
    /// The name that the file is to have.
    name: String,
    /// How many of its bytes are here, from its start: the next part begins there.
    here_bytes: u64,
    /// The most bytes of a part.
    part_bytes: u64,
}

/// What the file is to be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FinishBody {
    /// Its length.
    length_bytes: u64,
    /// Its SHA-256 in hexadecimal; null: that of the parts is enough.
    #[serde(default)]
    sha256: Option<String>,
}

/// The store and the file that the path names.
fn place(asked: &Asked<'_>) -> Result<(farm::model::StoreId, FileName), Problem> {
    let name = FileName::new(asked.parameter("file")?);
    Ok((store(asked)?, name.map_err(|bad| ControlError::bad_value("file", bad))?))
}

fn store(asked: &Asked<'_>) -> Result<farm::model::StoreId, Problem> {
    let wanted = asked.parameter("store")?;
    Ok(asked.control().read(|reader| find::<Store>(reader, wanted))?.id)
}

fn told(name: &FileName, here_bytes: u64) -> Result<Reply, Problem> {
    let part_bytes = upload::MAX_PART_BYTES as u64;
    Reply::json(&UploadAnswer { name: name.to_string(), here_bytes, part_bytes })
}

fn begin(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let BeginBody { name: Plain(name), length_bytes } = asked.body()?;
    let here = upload::begin(asked.control(), asked.caller()?, store(asked)?, &name, length_bytes)?;
    told(&name, here)
}

fn append(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (store, name) = place(asked)?;
    let missing = |name: &'static str| {
        let message = format!("{name} is missing behind the question mark");
        Problem::new(StatusCode::BAD_REQUEST, "bad-value", message).field(name)
    };
    let offset = asked.wanted("offset", "a number")?.ok_or_else(|| missing("offset"))?;
    let digest = asked.query.get("sha256").ok_or_else(|| missing("sha256"))?;
    let (control, caller, digest) = (asked.control(), asked.caller()?, digest_of(digest)?);
    let here = upload::append(control, caller, store, &name, offset, &asked.body, digest)?;
    told(&name, here)
}

fn finish(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let FinishBody { length_bytes, sha256 } = asked.body()?;
    let (store, name) = place(asked)?;
    let digest = sha256.as_deref().map(digest_of).transpose()?;
    upload::finish(asked.control(), asked.caller()?, store, &name, length_bytes, digest)?;
    Ok(Reply::nothing())
}

fn cancel(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (store, name) = place(asked)?;
    upload::cancel(asked.control(), asked.caller()?, store, &name)?;
    Ok(Reply::nothing())
}

/// A SHA-256 as it is written: 64 hexadecimal digits.
fn digest_of(text: &str) -> Result<[u8; 32], Problem> {
    let bad = || ControlError::bad_value("sha256", "a SHA-256 has 64 hexadecimal digits");
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() == 64).ok_or_else(bad)?;
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    }
    Ok(digest)
}
