//! Commands about the server and the connection.

use crate::command::Command;
use crate::limits::MAX_DOCUMENT_BYTES;
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context};
use crate::spec::{Right, Spec};
use bson::cstr;
use bson::raw::CStr;

pub(super) static COMMANDS: &[Spec] = &[
    Spec {
        names: &["ping"],
        summary: "Answers.",
        right: Right::None,
        fields: &[],
        begin: |_, _| Begun::reply(|_| {}),
    },
    Spec {
        names: &["buildInfo", "buildinfo"],
        summary: "Tells what the server is: Remora, and the version of MongoDB whose commands it keeps to.",
        right: Right::None,
        fields: &[],
        begin: build_info,
    },
    Spec {
        names: &["connectionStatus"],
        summary: "Tells which user the connection has.",
        right: Right::None,
        fields: &["showPrivileges"],
        begin: connection_status,
    },
    Spec {
        names: &["getParameter"],
        summary: "Tells a parameter: featureCompatibilityVersion, authenticationMechanisms, and two that never change.",
        right: Right::Login,
        fields: &[
            "featureCompatibilityVersion",
            "authenticationMechanisms",
            "enableTestCommands",
            "requireApiVersion",
            "allParameters",
        ],
        begin: get_parameter,
    },
    Spec {
        names: &["serverStatus"],
        summary: "Tells counts of the server.",
        right: Right::Login,
        fields: &["repl", "metrics", "locks", "mirroredReads", "latchAnalysis"],
        begin: server_status,
    },
    Spec {
        names: &["getLog"],
        summary: "Gives warnings of the start, of which there are none: the program's log is its standard error.",
        right: Right::Login,
        fields: &[],
        begin: get_log,
    },
    Spec {
        names: &["endSessions"],
        summary: "Ends sessions, of which the server keeps nothing.",
        right: Right::None,
        fields: &[],
        begin: |_, _| Begun::reply(|_| {}),
    },
    Spec {
        names: &["startSession"],
        summary: "Begins a session, of which the server keeps nothing.",
        right: Right::Login,
        fields: &[],
        begin: |_, context| {
            let id = context.server.uuid();
            Begun::reply(|reply| {
                reply.document(cstr!("id"), |fields| fields.uuid(cstr!("id"), &id));
                reply.i32(cstr!("timeoutMinutes"), crate::hello::SESSION_TIMEOUT_MINUTES);
            })
        },
    },
    Spec {
        names: &["refreshSessions"],
        summary: "Keeps sessions alive, of which the server keeps nothing.",
        right: Right::Login,
        fields: &[],
        begin: |_, _| Begun::reply(|_| {}),
    },
];

/// The version of MongoDB whose commands this server keeps to.
pub const MONGODB_VERSION: (&str, [i32; 4]) = ("7.0.0", [7, 0, 0, 0]);

fn build_info(_: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    let version = context.server.version;
    Begun::reply(|reply| {
        reply.str(cstr!("version"), MONGODB_VERSION.0);
        reply.array(cstr!("versionArray"), |numbers| {
            MONGODB_VERSION.1.into_iter().for_each(|number| numbers.i32(number));
        });
        reply.str(cstr!("gitVersion"), "");
        reply.array(cstr!("modules"), |_| {});
        reply.str(cstr!("allocator"), "system");
        reply.i32(cstr!("bits"), 64);
        reply.bool(cstr!("debug"), cfg!(debug_assertions));
        reply.i32(cstr!("maxBsonObjectSize"), MAX_DOCUMENT_BYTES as i32);
        reply.document(cstr!("remora"), |of| of.str(cstr!("version"), version));
    })
}

fn connection_status(_: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    let user = context.user.clone();
    Begun::reply(|reply| {
        reply.document(cstr!("authInfo"), |info| {
            info.array(cstr!("authenticatedUsers"), |users| {
                if let Some(name) = &user {
                    users.document(|of| {
                        of.str(cstr!("user"), &String::from_utf8_lossy(name));
                        of.str(cstr!("db"), "admin");
                    });
                }
            });
            info.array(cstr!("authenticatedUserRoles"), |_| {});
        });
    })
}

/// Parameters that the server has, each with a value that never changes.
const PARAMETERS: &[(&CStr, bool)] = &[
    // Commands that are for tests of MongoDB alone, such as those of fail points.
    (cstr!("enableTestCommands"), false),
    (cstr!("requireApiVersion"), false),
];

fn get_parameter(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    let all = command.first().as_str() == Some("*") || command.bool("allParameters")? == Some(true);
    let wants = |name: &str| all || command.get(name).is_some();
    let (version, mechanisms) =
        (wants("featureCompatibilityVersion"), wants("authenticationMechanisms"));
    let others: Vec<_> = PARAMETERS.iter().filter(|(name, _)| wants(name.as_str())).collect();
    if !version && !mechanisms && others.is_empty() {
        return Err(CommandError::new(ErrorCode::InvalidOptions, "no option found to get"));
    }
    Begun::reply(|reply| {
        if version {
            let of = |fields: &mut crate::writer::DocumentWriter<'_>| {
                fields.str(cstr!("version"), "7.0");
            };
            reply.document(cstr!("featureCompatibilityVersion"), of);
        }
        if mechanisms {
            reply.array(cstr!("authenticationMechanisms"), |names| {
                names.str(crate::scram::MECHANISM);
            });
        }
        others.iter().for_each(|(name, value)| reply.bool(name, *value));
    })
}

fn get_log(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    const WARNINGS: &str = "startupWarnings";
    match command.first().as_str() {
        Some("*") => Begun::reply(|reply| reply.array(cstr!("names"), |names| names.str(WARNINGS))),
        Some(WARNINGS) => Begun::reply(|reply| {
            reply.i32(cstr!("totalLinesWritten"), 0);
            reply.array(cstr!("log"), |_| {});
        }),
        Some(other) => {
            let text = format!("no log named '{other}'");
            Err(CommandError::new(ErrorCode::OperationFailed, text))
        }
        None => {
            let text = "BSON field 'getLog.getLog' is the wrong type, expected type 'string'";
            Err(CommandError::new(ErrorCode::TypeMismatch, text))
        }
    }
}

fn server_status(_: &Command<'_>, context: &mut Context<'_>) -> Result<Begun, CommandError> {
    let (server, now_ms) = (context.server, context.now_ms);
    let (open, timed_out) = {
        let cursors = server.cursors();
        (cursors.len() as i64, cursors.timed_out as i64)
    };
    let uptime_ms = now_ms.saturating_sub(server.started_ms) as i64;
    Begun::reply(|reply| {
        reply.str(cstr!("version"), MONGODB_VERSION.0);
        reply.str(cstr!("process"), "remora");
        reply.i64(cstr!("pid"), server.pid.into());
        reply.f64(cstr!("uptime"), (uptime_ms / 1000) as f64);
        reply.i64(cstr!("uptimeMillis"), uptime_ms);
        reply.datetime_ms(cstr!("localTime"), now_ms as i64);
        reply.document(cstr!("metrics"), |metrics| {
            metrics.document(cstr!("cursor"), |cursor| {
                cursor.i64(cstr!("timedOut"), timed_out);
                cursor.document(cstr!("open"), |of| of.i64(cstr!("total"), open));
            });
        });
        reply.document(cstr!("remora"), |of| of.str(cstr!("version"), server.version));
    })
}
