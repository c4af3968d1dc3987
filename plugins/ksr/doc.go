// Package ksr reflects Kubernetes state into the store: it is the first room of
// the flow.
//
//	manifests, kubectl output -> Decode -> Object -> Convert -> model message -> Reflector -> store
//
// Decode reads YAML and JSON as strictly as an API server does. Convert turns a
// Kubernetes object into its canonical model message and is shared by every
// source. Modernise stands between them where manifests from before Kubernetes 1.7 are
// accepted, and gives them their meaning in the form of today. A Reflector writes
// messages to the store, only where the store differs. A Directory is a
// source: it reflects a tree of manifests and follows its edits.
//
// # Invariants
//
//   - Every bad document, object or field is one api.Problem that names it; all
//     else of the input keeps working, and no input makes the package panic.
//   - Fail closed: a peer or a port of a policy that cannot be understood stays in
//     its list in a form that matches nothing. It is never dropped, because an
//     empty list matches everything. Where matching nothing would open, in a rule
//     of a cluster-scoped policy that denies or passes, the rule denies everything.
//   - Canonical: equal objects have equal bytes, so equal state is never written.
//   - Never delete because of a mistake: an object of a Directory that became
//     unreadable stays in force in its last good version.
package ksr
