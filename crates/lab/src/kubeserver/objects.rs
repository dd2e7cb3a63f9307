//! Making, changing and deleting objects of a test's API server, given as JSON the way manifests are.

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::path::Path;

use super::{Error, KubeServer};

impl KubeServer {
    /// A client of the administrator. It stays good over a restart.
    ///
    /// # Errors
    ///
    /// If its kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client, Error> {
        client_of(&self.kubeconfig()).await
    }

    /// Creates an object, and where it has a `status`, writes that too (the server ignores it in a create).
    ///
    /// `object` is a whole manifest: `apiVersion`, `kind`, `metadata` with name and, where it has one, namespace.
    /// Returns the object as the server has it now.
    ///
    /// # Errors
    ///
    /// If the manifest lacks one of these, or the server refuses it.
    pub async fn create(&self, object: Value) -> Result<DynamicObject, Error> {
        let (api, name) = self.locate(&object).await?;
        let status = object.get("status").cloned();
        let object = serde_json::from_value(object).map_err(|e| Error::BadObject(e.to_string()))?;
        let created = api.create(&PostParams::default(), &object).await?;
        match status {
            None => Ok(created),
            Some(status) => {
                let patch = Patch::Merge(json!({ "status": status }));
                Ok(api.patch_status(&name, &PatchParams::default(), &patch).await?)
            }
        }
    }

    /// Changes an object by a merge patch, which is a manifest of what changes; a `status` in it is written too.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub async fn patch(&self, patch: Value) -> Result<DynamicObject, Error> {
        let (api, name) = self.locate(&patch).await?;
        let patched = api
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        match patch.get("status") {
            None => Ok(patched),
            Some(status) => {
                let patch = Patch::Merge(json!({ "status": status }));
                Ok(api.patch_status(&name, &PatchParams::default(), &patch).await?)
            }
        }
    }

    /// Deletes an object. A bound Pod is gone at once with a `grace` of `Some(0)` seconds; with any other it stays
    /// terminating for ever, since no kubelet confirms its end.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub async fn delete(&self, object: &Value, grace: Option<u32>) -> Result<(), Error> {
        let (api, name) = self.locate(object).await?;
        let params = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        api.delete(&name, &params).await?;
        Ok(())
    }

    /// Reads an object as the server has it now; `None` where it is gone.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub async fn get(&self, object: &Value) -> Result<Option<DynamicObject>, Error> {
        let (api, name) = self.locate(object).await?;
        Ok(api.get_opt(&name).await?)
    }

    /// The API that a manifest's object belongs to, and the object's name.
    async fn locate(&self, object: &Value) -> Result<(Api<DynamicObject>, String), Error> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .ok_or_else(|| Error::BadObject(format!("no {pointer} in {object}")))
        };
        let types = TypeMeta {
            api_version: text("/apiVersion")?.to_owned(),
            kind: text("/kind")?.to_owned(),
        };
        let kind = GroupVersionKind::try_from(&types).map_err(|e| Error::BadObject(e.to_string()))?;
        let resource = ApiResource::from_gvk(&kind);
        let client = self.client().await?;
        let api = match object.pointer("/metadata/namespace").and_then(Value::as_str) {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        Ok((api, text("/metadata/name")?.to_owned()))
    }
}

/// A client by a kubeconfig file.
///
/// # Errors
///
/// If the file cannot be used.
pub(super) async fn client_of(kubeconfig: &Path) -> Result<Client, Error> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
