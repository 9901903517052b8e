//! The users of connections: AUTH, ACL, and the check of each request.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::info;
use crate::thread_counts::count;
use crate::users::UserTable;
use remora_acl::{Context, DEFAULT_USER, Denied, LoginError, Reason, Refusal};
use remora_resp::request::{AclRequest, Hello};
use remora_resp::spec::Flag;
use remora_resp::table::{Called, called};
use remora_resp::wire::{Args, Made, Words, encode};
use remora_resp::{CommandError, acl_reply};

/// What was refused for this reason.
fn object<'a>(denied: Denied, call: &Called, words: Words<'a>) -> &'a [u8] {
    match denied {
        Denied::Command => call.spec().name.as_bytes(),
        Denied::Key { at } | Denied::Channel { at } => words.get(at),
    }
}

impl<H: Host> RespExecutor<H> {
    /// Whether the connection may do all: then its requests need no further look.
    #[inline]
    pub(super) fn may_all(&self, responder: &Responder) -> bool {
        let users = self.host.users();
        users.is_none_or(|users| responder.client.login.may_all(users.published()))
    }

    /// Refuses a request that the connection's user may not make. A request that is none is not
    /// refused here: its parser says why.
    #[inline(never)]
    pub(super) fn is_refused(
        &self,
        responder: &mut Responder,
        (args, bytes): (&Args, &[u8]),
    ) -> bool {
        let Some(users) = self.host.users() else { return false };
        if !responder.client.login.review(users.published()) {
            // The user was removed.
            responder.quit();
            return true;
        }
        let made = Made::default();
        let words = Words::new(args, bytes, &made);
        let Ok(call) = called(words) else { return false };
        let login = &responder.client.login;
        let needs_login = !call.spec().flags.contains(&Flag::NoAuth);
        if needs_login && !login.is_logged_in() {
            responder.reply(|out, _| CommandError::NotLoggedIn.write(out));
            return true;
        }
        let Some(user) = login.user() else { return false };
        if let Err(denied) = call.check(user, words) {
            let text = denied.error_text(call.spec().name);
            let object = object(denied, &call, words);
            self.note(users, responder, (denied.into(), object), user.name());
            responder.reply(|out, _| CommandError::NoPermission(text).write(out));
            return true;
        }
        if let Some(option) = call.refused_option(user, words) {
            responder.reply(|out, _| CommandError::SortOption(option).write(out));
            return true;
        }
        false
    }

    fn note(
        &self,
        users: &UserTable,
        responder: &Responder,
        (reason, object): (Reason, &[u8]),
        user: &[u8],
    ) {
        let client = info::client(responder);
        let client = client.trim_ascii_end();
        let refusal = Refusal { reason, context: Context::TopLevel, object, user, client };
        users.refuse(&refusal, self.now_ms);
    }

    /// AUTH.
    pub(super) fn auth(
        &self,
        responder: &mut Responder,
        command: &[u8],
        (user, password): (Option<&[u8]>, &[u8]),
    ) {
        let Some(users) = self.host.users() else {
            return responder.reply(|out, _| CommandError::NoPasswordNeeded.write(out));
        };
        if user.is_none() && users.users().default_user().needs_no_password() {
            return responder.reply(|out, _| CommandError::NoPasswordNeeded.write(out));
        }
        match self.log_in(responder, command, (user.unwrap_or(DEFAULT_USER), password)) {
            Ok(()) => responder.reply(|out, _| encode::ok(out)),
            Err(error) => responder.reply(|out, _| error.write(out)),
        }
    }

    /// The part of HELLO that is about users.
    pub(super) fn hello_user(
        &self,
        responder: &mut Responder,
        hello: &Hello<'_>,
    ) -> Result<(), CommandError> {
        if let Some(auth) = hello.auth {
            return self.log_in(responder, hello.command, auth);
        }
        let is_in = self.host.users().is_none() || responder.client.login.is_logged_in();
        is_in.then_some(()).ok_or(CommandError::HelloNotLoggedIn)
    }

    fn log_in(
        &self,
        responder: &mut Responder,
        command: &[u8],
        (name, password): (&[u8], &[u8]),
    ) -> Result<(), CommandError> {
        let Some(users) = self.host.users() else {
            // There is one user, who needs no password.
            return if name == DEFAULT_USER { Ok(()) } else { Err(CommandError::WrongPassword) };
        };
        match responder.client.login.log_in(users.published(), name, password) {
            Ok(()) => Ok(()),
            Err(LoginError::WrongPassword) => {
                self.note(users, responder, (Reason::Auth, command), name);
                Err(CommandError::WrongPassword)
            }
            Err(LoginError::TooMany) => {
                count(&users.refused.logins, 1);
                Err(CommandError::TooManyLogins)
            }
        }
    }

    /// ACL.
    pub(super) fn acl(&self, responder: &mut Responder, request: &AclRequest<'_>) {
        let Some(users) = self.host.users() else {
            return responder.reply(|out, _| CommandError::NoUsers.write(out));
        };
        let changed = match request {
            AclRequest::SetUser { name, rules } => {
                Some(users.set_user(name, rules.clone()).map(|()| None).map_err(|e| e.to_string()))
            }
            AclRequest::DelUser(names) => {
                let removed = users.del_users(names.clone());
                Some(removed.map(Some).map_err(|error| error.to_string()))
            }
            AclRequest::Load => Some(users.load().map(|()| None).map_err(|e| e.to_string())),
            _ => None,
        };
        match changed {
            None => self.answer_acl(responder, users, request),
            Some(Err(error)) => {
                responder.reply(|out, _| encode::error(out, &format!("ERR {error}")));
            }
            Some(Ok(count)) => {
                self.host.users_changed();
                responder.reply(|out, _| match count {
                    Some(count) => encode::integer(out, count as i64),
                    None => encode::ok(out),
                });
            }
        }
    }

    /// The requests of ACL that change no users.
    fn answer_acl(&self, responder: &mut Responder, users: &UserTable, request: &AclRequest<'_>) {
        match request {
            AclRequest::Cat(category) => {
                responder.reply(|out, _| acl_reply::write_categories(out, *category));
            }
            AclRequest::DryRun { user, words } => {
                responder
                    .reply(|out, _| acl_reply::write_dry_run(out, &users.users(), user, *words));
            }
            AclRequest::GenPass(genpass) => {
                let mut random = vec![0; genpass.bytes()];
                let is_random = crate::random::fill(&mut random);
                responder.reply(|out, _| match is_random {
                    true => encode::bulk(out, genpass.password(&random).as_bytes()),
                    false => encode::error(out, "ERR the kernel gives no random bytes: try again"),
                });
            }
            AclRequest::GetUser(name) => {
                let users = users.users();
                let user = users.get(name).map(|user| &**user);
                responder.reply(|out, version| acl_reply::write_user(out, version, user));
            }
            AclRequest::List => {
                responder.reply(|out, _| acl_reply::write_list(out, &users.users()))
            }
            AclRequest::Users => {
                responder.reply(|out, _| acl_reply::write_users(out, &users.users()))
            }
            AclRequest::Log(count) => {
                let log = users.log();
                let entries: Vec<_> = log.entries().take(*count).collect();
                let now_ms = self.now_ms;
                responder.reply(|out, version| {
                    acl_reply::write_log(out, version, entries.into_iter(), now_ms);
                });
            }
            AclRequest::ResetLog => {
                users.log().reset();
                responder.reply(|out, _| encode::ok(out));
            }
            AclRequest::Save => {
                let saved = users.save();
                responder.reply(|out, _| match saved {
                    Ok(()) => encode::ok(out),
                    Err(error) => encode::error(out, &format!("ERR {error}")),
                });
            }
            AclRequest::WhoAmI => {
                let name = responder.client.login.user().map_or(DEFAULT_USER, |user| user.name());
                let name = name.to_vec();
                responder.reply(|out, _| encode::bulk(out, &name));
            }
            AclRequest::SetUser { .. } | AclRequest::DelUser(_) | AclRequest::Load => {}
        }
    }
}
