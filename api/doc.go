// Package api defines the types that the components of the pipeline exchange: pods, policies,
// rules, address sets, flows and problems.
//
// The flow is Kubernetes state -> cache -> processor -> configurator -> renderers. The processor
// produces ContivPolicy values (policies with selectors and named ports resolved), the configurator
// turns them into ordered lists of ContivRule (six-tuples), and every renderer enforces those.
//
// # Direction
//
// Above the renderer contract, direction is seen from the pod: ingress is traffic to the pod. From
// the renderer contract downwards it is seen from the vswitch: ingress is traffic that enters the
// vswitch from the pod. Only the configurator converts between the two.
//
// # Invariants
//
// The package imports only the standard library. Its values are immutable by convention: a receiver
// must not modify the contents of their slices. Each type documents its zero value: the zero Action
// is Deny; zero nets and port ranges match everything.
package api
