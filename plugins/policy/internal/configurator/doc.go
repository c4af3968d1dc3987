// Package configurator translates the policies of a pod into two ordered rule lists, one for each
// direction, and says what changes for renderers.
//
// # Place in the flow
//
// In each transaction the processor passes the policies that apply to each local pod, and the
// members of address sets. The configurator generates rules (a pure function, see generate) and
// returns what changes as one value, the same for every renderer.
//
// Only this package converts the direction: policy for ingress to a pod becomes the egress list of
// its PodConfig, because it is enforced where traffic leaves the vswitch.
//
// # Invariants
//
//   - Lists are a function of the policies only: they depend neither on the order of
//     policies, rules, peers and ports nor on earlier state.
//
//   - Below this package there are only Permit and Deny: Pass is resolved here (see
//     delegate). NetworkPolicies yield exactly one Deny, the last rule. Exceptions of
//     blocks are subtracted, never denied: another rule may permit them.
//
//   - What cannot be translated permits nothing.
//
//   - Lists are immutable and hash-consed: pods with equal policies share lists, and
//     equal lists are one object. Lists are reference-counted and dropped when unused.
//
//   - Equal input changes nothing.
//
//   - The changes of a transaction are one consistent cut: the lists, and what sets gain and lose.
//
// The package is pure: it calls no renderer and starts no goroutine. A Configurator is used by one
// goroutine.
package configurator
