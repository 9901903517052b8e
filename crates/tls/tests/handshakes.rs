//! Which clients come in, and the errors of those that do not.

use super::{handshake, sockets};
use remora_testing::{Authority, Identity};
use remora_tls::{
    ClientCertificates, ClientTls, LeastVersion, ServerTls, ServerTlsSettings, TlsError, TlsSession,
};

fn settings(identity: &Identity) -> ServerTlsSettings {
    ServerTlsSettings::new(identity.certificate.clone(), identity.key.clone())
}

/// The server's end of a handshake.
fn shake(server: &ServerTls, client: &ClientTls, name: &str) -> Result<TlsSession, TlsError> {
    let (mut client, mut server) = (client.begin(name).unwrap(), server.begin().unwrap());
    let (mut of_client, mut of_server) = sockets(1, 1 << 20, false);
    handshake((&mut client, &mut of_client), (&mut server, &mut of_server))?;
    // In TLS 1.3 the client is done before the server has looked at its certificate.
    client.send(&mut of_client, b"x").unwrap();
    let mut into = [0; 1];
    assert_eq!(server.receive(&mut of_server, &mut into).unwrap(), 1);
    Ok(server)
}

#[test]
fn a_client_trusts_its_authorities_and_no_other_name() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Authority::new(directory.path(), "ours");
    let others = Authority::new(directory.path(), "others");
    let server = ServerTls::load(settings(&ours.certify("server"))).unwrap();
    let client = ClientTls::load(ours.file(), None).unwrap();
    let session = shake(&server, &client, "localhost").unwrap();
    assert_eq!((session.version(), session.peer_name()), ("TLSv1.3", None));
    shake(&server, &client, "127.0.0.1").unwrap();
    let stranger = ClientTls::load(others.file(), None).unwrap();
    for (client, name) in [(&stranger, "localhost"), (&client, "example.org")] {
        let error = shake(&server, client, name).unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
    let error = client.begin("no name").unwrap_err().to_string();
    assert!(error.contains("no name of a server"), "{error}");
}

#[test]
fn a_clients_certificate_names_it_and_must_be_of_the_authority() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Authority::new(directory.path(), "ours");
    let others = Authority::new(directory.path(), "others");
    let identity = ours.certify("server");
    let (alice, mallory) = (ours.certify("alice"), others.certify("mallory"));
    let as_one =
        |who: &Identity| ClientTls::load(ours.file(), Some((&who.certificate, &who.key))).unwrap();
    let nobody = ClientTls::load(ours.file(), None).unwrap();
    for clients in [ClientCertificates::Optional, ClientCertificates::Required] {
        let authorities = Some(ours.file().to_owned());
        let settings = ServerTlsSettings { authorities, clients, ..settings(&identity) };
        let server = ServerTls::load(settings).unwrap();
        let session = shake(&server, &as_one(&alice), "localhost").unwrap();
        assert_eq!(session.peer_name().as_deref(), Some("alice"));
        assert!(shake(&server, &as_one(&mallory), "localhost").is_err());
        let without = shake(&server, &nobody, "localhost");
        assert_eq!(without.is_ok(), clients == ClientCertificates::Optional);
    }
}

#[test]
fn an_old_version_is_refused_where_a_new_one_is_asked_for() {
    use rustls::crypto::aws_lc_rs;
    use std::sync::Arc;
    let directory = tempfile::tempdir().unwrap();
    let ours = Authority::new(directory.path(), "ours");
    let identity = ours.certify("server");
    for (least, is_spoken) in [(LeastVersion::Tls12, true), (LeastVersion::Tls13, false)] {
        let server = ServerTls::load(ServerTlsSettings { least, ..settings(&identity) }).unwrap();
        // A client of TLS 1.2 alone.
        let mut roots = rustls::RootCertStore::empty();
        use rustls::pki_types::pem::PemObject;
        roots.add(rustls::pki_types::CertificateDer::from_pem_file(ours.file()).unwrap()).unwrap();
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS12])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut session = server.begin().unwrap();
        let (mut of_client, mut of_server) = sockets(1, 1 << 20, false);
        let mut refused = false;
        for _ in 0..10 {
            while client.wants_write() {
                client.write_tls(&mut of_client).unwrap();
            }
            refused |= session.handshake(&mut of_server).is_err();
            let _ = client.read_tls(&mut of_client);
            let _ = client.process_new_packets();
        }
        assert_eq!(refused, !is_spoken);
        assert_eq!(session.version() == "TLSv1.2", is_spoken);
    }
}

#[test]
fn files_are_read_again_and_a_wrong_one_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) =
        (Authority::new(directory.path(), "old"), Authority::new(directory.path(), "new"));
    let identity = old.certify("server");
    let server = ServerTls::load(settings(&identity)).unwrap();
    let trusts = |authority: &Authority| ClientTls::load(authority.file(), None).unwrap();
    shake(&server, &trusts(&old), "localhost").unwrap();
    // The new certificate is written before its key: for a moment they do not fit.
    let key = std::fs::read(&identity.key).unwrap();
    new.certify("server");
    let new_key = std::fs::read(&identity.key).unwrap();
    std::fs::write(&identity.key, key).unwrap();
    let error = server.reload().unwrap_err().to_string();
    assert!(error.contains("cannot be used"), "{error}");
    shake(&server, &trusts(&old), "localhost").unwrap();
    std::fs::write(&identity.key, new_key).unwrap();
    server.reload().unwrap();
    shake(&server, &trusts(&new), "localhost").unwrap();
    assert!(shake(&server, &trusts(&old), "localhost").is_err());
}

#[test]
fn wrong_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Authority::new(directory.path(), "ours");
    let Identity { certificate, key } = ours.certify("server");
    let (missing, empty) = (directory.path().join("missing"), directory.path().join("empty"));
    std::fs::write(&empty, "").unwrap();
    let wrong = [
        (&missing, &key, "missing cannot be read"),
        (&certificate, &missing, "missing cannot be read"),
        (&empty, &key, "empty holds no certificates"),
        (&certificate, &empty, "empty holds no private key"),
        (&certificate, &certificate, "server.pem holds no private key"),
    ];
    for (certificate, key, expected) in wrong {
        let settings = ServerTlsSettings::new(certificate.clone(), key.clone());
        let error = ServerTls::load(settings).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let clients = ClientCertificates::Required;
    let settings = ServerTlsSettings { clients, ..ServerTlsSettings::new(certificate, key) };
    let error = ServerTls::load(settings).unwrap_err().to_string();
    assert!(error.contains("need authorities"), "{error}");
}
