// Package api holds the nouns of Sluice: the words that the rooms of the
// pipeline speak to each other.
//
// The flow is Kubernetes state -> cache -> processor -> configurator ->
// renderers. The processor produces ContivPolicy values (a policy without
// indirection), the configurator turns them into ordered lists of ContivRule
// (six-tuples), and every renderer enforces those.
//
// # Direction
//
// Above the renderer contract direction is seen from the pod: ingress is
// traffic towards the pod. From the renderer contract downwards it is seen from
// the vswitch: ingress is traffic that enters the vswitch from the pod. The
// configurator flips it, once.
//
// # Invariants
//
// The package imports the standard library only. Its values are immutable by
// convention: whoever receives one must not change what its slices hold. Zero
// values are the closed or the unrestricted end, as each type says; Action is
// closed (Deny), nets and port ranges are unrestricted.
package api
