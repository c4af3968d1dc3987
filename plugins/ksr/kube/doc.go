// Package kube follows the API server of a Kubernetes cluster, for sluice-ksr.
//
//	API server --list, watch--> strip --> convert.ToModel --> Sink (a reflect.Mirror)
//
// The kinds of Kubernetes itself come as protobuf. Cluster-scoped policies come as
// JSON and are read as strictly as manifests: a field that their definition has and
// this version does not know refuses the object. Their kinds need not be installed;
// they are followed from when the API server serves them, until it does not any more.
//
// # Invariants
//
//   - Nothing but what policy needs is kept of an object, from the moment it is
//     decoded on: lists of large clusters do not pile up.
//   - A kind is empty only when the API server has said so: by a list, or by not
//     serving the kind. A failure takes nothing away.
//   - An object that cannot be converted stays as it last could be, and is one
//     problem; the others are followed.
//   - The rights it needs are list and watch on these kinds, and nothing else.
package kube
