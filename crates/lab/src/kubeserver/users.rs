//! Users of a test's API server with less than an administrator's rights, or with none any more.

use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, Kubeconfig};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, Issuer, KeyPair,
};
use serde_json::{Value, json};

use super::{Error, KubeServer, io_error};

impl KubeServer {
    /// Makes a ServiceAccount in the namespace `default` with a ClusterRole of these `rules` (as in a manifest), and a
    /// kubeconfig with a token of it. What the rules do not name, the server answers with 403.
    ///
    /// # Errors
    ///
    /// If the server refuses one of the objects.
    pub async fn limited_kubeconfig(&self, name: &str, rules: Value) -> Result<PathBuf, Error> {
        const GROUP: &str = "rbac.authorization.k8s.io";
        self.create(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "default"},
        }))
        .await?;
        self.create(json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules,
        }))
        .await?;
        self.create(json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }))
        .await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        let request = TokenRequest {
            spec: Some(TokenRequestSpec::default()),
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await?;
        let token = answer
            .status
            .and_then(|s| s.token)
            .ok_or_else(|| Error::BadObject("the server's TokenRequest has no token".to_owned()))?;
        self.write_kubeconfig(
            name,
            AuthInfo {
                token: Some(token.into()),
                ..AuthInfo::default()
            },
        )
    }

    /// Makes a kubeconfig of the administrators' group by a client certificate that was good from `from` to `until`,
    /// each a year, month and day (UTC, midnight).
    ///
    /// # Errors
    ///
    /// If the certificate cannot be made.
    pub fn certificate_kubeconfig(
        &self,
        name: &str,
        from: (i32, u8, u8),
        until: (i32, u8, u8),
    ) -> Result<PathBuf, Error> {
        let key_file = self.dir().join("pki/ca.key");
        let ca_key = fs::read_to_string(&key_file).map_err(io_error(key_file.display().to_string()))?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name = DistinguishedName::new();
        // The server compares the issuer's bytes, and its own CA wrote this name as a PrintableString.
        ca.distinguished_name.push(
            DnType::CommonName,
            DnValue::PrintableString("kube-testserver".try_into()?),
        );
        let issuer = Issuer::new(ca, KeyPair::from_pem(&ca_key)?);

        let mut user = CertificateParams::default();
        user.distinguished_name = DistinguishedName::new();
        user.distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        user.distinguished_name.push(DnType::CommonName, name);
        user.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        user.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        user.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
        let key = KeyPair::generate()?;
        let certificate = user.signed_by(&key, &issuer)?;

        let write = |extension: &str, text: String| {
            let path = self.dir().join(format!("{name}.{extension}"));
            fs::write(&path, text).map_err(io_error(path.display().to_string()))?;
            Ok::<_, Error>(path.display().to_string())
        };
        let user = AuthInfo {
            client_certificate: Some(write("crt", certificate.pem())?),
            client_key: Some(write("key", key.serialize_pem())?),
            ..AuthInfo::default()
        };
        self.write_kubeconfig(name, user)
    }

    /// Writes the administrator's kubeconfig with another user in it.
    fn write_kubeconfig(&self, name: &str, user: AuthInfo) -> Result<PathBuf, Error> {
        let mut config = Kubeconfig::read_from(self.kubeconfig())?;
        for info in &mut config.auth_infos {
            info.auth_info = Some(user.clone());
        }
        let path = self.dir().join(format!("{name}.kubeconfig"));
        // JSON is YAML.
        let text = serde_json::to_string(&config).map_err(|e| Error::BadObject(e.to_string()))?;
        fs::write(&path, text).map_err(io_error(path.display().to_string()))?;
        Ok(path)
    }
}
