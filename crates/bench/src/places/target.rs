//! One client's way to a tree.

use crate::costs::Costs;
use remora_client_core::Rect;

/// What the bench asks of a tree. Loading it is not part of this.
pub trait Places {
    /// Searches the objects that touch a window; `see` is given each one's id,
    /// and where it is if that is told. Gives how many nodes were looked at, if
    /// that is told.
    fn search(
        &mut self,
        window: &Rect,
        see: &mut dyn FnMut(u64, Option<&Rect>),
    ) -> anyhow::Result<Option<u64>>;

    /// Adds an object; `false`: it was there, and was moved.
    fn put(&mut self, id: u64, rect: Rect) -> anyhow::Result<bool>;

    /// What has been spent since it was opened.
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
