//! Our initiator against our target.
mod common;

use std::time::Duration;

use common::{Lab, Rules, TARGET, memory};
use iscsi::initiator::{Command, Initiator, InitiatorError, Wish};

fn wish(target: &str) -> Wish {
    Wish {
        initiator: "iqn.2026-01.lab:replay".to_owned(),
        target: target.to_owned(),
        lun: 1,
        number: 7,
        patience: Duration::from_secs(20),
    }
}

fn call(initiator: &mut Initiator, command: &Command<'_>) -> u8 {
    let tag = initiator.submit(command).unwrap();
    let answer = initiator.receive().unwrap();
    assert_eq!(answer.tag, tag);
    answer.status
}

#[test]
fn commands_of_every_kind_are_answered_and_data_arrives_where_it_belongs() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut initiator = Initiator::connect(lab.address(), &wish(TARGET)).unwrap();
    assert_eq!((initiator.block_bytes(), initiator.size_bytes()), (512, 4 << 20));
    // Longer than one burst and many segments: R2Ts ask for it in parts.
    let data: Vec<u8> = (0..3_u32 << 18).flat_map(u32::to_le_bytes).take(3 << 20).collect();
    assert_eq!(call(&mut initiator, &Command::Write { lba: 8, data: &data }), 0);
    assert_eq!(call(&mut initiator, &Command::Flush), 0);
    let mut reader = common::initiator::Initiator::login(lab.address(), "iqn.2026-01.lab:reader", 1).unwrap();
    assert_eq!(reader.read(8 + 4096, 2).unwrap(), data[4096 * 512..4098 * 512]);
    assert_eq!(call(&mut initiator, &Command::Unmap { lba: 8, blocks: 8 }), 0);
    assert_eq!(reader.read(8, 1).unwrap(), [0; 512]);
    assert_eq!(call(&mut initiator, &Command::Read { lba: 0, blocks: 4096 }), 0);
    assert_ne!(call(&mut initiator, &Command::Read { lba: 8192, blocks: 1 }), 0, "past the end");
}

#[test]
fn many_commands_in_flight_are_all_answered_within_the_targets_window() {
    let lab = Lab::serve(memory(4), Rules::default());
    let mut initiator = Initiator::connect(lab.address(), &wish(TARGET)).unwrap();
    let (mut sent, mut answered) = (0, 0);
    while answered < 1000 {
        while sent < 1000 && initiator.has_room() {
            initiator.submit(&Command::Read { lba: sent % 8000, blocks: 16 }).unwrap();
            sent += 1;
        }
        assert_eq!(initiator.receive().unwrap().status, 0);
        answered += 1;
    }
}

#[test]
fn refusals_say_why() {
    let rules = Rules { chap: Some(("user", "a long secret")), ..Rules::default() };
    let lab = Lab::serve(memory(4), rules);
    let error = Initiator::connect(lab.address(), &wish(TARGET)).unwrap_err();
    assert!(matches!(error, InitiatorError::Refused(0x0201)), "{error}");
    assert!(error.to_string().contains("CHAP"), "{error}");
    let lab = Lab::serve(memory(4), Rules::default());
    let error = Initiator::connect(lab.address(), &wish("iqn.2026-01.lab:none")).unwrap_err();
    assert!(matches!(error, InitiatorError::Refused(_)), "{error}");
}
