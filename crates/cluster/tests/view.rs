//! What is delivered of what was read, whatever order servers give it in.

use remora_cluster::coordinator::{Event, Standing, Term};
use remora_cluster::topology::{DecodeError, GroupId, Instance, MemberId, Topology};
use remora_cluster::view::View;
use std::sync::Arc;

fn version(version: u64) -> Topology {
    let mut topology = Topology::new(1, vec![(GroupId(1), "a".into(), 1)]).expect("valid");
    topology.version = version;
    topology
}

fn read(view: &mut View, topology: &Topology) -> Option<Event> {
    view.read_topology(Some(&topology.encode()))
}

fn delivered(topology: Topology) -> Option<Event> {
    Some(Event::Topology(Arc::new(topology)))
}

#[test]
fn the_version_never_falls() {
    let mut view = View::default();
    assert_eq!(view.read_topology(None), Some(Event::NoTopology));
    assert_eq!(read(&mut view, &version(3)), delivered(version(3)));
    assert_eq!(read(&mut view, &version(3)), None);
    assert_eq!(read(&mut view, &version(2)), None);
    assert_eq!(view.read_topology(None), None);
    assert_eq!(read(&mut view, &version(5)), delivered(version(5)));
    // Behind a gap the newest that is known comes again, whatever the server has.
    view.connected();
    assert_eq!(read(&mut view, &version(4)), delivered(version(5)));
    assert_eq!(read(&mut view, &version(4)), None);
    view.connected();
    assert_eq!(view.read_topology(None), delivered(version(5)));
    assert_eq!(view.topology().map(|of| of.version), Some(5));
}

#[test]
fn what_cannot_be_read_is_told_and_changes_nothing() {
    let mut view = View::default();
    assert_eq!(read(&mut view, &version(3)), delivered(version(3)));
    let mut bytes = version(4).encode();
    bytes[8] = 7;
    let told = view.read_topology(Some(&bytes));
    assert_eq!(told, Some(Event::UnreadableTopology(DecodeError::OtherFormat(7))));
    assert_eq!(view.topology().map(|of| of.version), Some(3));
    assert_eq!(read(&mut view, &version(5)), delivered(version(5)));
}

#[test]
fn members_and_standing_come_when_they_change_and_anew_behind_a_gap() {
    let [a, b] = [1, 2].map(|of| Instance { member: MemberId(of), incarnation: 1 });
    let mut view = View::default();
    for _ in 0..2 {
        view.connected();
        assert_eq!(view.read_members(vec![b, a]), Some(Event::Members(vec![a, b])));
        assert_eq!(view.read_members(vec![a, b]), None);
        assert_eq!(view.read_members(vec![b]), Some(Event::Members(vec![b])));
        let leads = Standing::Leads(Term(4));
        assert_eq!(view.read_standing(leads), Some(Event::Standing(leads)));
        assert_eq!(view.read_standing(leads), None);
    }
}
