// Package explain answers why a flow is allowed or denied: it asks the oracle and, where nodes are
// given, compares the answer with what they have installed.
//
//	question  -> flows                                             (question.go)
//	messages  -> State -> internal/analysis/oracle -> the verdict in words    (kube.go)
//	each node -> its renderers, its dataplane -> compared with that  (answer.go)
//	manifests -> both, without an agent                            (manifests.go)
//
// # Invariants
//
//   - The oracle's verdict about a State is its verdict about the Kubernetes
//     objects that the messages were made from.
//   - What is invalid in a message stays in its list in a form that the oracle
//     finds invalid as well and that therefore matches nothing. It is never left
//     out, because an empty list matches everything.
//   - An answer says what a renderer has installed, never what it should have, and
//     is compared with the part of the verdict that its node decides.
//   - Messages are only read, and no message or question makes the package panic.
package explain
