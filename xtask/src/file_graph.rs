//! Which file of a crate imports which other: the graph that the check
//! `circles` goes by.
//!
//! It is read from the source as the compiler reads it: modules from `mod`
//! declarations, names through `use` and its re-exports down to the file that
//! defines them. A re-export alone imports nothing. Methods are not resolved: a
//! method belongs to its type, wherever its `impl` stands. What is compiled
//! for tests only is left out.

use crate::tree::Tree;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, Lit, Meta, UseTree};

/// Re-exports of re-exports that are followed: more than any crate has, and a
/// bound for those that lead back to themselves.
const MOST_HOPS: usize = 16;
/// The module of a file's tests, whether or not an attribute says so.
const TESTS: &str = "tests";

/// For each file, the files that it imports and the names that it takes from each.
pub type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The imports between the files of one crate. `directory` is the crate's, as
/// `crates/arena`. An error names a file that cannot be parsed.
pub fn of_crate(tree: &Tree, directory: &str) -> Result<Imports, (String, String)> {
    let mut imports = Imports::new();
    let binaries = format!("{directory}/src/bin/");
    let roots = ["src/lib.rs", "src/main.rs"].map(|root| format!("{directory}/{root}"));
    let more = tree.paths().filter(|path| {
        let name = path.strip_prefix(&binaries);
        name.is_some_and(|name| name.ends_with(".rs") && !name.contains('/'))
    });
    for root in roots.iter().map(String::as_str).chain(more) {
        if tree.text(root).is_some() {
            Modules::load(tree, root)?.add_imports(&mut imports);
        }
    }
    Ok(imports)
}

/// One module: a file, or an inline module in one.
#[derive(Default)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names of the items that it defines.
    items: BTreeSet<String>,
    /// Names that `use` brings in, and the paths that they stand for.
    uses: BTreeMap<String, Vec<String>>,
    /// Modules whose names are all brought in.
    globs: Vec<Vec<String>>,
    /// The paths that count as imports: private uses, and those in code.
    paths: BTreeSet<Vec<String>>,
}

/// What a path stands for.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

/// The modules of a crate; the first is its root.
struct Modules<'t> {
    tree: &'t Tree,
    modules: Vec<Module>,
}

impl<'t> Modules<'t> {
    fn load(tree: &'t Tree, root: &str) -> Result<Self, (String, String)> {
        let mut modules = Self { tree, modules: Vec::new() };
        modules.add_file(None, root, directory_of(root))?;
        Ok(modules)
    }

    /// Adds the module that a file is. Its children's files lie in `directory`.
    fn add_file(
        &mut self,
        parent: Option<usize>,
        path: &str,
        directory: &str,
    ) -> Result<usize, (String, String)> {
        let text = self.tree.text(path).unwrap_or_default();
        let file = syn::parse_file(text).map_err(|error| (path.to_owned(), error.to_string()))?;
        self.add_module(parent, path, directory, &file.items)
    }

    fn add_module(
        &mut self,
        parent: Option<usize>,
        path: &str,
        directory: &str,
        items: &[Item],
    ) -> Result<usize, (String, String)> {
        let at = self.modules.len();
        self.modules.push(Module { file: path.to_owned(), parent, ..Module::default() });
        for item in items.iter().filter(|item| !is_test_only(attributes(item))) {
            let Item::Mod(child) = item else {
                Reader { module: &mut self.modules[at], is_body: false }.visit_item(item);
                continue;
            };
            let name = child.ident.to_string();
            if name == TESTS {
                continue;
            }
            let below = format!("{directory}/{name}");
            let made = match (&child.content, named_path(&child.attrs)) {
                (Some((_, items)), _) => self.add_module(Some(at), path, &below, items)?,
                (None, Some(named)) => {
                    let file = format!("{}/{named}", directory_of(path));
                    self.add_file(Some(at), &file, directory_of(&file))?
                }
                (None, None) => {
                    let flat = format!("{below}.rs");
                    let nested = format!("{below}/mod.rs");
                    let file = if self.tree.text(&flat).is_some() { flat } else { nested };
                    self.add_file(Some(at), &file, &below)?
                }
            };
            self.modules[at].children.insert(name, made);
        }
        Ok(at)
    }

    fn add_imports(&self, imports: &mut Imports) {
        for (at, module) in self.modules.iter().enumerate() {
            let taken = imports.entry(module.file.clone()).or_default();
            for path in &module.paths {
                let Some(Target::Item(from)) = self.resolve(at, path, MOST_HOPS) else {
                    continue;
                };
                let from = &self.modules[from].file;
                if *from != module.file {
                    let name = self.item_name(at, path);
                    taken.entry(from.clone()).or_default().insert(name);
                }
            }
        }
    }

    /// The name of the item in a path: `Kind` of `super::Kind::Tree`.
    fn item_name(&self, at: usize, path: &[String]) -> String {
        let item = (1..=path.len()).find(|end| {
            matches!(self.resolve(at, &path[..*end], MOST_HOPS), Some(Target::Item(_)))
        });
        item.map_or_else(|| path.join("::"), |end| path[end - 1].clone())
    }

    /// What a path stands for in a module; nothing if that is outside of the crate.
    fn resolve(&self, at: usize, path: &[String], hops: usize) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(at),
            "super" => Target::Module(self.modules[at].parent?),
            name => self.look_up(at, name, rest.is_empty(), hops)?,
        };
        while let (Target::Module(module), Some((name, after))) = (target, rest.split_first()) {
            target = match name.as_str() {
                "super" => Target::Module(self.modules[module].parent?),
                name => self.look_up(module, name, after.is_empty(), hops)?,
            };
            rest = after;
        }
        Some(target)
    }

    /// What a name stands for in a module. Where a module and an item share one,
    /// the end of a path is the item.
    fn look_up(&self, at: usize, name: &str, is_end: bool, hops: usize) -> Option<Target> {
        let module = &self.modules[at];
        let hops = hops.checked_sub(1)?;
        let child = module.children.get(name).map(|child| Target::Module(*child));
        if !is_end && child.is_some() {
            return child;
        }
        if module.items.contains(name) {
            return Some(Target::Item(at));
        }
        let used = module.uses.get(name).and_then(|path| self.resolve(at, path, hops));
        used.or(child).or_else(|| {
            module.globs.iter().find_map(|glob| match self.resolve(at, glob, hops)? {
                Target::Module(all) if all != at => self.look_up(all, name, is_end, hops),
                _ => None,
            })
        })
    }
}

/// Collects what a module defines, uses and names.
struct Reader<'m> {
    module: &'m mut Module,
    /// Inside of an item, whose own items no other item uses.
    is_body: bool,
}

impl Reader<'_> {
    fn read_use(&mut self, tree: &UseTree, before: &mut Vec<String>, is_reexport: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.read_use(&path.tree, before, is_reexport);
                before.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                let alias = before.last().cloned();
                self.bring_in(alias, before.clone(), is_reexport);
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                let path = before.iter().chain([&name]).cloned().collect();
                self.bring_in(Some(name), path, is_reexport);
            }
            UseTree::Rename(rename) => {
                let mut path = before.clone();
                path.extend((rename.ident != "self").then(|| rename.ident.to_string()));
                self.bring_in(Some(rename.rename.to_string()), path, is_reexport);
            }
            UseTree::Glob(_) => self.module.globs.push(before.clone()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.read_use(tree, before, is_reexport);
                }
            }
        }
    }

    fn bring_in(&mut self, alias: Option<String>, path: Vec<String>, is_reexport: bool) {
        if !is_reexport {
            self.module.paths.insert(path.clone());
        }
        if let Some(alias) = alias.filter(|alias| *alias != "_") {
            self.module.uses.insert(alias, path);
        }
    }

    /// The paths in what a macro is given.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut colons, mut is_member) = (0, false);
        for token in tokens {
            match &token {
                TokenTree::Ident(name) if !is_member => {
                    if colons != 2 {
                        self.end_path(&mut path);
                    }
                    path.push(name.to_string());
                }
                TokenTree::Punct(colon) if colon.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                _ => self.end_path(&mut path),
            }
            colons = 0;
            is_member = matches!(&token, TokenTree::Punct(dot) if dot.as_char() == '.');
            if let TokenTree::Group(group) = token {
                self.read_tokens(group.stream());
            }
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut Vec<String>) {
        if !path.is_empty() {
            self.module.paths.insert(std::mem::take(path));
        }
    }

    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::TraitAlias(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            _ => return,
        };
        self.module.items.insert(name.to_string());
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test_only(attributes(item)) {
            return;
        }
        if !self.is_body {
            self.define(item);
        }
        let outer = std::mem::replace(&mut self.is_body, true);
        match item {
            Item::Use(item) => {
                let is_reexport = !matches!(item.vis, syn::Visibility::Inherited);
                self.read_use(&item.tree, &mut Vec::new(), is_reexport);
            }
            item => visit::visit_item(self, item),
        }
        self.is_body = outer;
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes: &[Attribute] = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            _ => &[],
        };
        if !is_test_only(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        self.module.paths.insert(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.read_tokens(call.tokens.clone());
    }

    /// Where an item can be seen says nothing of what it needs.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    /// Attributes name no items.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// The directory of a file.
fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The attributes of an item.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The file that `#[path = "..."]` names.
fn named_path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

/// Whether `#[cfg(...)]` leaves an item out of every build but the tests'.
fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list
            .parse_args::<Meta>()
            .is_ok_and(|condition| without_tests(&condition) == Some(false)),
        _ => false,
    })
}

/// What a condition of `cfg` says where there are no tests; nothing if it
/// depends on something else.
fn without_tests(condition: &Meta) -> Option<bool> {
    match condition {
        Meta::Path(path) => path.is_ident("test").then_some(false),
        Meta::List(list) => {
            let separated = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
            let parts = list.parse_args_with(separated).ok()?;
            let said: Vec<Option<bool>> = parts.iter().map(without_tests).collect();
            if list.path.is_ident("not") {
                said.first().copied().flatten().map(|said| !said)
            } else if list.path.is_ident("all") {
                said.contains(&Some(false)).then_some(false)
            } else {
                let is_never =
                    list.path.is_ident("any") && said.iter().all(|said| *said == Some(false));
                is_never.then_some(false)
            }
        }
        Meta::NameValue(_) => None,
    }
}
