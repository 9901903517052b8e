//! Certificates for tests of TLS, of an authority made for the test.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    SanType, date_time_ymd,
};
use std::fs::write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// An authority, whose certificates are files of a directory.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
    file: PathBuf,
}

/// A certificate and its private key: files of PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

fn named(parameters: &mut CertificateParams, common_name: &str) {
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, common_name);
}

impl Authority {
    /// A new one, of this name; its files are made in `directory`.
    pub fn new(directory: &Path, name: &str) -> Self {
        let mut parameters = CertificateParams::default();
        named(&mut parameters, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap());
        let issuer = issuer.unwrap();
        let file = directory.join(format!("{name}.ca.pem"));
        write(&file, issuer.pem()).unwrap();
        Self { issuer, directory: directory.to_owned(), file }
    }

    /// Its own certificate, which clients and servers are to trust: a file of PEM.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// A certificate with this common name, good for `localhost` and 127.0.0.1: in the files
    /// `NAME.pem` and `NAME.key`. What they held before is written over.
    pub fn certify(&self, common_name: &str) -> Identity {
        self.certify_with(common_name, |_| {})
    }

    /// The same, for another address of the server.
    pub fn certify_for(&self, common_name: &str, address: IpAddr) -> Identity {
        self.certify_with(common_name, |parameters| {
            parameters.subject_alt_names = vec![SanType::IpAddress(address)];
        })
    }

    /// The same, which has not been valid for years.
    pub fn certify_expired(&self, common_name: &str) -> Identity {
        self.certify_with(common_name, |parameters| {
            parameters.not_before = date_time_ymd(2001, 1, 1);
            parameters.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    fn certify_with(
        &self,
        common_name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Identity {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut parameters = CertificateParams::new(names).unwrap();
        change(&mut parameters);
        named(&mut parameters, common_name);
        let key = KeyPair::generate().unwrap();
        let made = parameters.signed_by(&key, &self.issuer).unwrap();
        let at = |ending: &str| self.directory.join(format!("{common_name}.{ending}"));
        let identity = Identity { certificate: at("pem"), key: at("key") };
        write(&identity.certificate, made.pem()).unwrap();
        write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }
}
