//! One client's way to a tree.

use crate::costs::Costs;
use remora_client_core::Rect;

/// The bench's operations on a tree. Loading it is not part of this.
pub trait Places {
    /// Searches the objects that touch a window; calls `see` with each one's id, and its rectangle
    /// if that is known. Returns the number of visited nodes, if that is known.
    fn search(
        &mut self,
        window: &Rect,
        see: &mut dyn FnMut(u64, Option<&Rect>),
    ) -> anyhow::Result<Option<u64>>;

    /// Adds an object; `false`: it was there, and was moved.
    fn put(&mut self, id: u64, rect: Rect) -> anyhow::Result<bool>;

    /// The costs since it was opened.
    fn costs(&self) -> Costs;
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A list that is searched from end to end.
    #[derive(Clone, Default, Debug)]
    pub struct List {
        pub objects: Vec<(u64, Rect)>,
        pub costs: Costs,
    }

    impl Places for List {
        fn search(
            &mut self,
            window: &Rect,
            see: &mut dyn FnMut(u64, Option<&Rect>),
        ) -> anyhow::Result<Option<u64>> {
            self.costs.asked += 1;
            for (id, rect) in self.objects.iter().filter(|(_, rect)| rect.intersects(window)) {
                see(*id, Some(rect));
            }
            Ok(Some(3))
        }

        fn put(&mut self, id: u64, rect: Rect) -> anyhow::Result<bool> {
            self.costs.asked += 1;
            let known = self.objects.iter_mut().find(|(known, _)| *known == id);
            let is_new = known.is_none();
            match known {
                Some(known) => known.1 = rect,
                None => self.objects.push((id, rect)),
            }
            Ok(is_new)
        }

        fn costs(&self) -> Costs {
            self.costs
        }
    }
}
