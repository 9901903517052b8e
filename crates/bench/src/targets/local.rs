//! A map of this process: the cost of a lookup without sharing. Any number of threads only read it.

use super::target::{Request, Target};
use crate::costs::Costs;
use crate::records::Records;
use anyhow::{Context, bail};
use std::collections::HashMap;

/// Bytes of the keys that the map takes.
pub const KEY_BYTES: usize = 16;
/// Bytes of the values that the map takes.
pub const VALUE_BYTES: usize = 32;

/// The standard map with its standard hasher.
pub type LocalMap = HashMap<[u8; KEY_BYTES], Box<[u8; VALUE_BYTES]>>;

/// A thread's view of the map.
#[derive(Debug)]
pub struct LocalTarget<'m>(&'m LocalMap);

impl<'m> LocalTarget<'m> {
    /// Looks up in `map`.
    pub fn open(map: &'m LocalMap) -> Self {
        Self(map)
    }

    /// A map of all records.
    pub fn load(records: &impl Records) -> anyhow::Result<LocalMap> {
        let mut map = LocalMap::with_capacity(records.count());
        let mut buffer = Vec::new();
        for index in 0..records.count() as u32 {
            let key = records.key(index).try_into().context("keys of 16 bytes")?;
            let value = records.value(index, &mut buffer).try_into().context("values of 32")?;
            map.insert(key, Box::new(value));
        }
        Ok(map)
    }
}

impl Target for LocalTarget<'_> {
    const IS_SHORT: bool = true;

    #[inline]
    fn get(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        let key: &[u8; KEY_BYTES] = key.try_into().context("keys of 16 bytes")?;
        see(self.0.get(key).map(|value| &value[..]));
        Ok(())
    }

    fn set(&mut self, _key: &[u8], _value: &[u8]) -> anyhow::Result<()> {
        bail!("the local map is only read")
    }

    #[inline]
    fn get_batch(
        &mut self,
        keys: &[&[u8]],
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> anyhow::Result<()> {
        for (position, key) in keys.iter().enumerate() {
            self.get(key, |value| see(position, value))?;
        }
        Ok(())
    }

    fn send(&mut self, _request: Request<'_>) -> anyhow::Result<()> {
        bail!("the local map has no pipeline")
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn receive(&mut self, _is_get: bool, _see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        bail!("the local map has no pipeline")
    }

    fn kept_outstanding(_depth: usize) -> usize {
        0
    }

    fn costs(&self) -> Costs {
        Costs::default()
    }
}
