// Package cluster makes random cluster states, sequences of them, and the flows
// worth asking about, for tests that compare two evaluations of policy.
//
// Everything exists twice from one source: as generators of rapid, which shrink,
// and seeded by a number, for benchmarks and long runs. Universes are small (a
// few labels, ports and blocks) so that selectors hit, names collide and
// addresses are used again.
//
// # Invariants
//
// A generated state is one that an API server and its controllers could hold at
// some moment as an agent sees it: a pod may be there before its namespace, an
// address may be free, pending or used again. With Config.Odd policies also have
// shapes that today's API servers refuse but that old objects or manifests can
// have; what they mean is laid down in the semantics. Of two live pods only those
// of Config.SharedAddresses have one address. The addresses of a Node object are
// those that the status of its pods names.
//
// A step never changes the objects of the state before it: what changed is a new
// object, what did not is the same pointer.
package cluster
