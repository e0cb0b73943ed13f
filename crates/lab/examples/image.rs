//! Builds or finds an image: `cargo run -p lab --example image -- micro|golden`.
fn main() -> anyhow::Result<()> {
    let image = match std::env::args().nth(1).as_deref() {
        Some("micro") => lab::micro::micro()?,
        Some("golden") => lab::golden::golden()?,
        _ => anyhow::bail!("which image: micro or golden?"),
    };
    println!("{}", image.vhdx.display());
    Ok(())
}
