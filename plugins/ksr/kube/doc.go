// Package kube follows the API server of a Kubernetes cluster, for sluice-ksr.
//
//	API server --list, watch--> strip --> convert.ToModel --> Sink (a reflect.Mirror)
//
// The built-in kinds of Kubernetes are transferred as protobuf. Cluster-scoped policies are
// transferred as JSON and read as strictly as manifests: an object is rejected if it has a field of
// its definition that this version does not know. Their kinds need not be installed; they are
// followed while the API server serves them.
//
// # Invariants
//
//   - Only what policy needs is kept of an object, from decoding on: lists of large
//     clusters do not pile up.
//   - A kind is empty only if the API server of this cluster has said so: by a list, or by
//     not serving the kind, twice in 30 s. A failure removes nothing.
//   - An object that cannot be converted keeps its last valid version, and is one
//     problem; the others are followed.
//   - The only required rights are list and watch on these kinds.
package kube
