//! OP_MSG: a command or a reply, in sections.
//!
//! ```text
//! | header | flags u32 | section ... | CRC-32C u32, if flag 0 is set |
//! section:  | 0 | document |
//!           | 1 | size i32 | name, with zero byte | document ... |     size from itself on
//! ```

use super::error::{Fatal, Refusal};
use super::header::HEADER_BYTES;
use crate::limits::{MAX_BODY_DEPTH, MAX_DEPTH, MAX_SEQUENCES, MAX_WRITE_BATCH};
use crate::validate::split_document;
use bson::RawDocument;

/// The kind of the section that is the command's document.
pub(crate) const SECTION_BODY: u8 = 0;
/// The kind of a section with a document sequence.
const SECTION_SEQUENCE: u8 = 1;
/// Bytes of the checksum.
pub(crate) const CHECKSUM_BYTES: usize = 4;
const FLAGS_BYTES: usize = 4;
const SIZE_BYTES: usize = 4;

/// The flags of an OP_MSG.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MsgFlags(u32);

impl MsgFlags {
    /// A CRC-32C ends the message.
    pub const CHECKSUM_PRESENT: u32 = 1;
    /// The sender sends another message and expects no reply to this one.
    pub const MORE_TO_COME: u32 = 1 << 1;
    /// The client takes several replies to this message. A server may still send one.
    pub const EXHAUST_ALLOWED: u32 = 1 << 16;
    /// The lower bits, of which a receiver must know all that are set.
    const REQUIRED: u32 = 0xffff;

    fn read(bits: u32) -> Result<Self, Fatal> {
        let unknown = bits & Self::REQUIRED & !(Self::CHECKSUM_PRESENT | Self::MORE_TO_COME);
        if unknown != 0 {
            return Err(Fatal::Flags(unknown));
        }
        Ok(Self(bits))
    }

    /// See [`MsgFlags::CHECKSUM_PRESENT`].
    pub fn checksum_present(self) -> bool {
        self.0 & Self::CHECKSUM_PRESENT != 0
    }

    /// See [`MsgFlags::MORE_TO_COME`].
    pub fn more_to_come(self) -> bool {
        self.0 & Self::MORE_TO_COME != 0
    }

    /// See [`MsgFlags::EXHAUST_ALLOWED`].
    pub fn exhaust_allowed(self) -> bool {
        self.0 & Self::EXHAUST_ALLOWED != 0
    }

    /// All 32 bits.
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// A command. All of its documents are valid.
#[derive(Clone, Copy, Debug)]
pub struct OpMsg<'a> {
    /// The flags.
    pub flags: MsgFlags,
    /// The command's document.
    pub body: &'a RawDocument,
    /// Its document sequences, in the order of the message.
    pub sequences: Sequences<'a>,
}

/// Why sections are not a message.
pub(super) enum Wrong {
    Fatal(Fatal),
    Refused(Refusal),
}

impl From<Refusal> for Wrong {
    fn from(reason: Refusal) -> Self {
        Self::Refused(reason)
    }
}

/// Checks flags and checksum of a whole message, and returns its flags and sections.
pub(super) fn check_envelope(bytes: &[u8]) -> Result<(MsgFlags, &[u8]), Fatal> {
    let Some((bits, sections)) = bytes[HEADER_BYTES..].split_first_chunk::<FLAGS_BYTES>() else {
        return Err(Fatal::Truncated);
    };
    let flags = MsgFlags::read(u32::from_le_bytes(*bits))?;
    if !flags.checksum_present() {
        return Ok((flags, sections));
    }
    let Some((sections, declared)) = sections.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(Fatal::Truncated);
    };
    let declared = u32::from_le_bytes(*declared);
    let found = crc32c::crc32c(&bytes[..bytes.len() - CHECKSUM_BYTES]);
    if declared != found {
        return Err(Fatal::Checksum { declared, found });
    }
    Ok((flags, sections))
}

impl<'a> OpMsg<'a> {
    /// Reads and checks all sections.
    pub(super) fn read(flags: MsgFlags, sections: &'a [u8]) -> Result<Self, Wrong> {
        let mut body = None;
        let mut bodies = 0;
        let mut sequences = 0;
        let mut rest = sections;
        while let Some((&kind, section)) = rest.split_first() {
            rest = match kind {
                SECTION_BODY => {
                    let (document, rest) =
                        split_document(section, MAX_BODY_DEPTH).map_err(Refusal::Document)?;
                    body = Some(document);
                    bodies += 1;
                    if bodies > 1 {
                        return Err(Refusal::Bodies(bodies).into());
                    }
                    rest
                }
                SECTION_SEQUENCE => {
                    sequences += 1;
                    if sequences > MAX_SEQUENCES {
                        return Err(Wrong::Fatal(Fatal::TooManySequences));
                    }
                    let (sequence, rest) = Sequence::split(section)?;
                    sequence.check()?;
                    rest
                }
                kind => return Err(Refusal::SectionKind(kind).into()),
            };
        }
        let body = body.ok_or(Refusal::Bodies(0))?;
        Ok(Self { flags, body, sequences: Sequences { sections } })
    }
}

/// The document sequences of a message: an iterator over its sections, which are valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequences<'a> {
    sections: &'a [u8],
}

impl<'a> Iterator for Sequences<'a> {
    type Item = Sequence<'a>;

    fn next(&mut self) -> Option<Sequence<'a>> {
        loop {
            let (&kind, section) = self.sections.split_first()?;
            if kind == SECTION_SEQUENCE {
                let (sequence, rest) = Sequence::split(section).ok()?;
                self.sections = rest;
                return Some(sequence);
            }
            self.sections = split_length(section)?.1;
        }
    }
}

/// Documents that stand beside a command's body, under a name. They are as an array field of the
/// body.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// The name of the field, such as `documents`.
    pub name: &'a str,
    documents: &'a [u8],
}

impl<'a> Sequence<'a> {
    /// Reads the sequence at the start of `section`, but not its documents.
    fn split(section: &'a [u8]) -> Result<(Self, &'a [u8]), Refusal> {
        let Some(size) = section.first_chunk::<SIZE_BYTES>() else {
            return Err(Refusal::SequenceSize(0));
        };
        let size = i32::from_le_bytes(*size);
        let fits = usize::try_from(size).ok().and_then(|bytes| section.split_at_checked(bytes));
        let Some((sequence, rest)) = fits else { return Err(Refusal::SequenceSize(size)) };
        let Some(sequence) = sequence.get(SIZE_BYTES..) else {
            return Err(Refusal::SequenceSize(size));
        };
        let end = sequence.iter().position(|&byte| byte == 0).ok_or(Refusal::SequenceName)?;
        let name = std::str::from_utf8(&sequence[..end]).map_err(|_| Refusal::SequenceName)?;
        Ok((Self { name, documents: &sequence[end + 1..] }, rest))
    }

    fn check(&self) -> Result<(), Refusal> {
        let mut rest = self.documents;
        let mut count = 0;
        while !rest.is_empty() {
            count += 1;
            if count > MAX_WRITE_BATCH {
                return Err(Refusal::TooManyDocuments);
            }
            (_, rest) = split_document(rest, MAX_DEPTH)?;
        }
        Ok(())
    }

    /// The documents.
    pub fn documents(&self) -> SequenceDocuments<'a> {
        SequenceDocuments { rest: self.documents }
    }
}

/// The documents of a sequence, which are valid.
#[derive(Clone, Debug)]
pub struct SequenceDocuments<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for SequenceDocuments<'a> {
    type Item = &'a RawDocument;

    fn next(&mut self) -> Option<&'a RawDocument> {
        let (document, rest) = split_length(self.rest)?;
        self.rest = rest;
        RawDocument::from_bytes(document).ok()
    }
}

/// The valid document at the start of `bytes`, and what follows it.
fn split_length(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = i32::from_le_bytes(*bytes.first_chunk()?);
    bytes.split_at_checked(usize::try_from(length).ok()?)
}
