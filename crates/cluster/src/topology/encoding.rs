//! A topology as bytes, as the coordinator keeps it.
//!
//! ```text
//!   magic 8 | format 4 | body bytes 4 | checksum 8 | body
//! body
//!   cluster 8 | version 8 | members 4 | groups 4 | runs 4 | 0 4
//!   each member   id 8 | incarnation 8 | group 4 | state 1 | fabric bytes 1 | resp bytes 1 | 0 1
//!                 | fabric address | resp address
//!   each group    epoch 8 | primary 8 | its incarnation 8 | id 4 | in sync 2 | min replicas 1
//!                 | name bytes 1 | name | in sync times (member 8 | incarnation 8)
//!   each run      group 4 | first 2 | slots 2
//! ```
//! Little endian. A primary of 0 is none. The checksum is the XXH3 of the body, with the format as its
//! seed.
//!
//! Invariant: each valid topology has one encoding, and what decodes is valid.

use super::{Group, GroupId, Instance, Invalid, Member, MemberId, MemberState, SlotRun, Topology};
use remora_layout::hash;
use remora_layout::limits::{
    MAX_GROUP_NAME_BYTES, MAX_GROUPS, MAX_MEMBER_ADDRESS_BYTES, MAX_MEMBERS, MAX_TOPOLOGY_BYTES,
};
use remora_layout::slot::SLOTS;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"remoraTP";
/// The format that this program writes and reads.
const FORMAT: u32 = 1;

/// Why bytes are not a topology.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// They do not begin as a topology does.
    #[error("these bytes are not the topology of a cluster")]
    NoTopology,
    /// Another program has written them.
    #[error("the topology has format {0}, and this program reads format {FORMAT}: update it")]
    OtherFormat(u32),
    /// They are longer or shorter than they say.
    #[error("the topology has {0} bytes, which is not what it says of itself")]
    Length(usize),
    /// They were damaged.
    #[error("the checksum of the topology is wrong")]
    Checksum,
    /// A field has a value that it cannot have.
    #[error("a field of the topology has an unknown value")]
    Field,
    /// An invariant does not hold.
    #[error("the topology is not valid: {0}")]
    Invalid(#[from] Invalid),
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    format: U32,
    body_bytes: U32,
    checksum: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Counts {
    cluster: U64,
    version: U64,
    members: U32,
    groups: U32,
    runs: U32,
    zero: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MemberHead {
    id: U64,
    incarnation: U64,
    group: U32,
    state: u8,
    fabric_bytes: u8,
    resp_bytes: u8,
    zero: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct GroupHead {
    epoch: U64,
    primary: InstanceBytes,
    id: U32,
    in_sync: U16,
    min_replicas: u8,
    name_bytes: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct InstanceBytes {
    member: U64,
    incarnation: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RunBytes {
    group: U32,
    first: U16,
    slots: U16,
}

const HEAD_BYTES: usize = size_of::<Head>();
const _: () = assert!(HEAD_BYTES == 24 && size_of::<Counts>() == 32);
const _: () = assert!(size_of::<MemberHead>() == 24 && size_of::<GroupHead>() == 32);
const _: () = assert!(size_of::<InstanceBytes>() == 16 && size_of::<RunBytes>() == 8);
const _: () = assert!(MAX_MEMBER_ADDRESS_BYTES < 256 && MAX_GROUP_NAME_BYTES < 256);
/// Each topology within the bounds fits: a member is in one in-sync set at most.
const _: () = assert!(
    HEAD_BYTES
        + size_of::<Counts>()
        + MAX_MEMBERS * (size_of::<MemberHead>() + 2 * MAX_MEMBER_ADDRESS_BYTES)
        + MAX_MEMBERS * size_of::<InstanceBytes>()
        + MAX_GROUPS * (size_of::<GroupHead>() + MAX_GROUP_NAME_BYTES)
        + SLOTS * size_of::<RunBytes>()
        <= MAX_TOPOLOGY_BYTES
);

impl Topology {
    /// As bytes, at most [`MAX_TOPOLOGY_BYTES`].
    ///
    /// # Panics
    /// If the topology is not valid: changes make valid ones only.
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.validate(), Ok(()), "a change makes a valid topology");
        let mut bytes = vec![0; HEAD_BYTES];
        let counts = Counts {
            cluster: self.cluster.into(),
            version: self.version.into(),
            members: (self.members.len() as u32).into(),
            groups: (self.groups.len() as u32).into(),
            runs: (self.slots.len() as u32).into(),
            zero: 0.into(),
        };
        bytes.extend_from_slice(counts.as_bytes());
        self.members.iter().for_each(|of| encode_member(of, &mut bytes));
        self.groups.iter().for_each(|of| encode_group(of, &mut bytes));
        for run in &self.slots {
            let run = RunBytes {
                group: run.group.0.into(),
                first: run.first.into(),
                slots: run.slots.into(),
            };
            bytes.extend_from_slice(run.as_bytes());
        }
        let body = &bytes[HEAD_BYTES..];
        let head = Head {
            magic: MAGIC,
            format: FORMAT.into(),
            body_bytes: (body.len() as u32).into(),
            checksum: hash::checksum(body, FORMAT.into()).into(),
        };
        bytes[..HEAD_BYTES].copy_from_slice(head.as_bytes());
        bytes
    }

    /// The topology that was encoded so.
    ///
    /// # Errors
    /// [`DecodeError`]; whatever the bytes are, nothing panics, and no more memory is taken than
    /// some times their length.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (head, body) = Head::ref_from_prefix(bytes).map_err(|_| DecodeError::NoTopology)?;
        if head.magic != MAGIC {
            return Err(DecodeError::NoTopology);
        }
        if head.format != FORMAT {
            return Err(DecodeError::OtherFormat(head.format.get()));
        }
        if body.len() != head.body_bytes.get() as usize || bytes.len() > MAX_TOPOLOGY_BYTES {
            return Err(DecodeError::Length(bytes.len()));
        }
        if hash::checksum(body, FORMAT.into()) != head.checksum.get() {
            return Err(DecodeError::Checksum);
        }
        let short = DecodeError::Length(bytes.len());
        let mut rest = body;
        let topology = decode_body(&mut rest, &short)?;
        if !rest.is_empty() {
            return Err(short);
        }
        topology.validate()?;
        Ok(topology)
    }
}

fn encode_member(member: &Member, bytes: &mut Vec<u8>) {
    let head = MemberHead {
        id: member.id.0.into(),
        incarnation: member.incarnation.into(),
        group: member.group.0.into(),
        state: state_number(member.state),
        fabric_bytes: member.fabric_address.len() as u8,
        resp_bytes: member.resp_address.len() as u8,
        zero: 0,
    };
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(member.fabric_address.as_bytes());
    bytes.extend_from_slice(member.resp_address.as_bytes());
}

fn encode_group(group: &Group, bytes: &mut Vec<u8>) {
    let none = Instance { member: MemberId(0), incarnation: 0 };
    let head = GroupHead {
        epoch: group.epoch.into(),
        primary: instance_bytes(group.primary.unwrap_or(none)),
        id: group.id.0.into(),
        in_sync: (group.in_sync.len() as u16).into(),
        min_replicas: group.min_replicas,
        name_bytes: group.name.len() as u8,
    };
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(group.name.as_bytes());
    for of in &group.in_sync {
        bytes.extend_from_slice(instance_bytes(*of).as_bytes());
    }
}

fn instance_bytes(of: Instance) -> InstanceBytes {
    InstanceBytes { member: of.member.0.into(), incarnation: of.incarnation.into() }
}

fn state_number(state: MemberState) -> u8 {
    match state {
        MemberState::Joining => 1,
        MemberState::Serving => 2,
        MemberState::Draining => 3,
        MemberState::Replaced => 4,
    }
}

fn state_of(number: u8) -> Option<MemberState> {
    use MemberState::{Draining, Joining, Replaced, Serving};
    [Joining, Serving, Draining, Replaced].into_iter().find(|of| state_number(*of) == number)
}

/// What comes behind the head. `short`: there are fewer bytes than it takes.
fn decode_body(rest: &mut &[u8], short: &DecodeError) -> Result<Topology, DecodeError> {
    let counts: &Counts = take(rest, short)?;
    let mut topology = Topology {
        cluster: counts.cluster.get(),
        version: counts.version.get(),
        members: Vec::new(),
        groups: Vec::new(),
        slots: Vec::new(),
    };
    if counts.zero != 0 {
        return Err(DecodeError::Field);
    }
    for _ in 0..counts.members.get() {
        topology.members.push(decode_member(rest, short)?);
    }
    for _ in 0..counts.groups.get() {
        topology.groups.push(decode_group(rest, short)?);
    }
    for _ in 0..counts.runs.get() {
        let run: &RunBytes = take(rest, short)?;
        let group = GroupId(run.group.get());
        topology.slots.push(SlotRun { first: run.first.get(), slots: run.slots.get(), group });
    }
    Ok(topology)
}

fn decode_member(rest: &mut &[u8], short: &DecodeError) -> Result<Member, DecodeError> {
    let head: &MemberHead = take(rest, short)?;
    if head.zero != 0 {
        return Err(DecodeError::Field);
    }
    Ok(Member {
        id: MemberId(head.id.get()),
        incarnation: head.incarnation.get(),
        group: GroupId(head.group.get()),
        state: state_of(head.state).ok_or(DecodeError::Field)?,
        fabric_address: take_text(rest, head.fabric_bytes, short)?,
        resp_address: take_text(rest, head.resp_bytes, short)?,
    })
}

fn decode_group(rest: &mut &[u8], short: &DecodeError) -> Result<Group, DecodeError> {
    let head: &GroupHead = take(rest, short)?;
    let name = take_text(rest, head.name_bytes, short)?;
    let mut in_sync = Vec::new();
    for _ in 0..head.in_sync.get() {
        in_sync.push(decode_instance(take(rest, short)?));
    }
    let primary = decode_instance(&head.primary);
    let is_none = primary.member.0 == 0;
    if is_none && primary.incarnation != 0 {
        return Err(DecodeError::Field);
    }
    Ok(Group {
        id: GroupId(head.id.get()),
        name,
        epoch: head.epoch.get(),
        primary: (!is_none).then_some(primary),
        in_sync,
        min_replicas: head.min_replicas,
    })
}

fn decode_instance(bytes: &InstanceBytes) -> Instance {
    Instance { member: MemberId(bytes.member.get()), incarnation: bytes.incarnation.get() }
}

/// The next part. `short` if fewer bytes are left.
fn take<'a, T: FromBytes + KnownLayout + Immutable + Unaligned>(
    rest: &mut &'a [u8],
    short: &DecodeError,
) -> Result<&'a T, DecodeError> {
    let (part, behind) = T::ref_from_prefix(rest).map_err(|_| short.clone())?;
    *rest = behind;
    Ok(part)
}

fn take_text(rest: &mut &[u8], bytes: u8, short: &DecodeError) -> Result<String, DecodeError> {
    let (text, behind) = rest.split_at_checked(bytes.into()).ok_or_else(|| short.clone())?;
    *rest = behind;
    String::from_utf8(text.to_vec()).map_err(|_| DecodeError::Field)
}
