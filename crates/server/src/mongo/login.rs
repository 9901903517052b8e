//! Logins by SCRAM-SHA-256 with the server's users: `saslStart`, `saslContinue`, `logout`, and the first step
//! of a login in a handshake.

use super::executor::MongoExecutor;
use crate::thread_counts::count;
use remora_acl::{Context, LoginError, Reason, Refusal};
use remora_frontend::Responder;
use remora_mongo::bson::{RawDocument, cstr};
use remora_mongo::frontend::Mongo;
use remora_mongo::scram::{Credentials, SaslReply, SaslStart, ScramError};
use remora_mongo::writer::write_document;
use remora_mongo::{Command, CommandError, ErrorCode};

/// Random bytes of the server's part of a nonce.
const NONCE_BYTES: usize = 18;

impl MongoExecutor<'_> {
    /// The reply to a command about the login of the connection; `None` if it is another one.
    pub(super) fn login(
        &mut self,
        responder: &mut Responder<Mongo>,
        command: &Command<'_>,
    ) -> Option<Result<Vec<u8>, CommandError>> {
        let reply = match command.name() {
            "saslStart" => SaslStart::of(command)
                .and_then(|start| Ok(self.start(responder, &start)?))
                .inspect_err(|_| responder.client.conversation = None),
            "saslContinue" => self.go_on_with_login(responder, command),
            "logout" => {
                responder.client.login = Default::default();
                responder.client.conversation = None;
                let users = self.port_users();
                responder.client.login.review(users.published());
                return Some(Ok(body(None)));
            }
            _ => return None,
        };
        Some(reply.map(|reply| body(Some(&reply))))
    }

    /// The first step of a login, in a handshake. If it fails, the client logs in by commands.
    pub(super) fn speculative(
        &self,
        responder: &mut Responder<Mongo>,
        document: &RawDocument,
    ) -> Option<SaslReply> {
        let start = SaslStart::of_speculative(document).ok()?;
        self.start(responder, &start).ok()
    }

    fn start(
        &self,
        responder: &mut Responder<Mongo>,
        start: &SaslStart<'_>,
    ) -> Result<SaslReply, ScramError> {
        let users = self.port_users().users();
        let user = users.get(start.user.as_bytes()).filter(|user| user.is_on());
        // All users are those of the server: a database of its own is not asked for.
        let found = user.and_then(|user| user.scram_keys());
        let found = found.and_then(|keys| Credentials::from_text(keys).ok());
        let mut random = [0; NONCE_BYTES];
        if !crate::random::fill(&mut random) {
            return Err(ScramError::Parameters);
        }
        let nonce = remora_mongo::scram::nonce(&random);
        let server = self.server();
        let (conversation, reply) = start.begin(found.as_ref(), server.unknown_users(), &nonce)?;
        responder.client.conversation = Some(Box::new(conversation));
        Ok(reply)
    }

    fn go_on_with_login(
        &mut self,
        responder: &mut Responder<Mongo>,
        command: &Command<'_>,
    ) -> Result<SaslReply, CommandError> {
        let Some(mut conversation) = responder.client.conversation.take() else {
            return Err(ScramError::NoConversation.into());
        };
        let reply = conversation.resume(command);
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                let user = conversation.user().to_owned();
                self.note_refusal(responder, user.as_bytes());
                return Err(error);
            }
        };
        let Some((user, _)) = conversation.logged_in() else {
            responder.client.conversation = Some(conversation);
            return Ok(reply);
        };
        let users = self.port_users();
        match responder.client.login.certify(users.published(), user.as_bytes()) {
            Ok(()) => Ok(reply),
            Err(LoginError::TooMany) => {
                count(&users.refused.logins, 1);
                let text = "max number of logins of this user reached";
                Err(CommandError::new(ErrorCode::AuthenticationFailed, text))
            }
            Err(LoginError::WrongPassword) => {
                Err(CommandError::new(ErrorCode::AuthenticationFailed, "Authentication failed."))
            }
        }
    }

    /// A login has failed: it is counted, and noted in the log of refusals.
    fn note_refusal(&self, responder: &Responder<Mongo>, user: &[u8]) {
        let client = format!("addr={} protocol=mongo", responder.peer());
        let (reason, context) = (Reason::Auth, Context::TopLevel);
        let (object, client) = (&b"saslContinue"[..], client.as_bytes());
        let refusal = Refusal { reason, context, object, user, client };
        self.port_users().refuse(&refusal, self.now_ms());
    }
}

fn body(reply: Option<&SaslReply>) -> Vec<u8> {
    let mut body = Vec::new();
    write_document(&mut body, |fields| {
        if let Some(reply) = reply {
            reply.write(fields);
        }
        fields.f64(cstr!("ok"), 1.0);
    });
    body
}
